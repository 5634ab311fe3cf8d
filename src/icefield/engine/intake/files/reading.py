"""Reads splits of files into a run's scratch folder: a job is a pure function, run by threads or by Spark's tasks.

Every line ends in one of three kinds of Parquet files: `rows` (values), `problems` (lines that are malformed, with
their bytes) and `undecided` (lines whose text is left to `parse`). All of them tell where a row came from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from icefield.engine.folders import Folder
from icefield.engine.intake.files.classify import BOM, CsvLines, JsonLines, long_problem
from icefield.engine.intake.files.digests import joined_digest
from icefield.engine.intake.files.landing import unreadable
from icefield.engine.intake.files.parquet import ParquetPart, parts_of, read_part
from icefield.engine.intake.files.splits import LINE_LIMIT, LongLine, Split, SplitReader, splits
from icefield.engine.intake.files.whole import read_whole
from icefield.engine.origin import ARRIVAL, LINE, PROBLEM, RAW, ROW
from icefield.lake.int_sets import Arrived

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from icefield.declare import Files
    from icefield.engine.intake.files.classify import Classified
    from icefield.engine.intake.files.heads import FileHead
    from icefield.engine.intake.files.splits import Block

_ROW_GROUP = 250_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """Lines left to `parse`, of files with one format and one header."""

    format: str
    header: tuple[str, ...]
    sheets: Sheets


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRead:
    """What reading a file told of it: its rows, its digest, and how many lines come before each of its splits."""

    rows: int
    digest: str
    lines_before: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is in the scratch folder; `files` has what is known of each file, by its arrival.

    `watched` tells of the values of columns that were watched which of them more than one line has, and where they lie.
    """

    folder: Path
    files: Mapping[int, FileRead]
    rows: Sheets
    problems: Sheets
    undecided: Sequence[Undecided]
    watched: Mapping[str, Arrived]
    split_bytes: int

    @property
    def count(self) -> int:
        """How many rows were read, malformed ones included."""
        return sum(file.rows for file in self.files.values())


@dataclass(frozen=True, slots=True)
class Sheets(Folder):
    """Files that jobs have written: those of the jobs that count, not of tries that failed."""

    names: tuple[str, ...]

    @property
    def paths(self) -> list[str]:
        """Where they are."""
        return [str(self.place / name) for name in self.names]

    def _files(self) -> list[Path]:
        return [self.place / name for name in self.names]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Some splits of files with one format and one header, read by one worker into files of one name."""

    source: Files
    root: str
    folder: str
    format: str
    header: tuple[str, ...]
    header_line: str
    zone: str
    name: str
    group: int
    content: tuple[tuple[FileHead, Split | ParquetPart], ...]
    watched: tuple[str, ...] = ()

    def do(self, attempt: str = "") -> Done:
        """Reads what it is about; `attempt` tells its files from those of another try."""
        return _Worker(self, attempt).read()


@dataclass(slots=True)
class Done:
    """What a job tells: for each split its rows, its lines and its digest, the values of watched columns, and the files
    that it wrote, by kind.
    """

    splits: list[tuple[int, int, int, int, str]] = field(default_factory=list)
    watched: dict[str, list[NDArray[np.int64]]] = field(default_factory=dict)
    files: list[tuple[str, str]] = field(default_factory=list)


class Scheduler(Protocol):
    """Has jobs done, in whatever order, and gives what they tell."""

    def run(self, jobs: Sequence[Job]) -> Iterable[Done]:
        """Does all jobs; the first failure stops the others."""


def read_files(
    root: Path,
    source: Files,
    heads: Sequence[FileHead],
    folder: Path,
    scheduler: Scheduler,
    *,
    split_bytes: int,
    zone: str = "UTC",
    watched: Sequence[str] = (),
) -> Reading:
    """Reads files; times without a zone are in the given one."""
    jobs = plan_jobs(root, source, heads, folder, zone, watched, split_bytes)
    groups = {job.group: job for job in jobs}
    for place in ("rows", "problems", *(f"undecided/{group}" for group in groups)):
        (folder / place).mkdir(parents=True, exist_ok=True)
    found: dict[int, list[tuple[int, int, int, str]]] = {head.arrival: [] for head in heads}
    values: dict[str, list[NDArray[np.int64]]] = {column: [] for column in watched}
    written: dict[str, list[str]] = {}
    for done in scheduler.run(jobs):
        for arrival, start, rows, lines, digest in done.splits:
            found[arrival].append((start, rows, lines, digest))
        for column in watched:
            values[column] += done.watched.pop(column)
        for kind, name in done.files:
            written.setdefault(kind, []).append(name)

    def sheets(kind: str) -> Sheets:
        return Sheets(folder / kind, tuple(sorted(written.get(kind, ()))))

    left = {group: sheets(f"undecided/{group}") for group in groups}
    return Reading(
        folder=folder,
        files={arrival: _file_read(parts, split_bytes) for arrival, parts in found.items()},
        rows=sheets("rows"),
        problems=sheets("problems"),
        undecided=[
            Undecided(format=job.format, header=job.header, sheets=left[group])
            for group, job in groups.items()
            if left[group].names
        ],
        watched={column: Arrived.of(parts) for column, parts in values.items() if parts},
        split_bytes=split_bytes,
    )


def _file_read(parts: Sequence[tuple[int, int, int, str]], split_bytes: int) -> FileRead:
    ordered = sorted(parts)
    lines = np.cumsum([0, *(lines for _, _, lines, _ in ordered)])[:-1].tolist()
    digests = [digest for *_, digest in ordered if digest]
    return FileRead(
        rows=sum(rows for _, rows, _, _ in ordered),
        digest=joined_digest(digests, split_bytes) if digests else _NOTHING,
        lines_before=tuple(lines) if any(lines) else (0,),
    )


#: The digest of an empty file.
_NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def plan_jobs(
    root: Path,
    source: Files,
    heads: Sequence[FileHead],
    folder: Path,
    zone: str,
    watched: Sequence[str],
    split_bytes: int,
) -> list[Job]:
    """Files cut into splits, as many splits a job as make a worker's while."""
    groups: dict[tuple[str, tuple[str, ...], str], list[tuple[FileHead, Split | ParquetPart, int]]] = {}
    for head in heads:
        if head.file.size or head.format == "binary":
            key = (head.format, head.header, head.header_line if head.format != "parquet" else "|".join(head.names))
            groups.setdefault(key, []).extend(_parts(root, head, source, split_bytes))
    jobs = []
    for group, ((kind, header, line), parts) in enumerate(groups.items()):
        for number, content in enumerate(_bins(parts, split_bytes)):
            jobs.append(
                Job(
                    source=source,
                    root=str(root),
                    folder=str(folder),
                    format=kind,
                    header=header,
                    header_line=line if kind == "csv" else "",
                    zone=zone,
                    name=f"{group}-{number}",
                    group=group,
                    content=content,
                    watched=tuple(watched),
                )
            )
    return jobs


