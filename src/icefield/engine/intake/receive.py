"""What a step takes in: its files, each with its place in the order of arrival, read while Spark still starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from icefield.declare import Files, Unique
from icefield.engine.intake.landing import take
from icefield.engine.intake.reading import read_lines

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path

    from icefield.engine.intake.landing import Intake
    from icefield.engine.intake.reading import Reading
    from icefield.graph import Node
    from icefield.graph.state import Arrivals, LandedFile
    from icefield.plan import Step


#: Of more than this no values are kept while reading: a line is one of 8 bytes.
_WATCHED_BYTES = 2 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """Files and what was read from them; a step that only notes files reads nothing."""

    intakes: list[Intake]
    reading: Reading | None = None

    def of_lines(self) -> list[Intake]:
        """The files that are lines of text."""
        return [taken for taken in self.intakes if taken.format != "parquet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """Reads files for the steps of one run."""

    root: Path
    started_ms: int
    zone: str
    scratch: Path
    pool: ThreadPoolExecutor

    def receive(self, node: Node, step: Step) -> Received | None:
        """Reads the files of a step; None if its table takes in no files."""
        source, arrivals = node.source, step.arrivals
        if not isinstance(source, Files) or arrivals is None:
            return None
        received = Received(intakes=self._intakes(source, step, arrivals))
        if step.action == "note":
            return received
        folder = self.scratch / node.name / "landed"
        lines = received.of_lines()
        few = sum(taken.file.size for taken in lines) <= _WATCHED_BYTES
        watched = _watched(node, source) if few else []
        reading = read_lines(self.root, source, lines, folder, self.pool, zone=self.zone, watched=watched)
        return Received(intakes=received.intakes, reading=reading)

    def _intakes(self, source: Files, step: Step, arrivals: Arrivals) -> list[Intake]:
        """The files that a step reads; a rebuild keeps the places they had."""
        before = {file.path: file for file in arrivals.taken}
        following = arrivals.next_order
        found = []
        for file in _wanted(step, arrivals):
            known = before.get(file.path)
            order, taken_ms = (known.order, known.taken_ms) if known else (following, self.started_ms)
            following += known is None
            found.append(take(self.root, file, source, arrival=order, taken_ms=taken_ms))
        return sorted(found, key=lambda taken: taken.arrival)


def _watched(node: Node, source: Files) -> list[str]:
    """Columns of whole numbers that a check wants to be unique."""
    whole = {column.name for column in source.schema if column.type in ("INT", "BIGINT")}
    keys = [check.columns for check in node.table_checks if isinstance(check, Unique)]
    return sorted({columns[0] for columns in keys if len(columns) == 1 and columns[0] in whole})


def _wanted(step: Step, arrivals: Arrivals) -> tuple[LandedFile, ...]:
    if step.action == "note":
        return arrivals.touched
    return arrivals.new if step.action == "append" else arrivals.landed
