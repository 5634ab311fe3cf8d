"""Parquet files in parts of whole row groups; a part's rows in the declared types, and what does not fit them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from icefield.engine.intake.files.digests import digest_of_file
from icefield.engine.intake.files.typed import arrow_type, converted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from icefield.declare import Files
    from icefield.engine.intake.files.heads import FileHead

_BATCH = 65_536
#: A file of up to so many bytes is read at once, so that its digest comes from the same bytes.
_AT_ONCE = 256 << 20

#: Values by column, the index of the first row, what is wrong with rows, and those rows as JSON.
Take = Callable[[dict[str, pa.Array], int, dict[int, str], dict[int, bytes]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetPart:
    """Some row groups of a file; `first` is the index of the first row in the file."""

    path: str
    groups: tuple[int, ...]
    first: int
    rows: int
    bytes: int
    #: Whether these are all rows of the file.
    whole: bool


def parts_of(path: str, at_most: int) -> list[ParquetPart]:
    """A file in parts that can be read side by side."""
    footer = pq.read_metadata(path)
    size = Path(path).stat().st_size
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    sizes = [sum(group.column(n).total_compressed_size for n in range(group.num_columns)) for group in groups]
    bins: list[list[int]] = []
    for number in range(len(groups)):
        if not bins or (size > max(_AT_ONCE, at_most) and sum(sizes[n] for n in bins[-1]) + sizes[number] > at_most):
            bins.append([])
        bins[-1].append(number)
    counts = [group.num_rows for group in groups]
    firsts = np.cumsum([0, *counts]).tolist()
    return [
        ParquetPart(
            path=path,
            groups=tuple(some),
            first=firsts[some[0]] if some else 0,
            rows=sum(counts[n] for n in some),
            bytes=sum(sizes[n] for n in some),
            whole=len(bins) == 1,
        )
        for some in bins or [[]]
    ]


def read_part(part: ParquetPart, source: Files, head: FileHead, zone: str, take: Take) -> str:
    """Hands over the rows of a part, batch by batch; the digest of the file, if this is its first part."""
    with _opened(part) as (file, digest):
        first = part.first
        for batch in file.iter_batches(_BATCH, row_groups=list(part.groups)):
            rows = pa.Table.from_batches([batch])
            values, problems = _values(rows, source, head, zone)
            raw = {at: _as_json(rows, at) for at in problems}
            take(values, first, problems, raw)
            first += rows.num_rows
    return digest


class _opened:
    def __init__(self, part: ParquetPart) -> None:
        self._part = part

    def __enter__(self) -> tuple[pq.ParquetFile, str]:
        path = Path(self._part.path)
        if self._part.whole:
            content = path.read_bytes()
            self._file = pq.ParquetFile(pa.BufferReader(content))
            return self._file, hashlib.sha256(content).hexdigest()
        self._file = pq.ParquetFile(path)
        return self._file, digest_of_file(path) if self._part.first == 0 else ""

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _values(rows: pa.Table, source: Files, head: FileHead, zone: str) -> tuple[dict[str, pa.Array], dict[int, str]]:
    places = {column: place for place, column in enumerate(head.header) if column}
    values: dict[str, pa.Array] = {}
    problems: dict[int, str] = {}
    for column in source.schema:
        if column.name not in places:
            values[column.name] = pa.nulls(rows.num_rows, arrow_type(column.type))
            continue
        found = converted(rows.column(places[column.name]), column.type, zone)
        values[column.name] = found.column
        for at in np.flatnonzero(found.wrong).tolist():  # the first reason counts
            problems.setdefault(at, f"malformed: {column.name} is not a valid {column.type}")
    return values, problems


def rows_as_json(path: str, wanted: Sequence[int]) -> list[bytes] | None:
    """Rows of a file by their indexes, which ascend; None if the file is too short."""
    with pq.ParquetFile(path) as file:
        counts = [file.metadata.row_group(n).num_rows for n in range(file.metadata.num_row_groups)]
        firsts = np.cumsum([0, *counts])
        if len(wanted) and wanted[-1] >= firsts[-1]:
            return None
        found = []
        for number, some in _by_group(wanted, firsts):
            rows = file.read_row_group(number)
            found += [_as_json(rows, at - int(firsts[number])) for at in some]
        return found


def _by_group(wanted: Sequence[int], firsts: Any) -> Iterator[tuple[int, list[int]]]:
    numbers = np.searchsorted(firsts, np.array(wanted, np.int64), side="right") - 1
    for number in np.unique(numbers).tolist():
        yield number, [at for at, own in zip(wanted, numbers.tolist(), strict=True) if own == number]


def _as_json(rows: pa.Table, at: int) -> bytes:
    row: Mapping[str, Any] = rows.slice(at, 1).to_pylist()[0]
    return json.dumps(row, default=_text, ensure_ascii=False, separators=(",", ":")).encode()


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
