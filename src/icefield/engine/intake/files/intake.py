"""The intake of files: which ones a step reads, by threads of the driver or by Spark's tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icefield.declare import Files, Unique
from icefield.engine.intake.files.heads import read_head
from icefield.engine.intake.files.landing import require_unchanged
from icefield.engine.intake.files.log import noted_files
from icefield.engine.intake.files.reading import read_files
from icefield.engine.intake.files.schedulers import Threads
from icefield.graph.news import FilesNews

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from icefield.engine.intake.files.heads import FileHead
    from icefield.engine.intake.files.reading import Reading, Scheduler
    from icefield.engine.intake.port import Landed, Surroundings
    from icefield.graph import Node
    from icefield.graph.news import LandedFile
    from icefield.plan import Step


@dataclass(frozen=True, slots=True)
class FilesIntake:
    """Files of a landing folder."""

    around: Surroundings

    def receive(self, node: Node, step: Step) -> ReceivedFiles:
        """Looks into the heads of the files that a step reads, and reads them if they are few."""
        source, news = node.source, step.news
        assert isinstance(source, Files)
        assert isinstance(news, FilesNews)
        received = ReceivedFiles(around=self.around, node=node, step=step, heads=self._heads(source, node, step, news))
        few = sum(head.file.size for head in received.heads) <= self.around.driver_bytes
        if (few or not received.seen_by_workers) and step.action != "note":
            received.reading = received.read(Threads(self.around.pool), _watched(node, source))
        return received

    def _heads(self, source: Files, node: Node, step: Step, news: FilesNews) -> list[FileHead]:
        """The files that a step reads; a rebuild keeps the places they had."""
        before = {file.path: file for file in news.taken}
        following = news.next_order
        found = []
        for file in _wanted(node, step, news):
            known = before.get(file.path)
            order, taken_ms = (known.order, known.taken_ms) if known else (following, self.around.started_ms)
            following += known is None
            found.append(read_head(self.around.root, file, source, arrival=order, taken_ms=taken_ms))
        return sorted(found, key=lambda head: head.arrival)


def _wanted(node: Node, step: Step, news: FilesNews) -> tuple[LandedFile, ...]:
    if step.action == "note":
        return ()
    if step.action == "append":
        return news.new
    if step.action != "update":
        return news.landed
    if not node.keys:  # rows of corrected files leave, those of gone ones as well
        return (*news.new, *news.changed)
    touched = news.of_keys(node.keys)
    late = {file.path for file in news.later}
    return tuple(
        file
        for file in news.landed
        if tuple(dict(file.parts)[key] for key in node.keys) in touched and file.path not in late
    )


def _watched(node: Node, source: Files) -> list[str]:
    """Columns of whole numbers that a check wants to be unique."""
    whole = {column.name for column in source.schema if column.type in ("INT", "BIGINT")}
    keys = [check.columns for check in node.table_checks if isinstance(check, Unique)]
    return sorted({columns[0] for columns in keys if len(columns) == 1 and columns[0] in whole})


@dataclass(slots=True, kw_only=True)
class ReceivedFiles:
    """Files that a step takes in, and what was read from them, if it was read already."""

    around: Surroundings
    node: Node
    step: Step
    heads: list[FileHead]
    reading: Reading | None = None

    @property
    def source(self) -> Files:
        assert isinstance(self.node.source, Files)
        return self.node.source

    @property
    def news(self) -> FilesNews:
        assert isinstance(self.step.news, FilesNews)
        return self.step.news

    @property
    def seen_by_workers(self) -> bool:
        """Whether Spark's tasks can read the files."""
        places = {(self.around.root / head.file.path).parent for head in self.heads}
        return all(self.around.workers_see(place) for place in places)

    def read(self, scheduler: Scheduler, watched: Sequence[str] = ()) -> Reading:
        """Reads all of them."""
        folder = self.around.scratch / self.node.name / "landed"
        return read_files(
            self.around.root,
            self.source,
            self.heads,
            folder,
            scheduler,
            split_bytes=self.around.split_bytes,
            zone=self.around.zone,
            watched=watched,
        )

    def land(self, spark: SparkSession) -> Landed:
        """Has Spark read what is much, and decide what was left to it."""
        from icefield.engine.intake.files.landed import land  # noqa: PLC0415 - Spark

        return land(spark, self)

    def noted(self, run: str) -> list[dict[str, Any]]:
        """What `ops.files` is to remember of files that were only touched."""
        found = noted_files(run, self.step, self.news)
        require_unchanged(self.around.root, self.news.touched)  # what was read again is what was found equal
        return found
