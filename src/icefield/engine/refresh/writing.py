"""Writes what a step computed: good rows, rejected rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from icefield.engine.batch import InMemory
from icefield.engine.checks.rejects import to_quarantine
from icefield.engine.checks.split import failing_counts, with_flags
from icefield.engine.clock import spent
from icefield.engine.origin import visible
from icefield.graph import changes_of, quarantine_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from icefield.engine.batch import Batch
    from icefield.engine.checks.split import Split
    from icefield.engine.refresh.stage import Stage
    from icefield.graph import Node
    from icefield.plan import Step


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes to the tables of a run."""

    stage: Stage

    def write(self, node: Node, step: Step, split: Split) -> None:
        rows, stored = visible(split.good), split.stored
        self.stage.tables.definitions.ready(node.name, rows.schema, node, node.comment, remake=self.stage.remake)
        if stored is None and (flagged := with_flags(node, rows, appended=True)) is not None:
            split.failing = failing_counts(node, flagged.table)
            names = rows.columns
            schema = StructType([flagged.schema[name] for name in names])
            stored = InMemory(flagged.spark, schema, flagged.table.select(names))
        self.put(node.name, step, rows, stored)

    def write_quarantine(self, node: Node, step: Step, split: Split) -> tuple[str, ...]:
        name = quarantine_of(node.name)
        replaced = step.action != "append" and name in self.stage.tables.branch.base
        if not (split.quarantined or replaced):
            return ()
        comment = f"Rows that {node.name} rejected, with their reasons."
        if split.bad is None or not split.quarantined:  # nothing waits any more
            return self.emptied(name)
        waiting = to_quarantine(
            split.bad, self.stage.run, self.stage.started_ms, self.stage.scratch(node) / "to-quarantine"
        )
        self.stage.tables.definitions.ready(
            name, waiting.frame.schema, None, comment, remake=self.stage.remake, renamed=node.renamed
        )
        self.put(name, step, waiting.frame, waiting)
        return (name,)

    def forget_changes(self, node: Node) -> tuple[str, ...]:
        """What a table of that name told before it was dropped is nobody's any more: its numbers come again."""
        name = changes_of(node.name)
        return self.emptied(name) if name in self.stage.tables.branch.base else ()

    def emptied(self, table: str) -> tuple[str, ...]:
        self.stage.tables.branch.prepare(table)
        self.stage.tables.overwrite(table, self.stage.tables.staged(table).limit(0))
        return (table,)

    def put(self, table: str, step: Step, rows: DataFrame, stored: Batch | None) -> None:
        """Rows in place of those that are there, or besides them."""
        with spent("write"):
            self.written(table, step, rows, stored)

    def written(self, table: str, step: Step, rows: DataFrame, stored: Batch | None) -> None:
        if step.action != "append" and table in self.stage.tables.branch.base:
            self.stage.tables.overwrite_stored(table, stored) if stored is not None else self.stage.tables.overwrite(
                table, rows
            )
        elif stored is not None:
            self.stage.tables.append_stored(table, stored)
        else:
            self.stage.tables.append(table, rows)
