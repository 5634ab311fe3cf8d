"""Reads files into a run's scratch folder, by jobs that threads or Spark's tasks run.

Every line ends in one of three kinds of Parquet files: `rows` (values), `problems` (lines that are malformed, with
their bytes) and `undecided` (lines whose text is left to `parse`). All of them tell where a row came from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from icefield.engine.intake.files.digests import joined_digest
from icefield.engine.intake.files.jobs import Job
from icefield.engine.intake.files.parquet import ParquetPart, parts_of
from icefield.engine.intake.files.splits import Split, splits
from icefield.engine.intake.sheets import Sheets
from icefield.lake.int_sets import Arrived

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from icefield.declare import Files
    from icefield.engine.intake.files.heads import FileHead
    from icefield.engine.intake.files.jobs import Done


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """Lines left to `parse`, of files with one format and one header."""

    format: str
    header: tuple[str, ...]
    sheets: Sheets


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRead:
    """A file that was read: its rows, its digest, and how many lines precede each of its splits."""

    rows: int
    digest: str
    lines_before: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was read into the scratch folder; `files` are by arrival.

    `watched` has the values of columns that a check wants to be unique: which of them occur more than once, and their
    range.
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


class Scheduler(Protocol):
    """Runs jobs, in any order."""

    def run(self, jobs: Sequence[Job]) -> Iterable[Done]:
        """Yields the results of all jobs; the first failure stops the others."""


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
    """Reads files; timestamps without a time zone are in `zone`."""
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
    """Cuts files into splits and groups these into jobs of about `split_bytes`."""
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
    """Groups parts, in their order, into jobs of at most so many bytes."""
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
