"""The intake of relations: there is nothing to do before Spark is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icefield.declare import Jdbc
from icefield.engine.intake.relations.connection import Connection, named
from icefield.errors import RowsChanged
from icefield.graph.news import RelationCursor, RelationNews, RelationRead

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icefield.engine.intake.port import Landed, Surroundings
    from icefield.graph import Node
    from icefield.plan import Step


@dataclass(frozen=True, slots=True)
class RelationsIntake:
    """Rows of databases."""

    around: Surroundings
    connections: tuple[Connection, ...]
    profile: str
    #: The reads that a table's rows are from, as the lake remembers them.
    reads: Callable[[str, RelationCursor], Sequence[RelationRead]]

    def receive(self, node: Node, step: Step) -> ReceivedRelation:
        """Finds out what is remembered of earlier reads, where that matters."""
        assert isinstance(node.source, Jdbc)
        assert isinstance(step.news, RelationNews)
        everything = step.action not in ("append", "update", "note")
        matters = everything or step.news.late or step.news.unsure
        reads = self.reads(node.name, step.news.cursor) if step.news.cursor.follows and matters else ()
        if step.news.cursor.follows and matters and not reads:
            raise RowsChanged(
                f"ops.reads no longer lists the reads of {node.name}, so that new rows cannot be told from known ones",
                where=f"{node.name}, {node.location}",
                remedy=f"build it anew: icefield run --full-refresh --accept {node.name} --select {node.name}",
            )
        return ReceivedRelation(
            around=self.around,
            node=node,
            source=node.source,
            news=step.news,
            connection=named(self.connections, node.source.connection, self.profile, node.name),
            reads=tuple(reads),
            everything=everything,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedRelation:
    """What a step reads: all rows, or those that are new."""

    around: Surroundings
    node: Node
    source: Jdbc
    news: RelationNews
    connection: Connection
    reads: tuple[RelationRead, ...]
    everything: bool

    @property
    def known(self) -> RelationCursor:
        """What was taken in before."""
        return self.news.cursor

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(column.name for column in self.source.schema)

    @property
    def where(self) -> str:
        return f"{self.node.name}, {self.node.location}"

    def land(self, spark: SparkSession) -> Landed:
        """Has Spark read the rows."""
        from icefield.engine.intake.relations.landed import land  # noqa: PLC0415 - Spark

        return land(spark, self)

    def noted(self, _run: str) -> list[dict[str, Any]]:
        """Nothing: the cursor says it all."""
        return []
