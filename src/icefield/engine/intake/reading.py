"""Reads arrived files into a run's scratch folder, side by side, without Spark: it can be done while Spark starts.

Every line ends in one of three kinds of Parquet files: `rows` (values), `problems` (lines that are malformed, with
their bytes) and `undecided` (lines whose text is left to `parse`). All of them tell the file and the line.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from icefield.engine.intake.landing import unreadable
from icefield.engine.intake.lines import LINE_LIMIT, LongLine, Piece, fetch_lines, pieces, read_blocks
from icefield.engine.intake.sorting import CsvLines, JsonLines, long_problem
from icefield.engine.origin import ARRIVAL, PROBLEM, RAW, ROW
from icefield.lake.numbers import Arrived

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from icefield.declare import Files
    from icefield.engine.intake.landing import Intake
    from icefield.engine.intake.lines import Block
    from icefield.engine.intake.sorting import Sorted

#: Where a row came from: its file's place in the order of arrival, and its line.
Origin = tuple[int, int]

#: How much one worker reads at a time, and how many rows it holds before it writes them.
_BIN_BYTES = 32 << 20
_ROW_GROUP = 250_000
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """Lines left to `parse`, of files with one format and one header."""

    format: str
    header: tuple[str, ...]
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is in the scratch folder; `counts` has the rows of each file, by its arrival.

    `watched` tells of the values of columns that were watched which of them more than one line has, and where they lie.
    """

    folder: Path
    counts: Mapping[int, int]
    rows: bool
    undecided: Sequence[Undecided]
    watched: Mapping[str, Arrived]


@dataclass(slots=True)
class _Group:
    """Files of one format and one header."""

    format: str
    header: tuple[str, ...]
    folder: Path
    sorter: CsvLines | JsonLines
    bins: list[list[tuple[Intake, Piece]]] = field(default_factory=list)


def read_lines(
    root: Path,
    source: Files,
    intakes: Sequence[Intake],
    folder: Path,
    pool: ThreadPoolExecutor,
    *,
    zone: str = "UTC",
    watched: Sequence[str] = (),
) -> Reading:
    """Reads files of lines, which Parquet files are not; times without a zone are in the given one."""
    groups = _groups(root, source, [taken for taken in intakes if taken.file.size], folder, zone)
    for place in (folder / "rows", folder / "problems", *(group.folder for group in groups)):
        place.mkdir(parents=True, exist_ok=True)
    work = [
        pool.submit(_Bin(source, folder, group, number, content, watched).read)
        for group in groups
        for number, content in enumerate(group.bins)
    ]
    counts = dict.fromkeys((taken.arrival for taken in intakes), 0)
    values: dict[str, list[NDArray[np.int64]]] = {column: [] for column in watched}
    try:
        for done in work:
            found = done.result()
            for arrival, rows in found.counts.items():
                counts[arrival] += rows
            for column in watched:
                values[column] += found.watched.pop(column)
    finally:
        for other in work:
            other.cancel()
    return Reading(
        folder=folder,
        counts=counts,
        rows=any((folder / "rows").iterdir()),
        undecided=[
            Undecided(format=group.format, header=group.header, folder=group.folder)
            for group in groups
            if any(group.folder.iterdir())
        ],
        watched={column: Arrived.of(found) for column, found in values.items() if found},
    )


def fetch_raw(root: Path, intakes: Iterable[Intake], wanted: Iterable[Origin]) -> dict[Origin, bytes]:
    """The bytes of lines, wanted by file and line; of files that are not given there are none."""
    paths = {taken.arrival: root / taken.file.path for taken in intakes}
    numbers: dict[int, set[int]] = {}
    for arrival, row in wanted:
        if arrival in paths and row is not None:
            numbers.setdefault(arrival, set()).add(row)
    found: dict[Origin, bytes] = {}
    for arrival, rows in numbers.items():
        ordered = sorted(rows)
        try:
            lines = fetch_lines(paths[arrival], np.array(ordered, np.int64))
        except (OSError, EOFError) as error:
            raise unreadable(paths[arrival], error) from error
        found.update(zip(((arrival, row) for row in ordered), lines, strict=True))
    return found


def _groups(root: Path, source: Files, intakes: Sequence[Intake], folder: Path, zone: str) -> list[_Group]:
    groups: dict[tuple[str, tuple[str, ...], str], _Group] = {}
    filled: dict[int, int] = {}
    for taken in intakes:
        key = (taken.format, taken.header, taken.header_line)
        if key not in groups:
            csv = CsvLines(source, taken.header, taken.header_line.encode(), zone)
            place = folder / "undecided" / str(len(groups))
            groups[key] = _Group(taken.format, taken.header, place, csv if taken.format == "csv" else JsonLines())
        bins = groups[key].bins
        for piece in pieces(root / taken.file.path, taken.file.size, _BIN_BYTES):
            size = min(_BIN_BYTES, taken.file.size)
            if not bins or filled[id(bins[-1])] + size > _BIN_BYTES:
                bins.append([])
                filled[id(bins[-1])] = 0
            bins[-1].append((taken, piece))
            filled[id(bins[-1])] += size
    return list(groups.values())


