"""Proves from Spark's plan that a function keeps the promise of its refresh kind, or refuses it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from icefield.declare import Accumulate, Append, ByKey, Incremental
from icefield.engine.promises.anchors import KEY, ROW, Refusal
from icefield.engine.promises.broken import promise_broken
from icefield.engine.promises.call import inputs_of
from icefield.engine.promises.grouping import require_one_group
from icefield.engine.promises.lineage import Lineage
from icefield.engine.promises.reproducible import require_no_moments, require_reproducible
from icefield.engine.promises.spark_plans import deep_plans, tree_of
from icefield.engine.promises.values import column

if TYPE_CHECKING:
    from icefield.engine.promises.anchors import Rows
    from icefield.engine.promises.call import Call
    from icefield.engine.promises.plan_tree import Tree

#: Whether the plan proves a promise, or the author vouches for what it cannot show.
Proof = Literal["proven", "trusted"]


def prove(call: Call) -> Proof:
    """Proves that a function keeps the promise of its refresh kind; one that does not, or may not, is refused."""
    refresh = call.node.refresh
    assert isinstance(refresh, Incremental)
    with deep_plans():
        plan = tree_of(call.output)
        proof: Proof = "proven"
        try:
            _require_promise(call, plan)
        except Refusal as refusal:
            if refusal.known or not refresh.trusted:
                raise promise_broken(call, refusal) from None
            proof = "trusted"
        require_reproducible(call.node, plan)
        require_no_moments(call)
    return proof


def _require_promise(call: Call, plan: Tree) -> None:
    match call.node.refresh:
        case ByKey():
            _require_keys_apart(call, plan)
        case Accumulate():
            require_one_group(call, plan)
        case Append():
            _require_rows_alone(call, plan)


# -- by_key: the rows of a key depend on that key's rows alone


def _require_keys_apart(call: Call, plan: Tree) -> None:
    rows = Lineage(inputs_of(call, (KEY,))).rows(plan)
    if not rows.main:
        raise Refusal(plan, "does not use any of its keyed inputs")
    for key in call.node.keys:
        _require_key(plan, rows, key)


def _require_key(plan: Tree, rows: Rows, key: str) -> None:
    own = [number for number, name in rows.columns if name.lower() == key.lower()]
    if not own or column(own[0]) not in rows.anchors[KEY][key]:
        raise Refusal(plan, f"returns a column `{key}` that is not the key of the input rows")


# -- append: each row stands alone


def _require_rows_alone(call: Call, plan: Tree) -> None:
    if not Lineage(inputs_of(call, (ROW,))).rows(plan).main:
        raise Refusal(plan, "does not use the rows that arrive", ROW)
