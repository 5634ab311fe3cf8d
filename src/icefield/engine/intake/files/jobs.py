"""Reads one job: every line or row becomes values, a problem, or a text that is left to Spark's parser."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from icefield.engine.intake.files.classify import BOM, CsvLines, JsonLines, long_problem
from icefield.engine.intake.files.landing import unreadable
from icefield.engine.intake.files.parquet import ParquetPart, read_part
from icefield.engine.intake.files.splits import LINE_LIMIT, LongLine, SplitReader
from icefield.engine.intake.files.whole import read_whole
from icefield.engine.intake.sheets import Sheet
from icefield.engine.origin import ARRIVAL, LINE, PROBLEM, RAW, ROW

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from icefield.declare import Files
    from icefield.engine.intake.files.classify import Classified
    from icefield.engine.intake.files.heads import FileHead
    from icefield.engine.intake.files.splits import Block, Split


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
        """Reads the splits; `attempt` tells the files from those of another attempt."""
        return _Worker(self, attempt).read()


@dataclass(slots=True)
class Done:
    """The result of a job: arrival, start, rows, lines and digest of each split, the values of watched columns, and the
    files that it wrote, by kind.
    """

    splits: list[tuple[int, int, int, int, str]] = field(default_factory=list)
    watched: dict[str, list[NDArray[np.int64]]] = field(default_factory=dict)
    files: list[tuple[str, str]] = field(default_factory=list)


class _Worker:
    """Reads one job into the sheets that it writes."""

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
        """Reads the whole job."""
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
