"""Proves a table right: its function over its inputs at the versions it says it consumed, compared as multisets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from icefield.engine.batch import evaluate
from icefield.engine.checks.split import kept
from icefield.engine.origin import visible
from icefield.engine.promises.trial import comparable
from icefield.engine.refresh.difference import CHANGE, REMOVED, difference
from icefield.engine.verdict import Verdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from icefield.engine.refresh.stage import Stage
    from icefield.graph import Node
    from icefield.graph.state import TableState

#: How many differing rows are shown.
SHOWN = 10


def recomputed(stage: Stage, node: Node, state: TableState) -> DataFrame:
    """The rows that the function gives for what the table has consumed."""
    frames = {}
    for edge in node.edges:
        assert edge.table is not None
        frames[edge.parameter] = stage.tables.read(edge.table, state.inputs[edge.table].snapshot)
    output = stage.functions[node.name](**frames)
    finish = stage.finishes.get(node.name)
    return kept(node, visible(finish(output) if finish else output))


def compared(stage: Stage, node: Node, state: TableState, right: DataFrame) -> Verdict:
    """Compares a published table with the rows that it should have; volatile columns are left out."""
    held = stage.tables.seen(node.name)
    if other := sorted(set(held.columns) ^ set(right.columns)):
        return Verdict(
            table=node.name, status="differs", rows=state.rows, detail=f"its columns changed: {', '.join(other)}"
        )
    columns = [column for column in held.columns if column not in node.volatile]
    apart = difference(comparable(held.select(*columns)), comparable(right.select(*columns)))
    found = evaluate(apart, stage.scratch(node) / "verify").frame
    counts = found.agg(F.count_if(F.col(CHANGE) == REMOVED), F.count("*")).first()
    assert counts is not None
    too_many, all_of_them = counts
    if not all_of_them:
        return Verdict(table=node.name, status="exact", rows=state.rows)
    examples = []
    for row in found.limit(SHOWN).collect():
        told = row.asDict()
        examples.append(("too many" if told.pop(CHANGE) == REMOVED else "missing", told))
    return Verdict(
        table=node.name,
        status="differs",
        rows=state.rows,
        too_many=too_many,
        missing=all_of_them - too_many,
        examples=tuple(examples),
    )
