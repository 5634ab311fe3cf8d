"""Takes a few rows out of a large table and adds others, by one snapshot and without a query.

A delete file of Iceberg's names rows by their data file and their place in it. To find the places of some keys, only
the key columns are read, and only of files that can have them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from icefield.lake import metadata as meta
from icefield.lake.arrow_scan import Near, append_rows, as_condition, fitted, opened
from icefield.lake.delete_manifests import DeleteManifests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from uuid import UUID

    import pyarrow as pa
    from numpy.typing import NDArray
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table import FileScanTask, Table, Transaction

    from icefield.lake.branch import Branch

    Places = NDArray[np.int64]

#: Iceberg's numbers of the two columns of a delete file.
_PATH, _PLACE = 2147483546, 2147483545
#: So many files are read at once.
_FILES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """The rows of a table that are to go: `among` tells by some columns which ones, `near` where they can be."""

    columns: tuple[str, ...]
    near: Sequence[Near]
    among: Callable[[pa.Table], pa.Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How many bytes are read to find rows, and how many rows are taken out; what is more is for Spark."""

    bytes_read: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Deleted:
    """A data file with the places of its deleted rows; `replaces`: delete files of earlier that these stand for."""

    file: DataFile
    places: Places
    replaces: tuple[DataFile, ...]


def replace_rows(branch: Branch, table: str, leaving: Leaving, rows: pa.Table, bounds: Bounds) -> bool:
    """Takes rows out and adds others, which may be none; False, and nothing is done, where Spark has to."""
    with opened(branch, table) as found:
        gone = _found(found, leaving, bounds)
        if gone is None:
            return False
        if gone:
            _commit(found, gone, rows, {meta.RUN: branch.run})
        elif rows.num_rows:
            append_rows(branch, table, rows)
    return True


def _found(table: Table, leaving: Leaving, bounds: Bounds) -> list[_Deleted] | None:
    """The data files from which rows are to go that did not go before."""
    tasks = _tasks(table, leaving, bounds.bytes_read)
    if tasks is None:
        return None
    found: list[tuple[FileScanTask, Places]] = []
    with ThreadPoolExecutor(_FILES) as readers:
        for task, places in zip(tasks, readers.map(partial(_places, table, leaving), tasks), strict=True):
            if places is None:
                return None
            if len(places):
                found.append((task, places))
    if sum(len(places) for _, places in found) > bounds.rows:
        return None
    return _with_earlier(table, found)


def _with_earlier(table: Table, found: Sequence[tuple[FileScanTask, Places]]) -> list[_Deleted]:
    """Adds what earlier delete files say of the same data files alone, so that each of these has one in the end."""
    from pyiceberg.io.pyarrow import _read_deletes
    from pyiceberg.table.delete_file_index import _referenced_data_file_path

    deletes = {file.file_path: file for task, _ in found for file in task.delete_files}
    with ThreadPoolExecutor(_FILES) as readers:
        earlier = dict(zip(deletes, readers.map(partial(_read_deletes, table.io), deletes.values()), strict=True))
    some = []
    for task, places in found:
        path = task.file.file_path
        known = {file: _numbers(earlier[file.file_path].get(path)) for file in task.delete_files}
        own = tuple(file for file in known if _referenced_data_file_path(file) == path)
        new = np.setdiff1d(places, _joined(known.values()))
        if len(new):
            every = np.unique(_joined([new, *(known[file] for file in own)]))
            some.append(_Deleted(file=task.file, places=every, replaces=own))
    return some


def _tasks(table: Table, leaving: Leaving, at_most: int) -> list[FileScanTask] | None:
    """The data files that can have such rows; None where they, or their deletes, are nothing for PyIceberg."""
    current = table.metadata.current_snapshot()
    summary = {} if current is None or current.summary is None else current.summary.additional_properties
    if table.metadata.format_version != 2 or int(summary.get("total-equality-deletes", 0)):
        return None
    tasks = list(table.scan(row_filter=as_condition(leaving.near)).plan_files())
    deletes = {delete.file_path: delete for task in tasks for delete in task.delete_files}
    if any(file.file_format != "PARQUET" for file in (*(task.file for task in tasks), *deletes.values())):
        return None
    fields = {table.schema().find_field(column).field_id for column in leaving.columns}
    read = sum(_bytes_of(task.file, fields) for task in tasks)
    return tasks if read + sum(file.file_size_in_bytes for file in deletes.values()) <= at_most else None


def _bytes_of(file: DataFile, fields: set[int]) -> int:
    """The bytes that some columns take in a file; at least one a row, however well they are compressed."""
    sizes = file.column_sizes
    size = sum(sizes.get(field, 0) for field in fields) if sizes else file.file_size_in_bytes
    return max(size, file.record_count)


