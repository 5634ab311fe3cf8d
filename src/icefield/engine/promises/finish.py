"""`finish` of `accumulate`: a row of measures becomes a row of the table, each for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icefield.declare import Accumulate
from icefield.engine.promises.anchors import KEY, Input, Refusal, placed
from icefield.engine.promises.call import is_input
from icefield.engine.promises.lineage import Lineage
from icefield.engine.promises.reproducible import require_reproducible
from icefield.engine.promises.spark_plans import deep_plans, tree_of
from icefield.engine.promises.values import column
from icefield.errors import PromiseBroken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from icefield.engine.promises.plan_tree import Tree
    from icefield.engine.promises.rules import Proof
    from icefield.graph import Node


def prove_finish(node: Node, rows: DataFrame, output: DataFrame) -> tuple[Proof, bool]:
    """Proves that `finish` handles each row for itself; the flag: its result still has all measures."""
    assert isinstance(node.refresh, Accumulate)
    with deep_plans():
        plan = tree_of(output)
        require_reproducible(node, plan)
        steps = list(_chain(plan))
        if other := [step for step in steps if step not in ("Project", "Filter", "SubqueryAlias", "View")]:
            raise _not_row_by_row(node, f"does not process each row independently ({other[0]})")
        columns = tuple(rows.columns)
        given = Input("measures", columns, {KEY: {name: placed(n) for n, name in enumerate(columns)}})
        try:
            found = Lineage([given]).rows(plan)
        except Refusal as refusal:
            if refusal.known or not node.refresh.trusted:
                raise _not_row_by_row(node, refusal.what) from None
            return "trusted", False
    own = {name: column(number) for number, name in found.columns}
    same = {name for name, forms in found.anchors[KEY].items() if own.get(name) in forms}
    if changed := [key for key in node.keys if key not in same]:
        raise PromiseBroken(
            f"finish= of {node.name} must return the key {changed[0]} unchanged: it identifies the rows to replace",
            where=str(node.location),
            remedy=f"transform {changed[0]} in the function, before groupBy, and pass it through in finish=",
        )
    return "proven", same == set(columns) and "Filter" not in steps


def _chain(plan: Tree) -> Iterator[str]:
    """The steps from the result down to the frame that `finish` received."""
    while not is_input(plan):
        yield plan.name
        if len(plan.children) != 1:
            return
        plan = plan.children[0]


def _not_row_by_row(node: Node, what: str) -> PromiseBroken:
    return PromiseBroken(
        f"finish= of {node.name} {what}, but it receives only the rows of changed keys",
        where=str(node.location),
        remedy="only compute, rename or drop columns, or filter rows there; do everything else in the function or in a"
        " downstream table",
    )