def _parts(
    root: Path, head: FileHead, source: Files, split_bytes: int
) -> list[tuple[FileHead, Split | ParquetPart, int]]:
    path = str(root / head.file.path)
    if head.format == "parquet":
        return [(head, part, part.bytes) for part in parts_of(path, split_bytes)]
    if head.format == "binary":
        return [(head, Split(path=path), head.file.size)]
    found = splits(path, head.file.size, source.encoding, at_most=split_bytes)
    return [(head, split, min(split_bytes, head.file.size)) for split in found]


def _bins(
    parts: Sequence[tuple[FileHead, Split | ParquetPart, int]], at_most: int
) -> Iterable[tuple[tuple[FileHead, Split | ParquetPart], ...]]:
    """Parts that are read together, one after the other."""
    filled = 0
    content: list[tuple[FileHead, Split | ParquetPart]] = []
    for head, part, size in parts:
        if content and filled + size > at_most:
            yield tuple(content)
            filled, content = 0, []
        content.append((head, part))
        filled += size
    if content:
        yield tuple(content)


class _Worker:
    """One job, and the files that it writes."""

    def __init__(self, job: Job, attempt: str) -> None:
        self.job = job
        self.source = job.source
        self.done = Done(watched={column: [] for column in job.watched})
        self.classifier = (
            CsvLines(job.source, job.header, job.header_line.encode(), job.zone) if job.format == "csv" else JsonLines()
        )
        folder, name = Path(job.folder), f"{job.name}{attempt}.parquet"
        self.rows = Sheet(folder, "rows", name)
        self.problems = Sheet(folder, "problems", name)
        self.undecided = Sheet(folder, f"undecided/{job.group}", name)

    def read(self) -> Done:
        """Reads all of it."""
        for head, part in self.job.content:
            try:
                self._read(head, part)
            except (OSError, EOFError, UnicodeError, pa.ArrowException) as error:
                raise unreadable(part.path, error) from error
        for sheet in (self.rows, self.problems, self.undecided):
            if sheet.close():
                self.done.files.append((sheet.kind, sheet.name))
        return self.done

    def _read(self, head: FileHead, part: Split | ParquetPart) -> None:
        if isinstance(part, ParquetPart):
            self._read_parquet(head, part)
            return
        if self.job.format == "binary":
            columns, digest = read_whole(part.path, head.file)
            self.rows.add({**columns, **self._origin(head, np.zeros(1, np.int64), np.ones(1, np.int64))})
            self.done.splits.append((head.arrival, 0, 1, 1, digest))
            return
        reader, rows = SplitReader(part), 0
        for block in reader.blocks():
            rows += self._take(head, block)
        self.done.splits.append((head.arrival, part.start, rows, reader.lines, reader.digest))

    # -- lines

    def _take(self, head: FileHead, block: Block | LongLine) -> int:
        if isinstance(block, LongLine):
            problem = long_problem(block.length, block.sha256)
            at = np.array([block.offset]), np.array([block.number])
            self.problems.add(self._malformed(head, *at, [block.head], [problem]))
            return 1
        found = self.classifier.classify(block)
        self._add(head, block, found)
        return found.rows

    def _add(self, head: FileHead, block: Block, found: Classified) -> None:
        if len(found.kept):
            values = dict(zip((column.name for column in self.source.schema), found.values, strict=True))
            self._add_rows(head, values, *self._places(block, found.kept))
        if found.malformed:
            at = np.array(sorted(found.malformed))
            raw = [self._as_in_file(block.text(one)[:LINE_LIMIT]) for one in at.tolist()]
            problems = [found.malformed[one] for one in at.tolist()]
            self.problems.add(self._malformed(head, *self._places(block, at), raw, problems))
        if len(found.undecided):
            raw = [block.text(one) for one in found.undecided]
            if block.begins_file and found.undecided[0] == 0:
                raw[0] = raw[0].removeprefix(BOM)
            origin = self._origin(head, *self._places(block, found.undecided))
            self.undecided.add({"value": pa.array(raw, pa.binary()), **origin})

    def _as_in_file(self, line: bytes) -> bytes:
        """A line as the file has it: it was read as UTF-8, whatever its encoding."""
        if self.source.encoding == "utf-8":
            return line
        try:
            return line.decode().encode(self.source.encoding)
        except UnicodeError:
            return line

    def _places(self, block: Block, at: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The offsets of lines in their file, and their numbers in their split."""
        return block.starts[at] + block.offset, at + block.number

    # -- rows of Parquet files

    def _read_parquet(self, head: FileHead, part: ParquetPart) -> None:
        def take(values: dict[str, pa.Array], first: int, problems: dict[int, str], raw: dict[int, bytes]) -> None:
            count = len(next(iter(values.values())))
            places = np.arange(first, first + count, dtype=np.int64)
            if problems:
                at = np.array(sorted(problems))
                told = [problems[one] for one in at.tolist()]
                lines = self._malformed(head, places[at], places[at] + 1, [raw[one] for one in at.tolist()], told)
                self.problems.add(lines)
                good = np.ones(count, bool)
                good[at] = False
                values = {name: column.filter(pa.array(good)) for name, column in values.items()}
                places = places[good]
            if len(places):
                self._add_rows(head, values, places, places + 1)

        digest = read_part(part, self.source, head, self.job.zone, take)
        self.done.splits.append((head.arrival, part.first, part.rows, 0, digest))

    # -- what is written

    def _add_rows(
        self,
        head: FileHead,
        values: Mapping[str, pa.Array],
        rows: NDArray[np.int64],
        lines: NDArray[np.int64],
    ) -> None:
        self.rows.add({**values, **self._origin(head, rows, lines)})
        for column, seen in self.done.watched.items():
            seen.append(values[column].drop_null().cast(pa.int64()).to_numpy())

    def _malformed(
        self,
        head: FileHead,
        rows: NDArray[np.int64],
        lines: NDArray[np.int64],
        raw: list[bytes],
        problems: list[str],
    ) -> dict[str, pa.Array]:
        told = {RAW: pa.array(raw, pa.binary()), PROBLEM: pa.array(problems, pa.string())}
        return {**self._origin(head, rows, lines), **told}

    def _origin(self, head: FileHead, rows: NDArray[np.int64], lines: NDArray[np.int64]) -> dict[str, pa.Array]:
        parts = dict(head.file.parts)
        constant = {
            **{part: pa.scalar(parts[part], pa.string()) for part in self.source.parts},
            "source_file": pa.scalar(head.file.path, pa.string()),
            "ingested_at": pa.scalar(head.taken_ms * 1000, pa.timestamp("us", "UTC")),
            ARRIVAL: pa.scalar(head.arrival, pa.int64()),
        }
        repeated = {name: pa.repeat(value, len(rows)) for name, value in constant.items()}
        return {**repeated, ROW: pa.array(rows, pa.int64()), LINE: pa.array(lines, pa.int64())}


class Sheet:
    """A Parquet file that is made when the first rows come."""

    def __init__(self, folder: Path, kind: str, name: str) -> None:
        self.kind, self.name = kind, name
        self._path = folder / kind / name
        self._tables: list[pa.Table] = []
        self._count = 0
        self._writer: pq.ParquetWriter | None = None

    def add(self, columns: Mapping[str, pa.Array]) -> None:
        table = pa.table(dict(columns))
        self._tables.append(table)
        self._count += table.num_rows
        if self._count >= _ROW_GROUP:
            self._flush()

    def close(self) -> bool:
        """Writes what is left; whether there is a file at all."""
        if self._tables:
            self._flush()
        if self._writer is None:
            return False
        self._writer.close()
        return True

    def _flush(self) -> None:
        table = pa.concat_tables(self._tables)
        if self._writer is None:
            # Dictionaries only pay for what is the same in all rows of a file: this one lives for a minute.
            self._writer = pq.ParquetWriter(
                self._path, table.schema, compression="lz4", use_dictionary=_REPEATED, write_statistics=False
            )
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._tables, self._count = [], 0


_REPEATED = ["source_file", "topic", "partition", "ingested_at", ARRIVAL]