class _Bin:
    """What one worker reads, and the files that it writes."""

    def __init__(
        self,
        source: Files,
        folder: Path,
        group: _Group,
        number: int,
        content: list[tuple[Intake, Piece]],
        watched: Sequence[str],
    ) -> None:
        self.source = source
        self.counts: dict[int, int] = {}
        self.watched: dict[str, list[NDArray[np.int64]]] = {column: [] for column in watched}
        self.sorter = group.sorter
        self.content = content
        name = f"{group.folder.name}-{number}.parquet"
        self.rows = _Sheet(folder / "rows" / name)
        self.problems = _Sheet(folder / "problems" / name)
        self.undecided = _Sheet(group.folder / name)

    def read(self) -> _Bin:
        """Reads all of it."""
        counts = self.counts
        for taken, piece in self.content:
            try:
                for block in read_blocks(piece):
                    counts[taken.arrival] = counts.get(taken.arrival, 0) + self._take(taken, block)
            except (OSError, EOFError) as error:
                raise unreadable(piece.path, error) from error
        for sheet in (self.rows, self.problems, self.undecided):
            sheet.close()
        return self

    def _take(self, taken: Intake, block: Block | LongLine) -> int:
        if isinstance(block, LongLine):
            problem = long_problem(block.length, block.sha256)
            self.problems.add(self._lines(taken, np.array([block.number]), [block.head], [problem]))
            return 1
        found = self.sorter.sort(block)
        self._add(taken, block, found)
        return found.rows

    def _add(self, taken: Intake, block: Block, found: Sorted) -> None:
        if len(found.kept):
            values = dict(zip((column.name for column in self.source.schema), found.values, strict=True))
            self.rows.add({**values, **self._origin(taken, found.kept + block.first)})
            for column, seen in self.watched.items():
                seen.append(values[column].drop_null().cast(pa.int64()).to_numpy())
        if found.malformed:
            at = sorted(found.malformed)
            raw = [block.text(one)[:LINE_LIMIT] for one in at]
            self.problems.add(self._lines(taken, np.array(at) + block.first, raw, [found.malformed[one] for one in at]))
        if len(found.undecided):
            raw = [block.text(one) for one in found.undecided]
            if found.undecided[0] + block.first == 1:
                raw[0] = raw[0].removeprefix(_BOM)
            origin = self._origin(taken, found.undecided + block.first)
            self.undecided.add({"value": pa.array(raw, pa.binary()), **origin})

    def _lines(
        self, taken: Intake, rows: NDArray[np.intp], raw: list[bytes], problems: list[str]
    ) -> dict[str, pa.Array]:
        told = {RAW: pa.array(raw, pa.binary()), PROBLEM: pa.array(problems, pa.string())}
        return {**self._origin(taken, rows), **told}

    def _origin(self, taken: Intake, rows: NDArray[np.intp]) -> dict[str, pa.Array]:
        parts = dict(taken.file.parts)
        constant = {
            **{part: pa.scalar(parts[part], pa.string()) for part in self.source.parts},
            "source_file": pa.scalar(taken.file.path, pa.string()),
            "ingested_at": pa.scalar(taken.taken_ms * 1000, pa.timestamp("us", "UTC")),
            ARRIVAL: pa.scalar(taken.arrival, pa.int64()),
        }
        repeated = {name: pa.repeat(value, len(rows)) for name, value in constant.items()}
        return {**repeated, ROW: pa.array(rows, pa.int64())}


class _Sheet:
    """A Parquet file that is made when the first rows come."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tables: list[pa.Table] = []
        self._count = 0
        self._writer: pq.ParquetWriter | None = None

    def add(self, columns: Mapping[str, pa.Array]) -> None:
        table = pa.table(dict(columns))
        self._tables.append(table)
        self._count += table.num_rows
        if self._count >= _ROW_GROUP:
            self._flush()

    def close(self) -> None:
        if self._tables:
            self._flush()
        if self._writer is not None:
            self._writer.close()

    def _flush(self) -> None:
        table = pa.concat_tables(self._tables)
        if self._writer is None:
            # Dictionaries only pay for what is the same in all rows of a file: this one lives for a minute.
            self._writer = pq.ParquetWriter(
                self._path, table.schema, compression="lz4", use_dictionary=_REPEATED, write_statistics=False
            )
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._tables, self._count = [], 0


_REPEATED = ["source_file", "ingested_at", ARRIVAL]