def _places(table: Table, leaving: Leaving, task: FileScanTask) -> Places | None:
    """Where the rows are in a file, deleted ones included; None where it has not the rows that are told of it."""
    import pyarrow as pa
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan
    from pyiceberg.table import FileScanTask

    # PyIceberg finds columns by their numbers, and gives those that the file lacks or has of a narrower type.
    scan = ArrowScan(table.metadata, table.io, table.schema().select(*leaving.columns), AlwaysTrue())
    first, places = 0, []
    for batch in scan.to_record_batches([FileScanTask(task.file)]):  # without its deletes
        chosen = leaving.among(pa.Table.from_batches([batch]))
        places.append(np.flatnonzero(np.asarray(chosen)).astype(np.int64) + first)
        first += batch.num_rows
    return _joined(places) if first == task.file.record_count else None


def _numbers(places: pa.ChunkedArray | None) -> Places:
    return _joined([] if places is None else [places.to_numpy().astype(np.int64)])


def _joined(parts: Iterable[Places]) -> Places:
    return np.concatenate([np.array([], np.int64), *parts])


def _commit(table: Table, gone: Sequence[_Deleted], rows: pa.Table, told: dict[str, str]) -> None:
    from pyiceberg.io.pyarrow import _dataframe_to_data_files
    from pyiceberg.utils.concurrent import ExecutorFactory

    with table.transaction() as work, _row_delta(work, table, told, adds=bool(rows.num_rows)) as delta:
        write = partial(_write, table, delta.commit_uuid)
        delta.delete_files = list(ExecutorFactory.get_or_create().map(write, range(len(gone)), gone))
        delta.replaced = [file for one in gone for file in one.replaces]
        if rows.num_rows:
            for file in _dataframe_to_data_files(
                table_metadata=work.table_metadata, df=fitted(rows, table), io=table.io, write_uuid=delta.commit_uuid
            ):
                delta.append_data_file(file)


def _write(table: Table, commit: UUID, number: int, deleted: _Deleted) -> DataFile:
    """Writes the deletes of one data file: whoever reads it, or compacts it, finds its own alone."""
    import pyarrow as pa
    from pyiceberg.io.fileformat import FileFormatFactory
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField, StringType

    of, places = deleted.file, deleted.places
    schema = Schema(
        NestedField(_PATH, "file_path", StringType(), required=True),
        NestedField(_PLACE, "pos", LongType(), required=True),
    )
    output = table.io.new_output(table.location_provider().new_data_location(f"{number:05}-{commit}-deletes.parquet"))
    # Bounds are written in full: a delete file with one path in them is read for that data file alone.
    properties = {**table.metadata.properties, "write.metadata.metrics.default": "full"}
    writer = FileFormatFactory.get(FileFormat.PARQUET).create_writer(output, schema, properties)
    with writer:
        columns = [pa.repeat(of.file_path, len(places)), pa.array(places)]
        wanted = schema_to_pyarrow(schema)
        writer.write(pa.table([c.cast(f.type) for c, f in zip(columns, wanted, strict=True)], schema=wanted))
    written = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=output.location,
        file_format=FileFormat.PARQUET,
        partition=of.partition,
        file_size_in_bytes=len(output),
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **writer.result().to_serialized_dict(),
    )
    written.spec_id = of.spec_id
    return written


def _row_delta(work: Transaction, table: Table, told: dict[str, str], *, adds: bool) -> Any:
    """A snapshot that adds data files, and delete files, some in place of others; manifests are merged as usual."""
    from pyiceberg.manifest import ManifestContent
    from pyiceberg.table.snapshots import (
        Operation,
        SnapshotSummaryCollector,
        Summary,
        update_snapshot_summaries,
    )
    from pyiceberg.table.update.snapshot import _MergeAppendFiles

    class RowDelta(_MergeAppendFiles):
        delete_files: Sequence[DataFile] = ()
        replaced: Sequence[DataFile] = ()

        def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
            found = super()._process_manifests(manifests)
            data = [one for one in found if one.content == ManifestContent.DATA]
            before = [one for one in found if one.content == ManifestContent.DELETES]
            deletes = DeleteManifests(self)
            gone = {file.file_path for file in self.replaced}
            every = [*deletes.added(self.delete_files), *deletes.without(before, gone)]
            return [*data, *deletes.merged(every, self._target_size_bytes, self._min_count_to_merge)]

        def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
            metadata, counted = self._transaction.table_metadata, SnapshotSummaryCollector()
            for file in self._added_data_files:
                counted.add_file(file, metadata.schema(), metadata.spec())
            for file in self.delete_files:
                counted.add_file(file, metadata.schema(), metadata.specs()[file.spec_id])
            for file in self.replaced:
                counted.remove_file(file, metadata.schema(), metadata.specs()[file.spec_id])
            parent = metadata.current_snapshot()
            before = {} if parent is None or parent.summary is None else parent.summary.additional_properties
            before = {"total-delete-files": "0", "total-position-deletes": "0", **before}
            summary = Summary(operation=self._operation, **counted.build(), **(snapshot_properties or {}))
            return update_snapshot_summaries(summary, before)

    operation = Operation.OVERWRITE if adds else Operation.DELETE
    return RowDelta(operation=operation, transaction=work, io=table.io, snapshot_properties=told)
