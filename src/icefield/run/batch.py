"""The batch that a run takes in, of sources that are taken in by the values of a part of their path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from icefield.declare import Files
from icefield.errors import LandingMissing

if TYPE_CHECKING:
    from icefield.graph import Node
    from icefield.graph.news import FilesNews, LandedFile
    from icefield.project import Project


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """Which batches a run takes in: one `value`, of the tables that are taken in by batches.

    `whole`: tables that are computed from everything anyway, all of whose files are taken in at once.
    """

    value: str
    whole: frozenset[str] = frozenset()

    def within(self, node: Node, news: FilesNews) -> FilesNews:
        """The news that the run takes in."""
        part = batch_of(node)
        return news if part is None or node.name in self.whole else news.only(part, self.value)


def batch_of(node: Node) -> str | None:
    """The part of the path by which a table is taken in, if it is."""
    return node.source.batch if isinstance(node.source, Files) else None


def landed_batches(project: Project) -> dict[str, tuple[str, ...]]:
    """The batches that have files now, ascending, of each table that is taken in so; the lake is not asked."""
    from icefield.engine.intake.files.landing import list_landed  # noqa: PLC0415 - it reads folders

    found = {}
    for name, node in project.graph.nodes.items():
        if isinstance(node.source, Files) and node.source.batch is not None:
            landed: tuple[LandedFile, ...]
            try:
                landed = list_landed(project.root, node.source)
            except LandingMissing:
                landed = ()
            found[name] = tuple(sorted({dict(file.parts)[node.source.batch] for file in landed}))
    return found
