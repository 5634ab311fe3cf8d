"""Rows of small data files, kept in memory: a stream reads the files of the last minutes again at every run.

A data file never changes, and its name is never used again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyiceberg.io.pyarrow import ArrowScan
    from pyiceberg.table import FileScanTask

#: Files of more bytes are not kept, and no more bytes than this of all of them.
LARGEST, KEPT = 1 << 20, 64 << 20
#: So many files are read at once.
_READERS = 4

#: Rows by file and by the columns that were read, those that were asked for last at the end.
_kept: OrderedDict[tuple[str, str], pa.Table] = OrderedDict()
_guard = threading.Lock()


def are_kept(task: FileScanTask) -> bool:
    """Whether the rows of a file are worth keeping, and are all there: no delete file takes some out."""
    return not task.delete_files and task.file.file_size_in_bytes <= LARGEST


def rows_of(scan: ArrowScan, tasks: Sequence[FileScanTask], schema: pa.Schema) -> list[pa.Table]:
    """All rows of some files, of a scan without a filter; those that were read before come from memory."""
    columns = str(schema)
    found = {task.file.file_path: _looked_up((task.file.file_path, columns)) for task in tasks}
    new = [task for task in tasks if found[task.file.file_path] is None]
    if new:
        with ThreadPoolExecutor(_READERS) as readers:
            for task, rows in zip(new, readers.map(lambda one: scan.to_table([one]).cast(schema), new), strict=True):
                found[task.file.file_path] = rows
                _keep((task.file.file_path, columns), rows)
    return [rows for rows in found.values() if rows is not None]


def _looked_up(key: tuple[str, str]) -> pa.Table | None:
    with _guard:
        if key in _kept:
            _kept.move_to_end(key)
        return _kept.get(key)


def _keep(key: tuple[str, str], rows: pa.Table) -> None:
    with _guard:
        _kept[key] = rows
        while sum(one.nbytes for one in _kept.values()) > KEPT:
            _kept.popitem(last=False)
