"""An incremental table has the same rows however often it is computed: no clock, no random value, no order of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icefield.declare import Query
from icefield.engine.promises.exactness import inexact_in, moment_in
from icefield.errors import NotExact

if TYPE_CHECKING:
    from icefield.engine.promises.call import Call
    from icefield.engine.promises.plan_tree import Tree
    from icefield.graph import Node


def require_reproducible(node: Node, plan: Tree) -> None:
    """Refuses functions whose result depends on the run or on the order of rows."""
    found = inexact_in(plan, node.volatile)
    if found is None:
        return
    if found.kind == "changing":
        raise NotExact(
            f"{node.name} calls {found.told}, which returns a different value in each run, so the table could not be"
            " reproduced or verified",
            where=str(node.location),
            remedy=f"{_instead(found.told)}, or, if it only ends in columns that may differ between runs, declare them:"
            ' volatile=["..."]',
        )
    raise NotExact(
        f"{node.name} calls {found.told}, whose result depends on the order of rows, which Spark does not guarantee",
        where=str(node.location),
        remedy="choose the row by a unique order within each key: max(struct(order, value)) for the last value,"
        " min(struct(order, value)) for the first, row_number() over an ordered window for whole rows,"
        " sort_array(collect_list(...)) for lists",
    )


def require_no_moments(call: Call) -> None:
    """Refuses literals such as `TIMESTAMP 'now'`: a plan holds only what they were when it was made."""
    moment = moment_in(call.function.text) if isinstance(call.function, Query) else None
    if moment is not None and not call.node.volatile:
        raise NotExact(
            f"{call.node.name} contains the literal {moment}, which means a different moment in each run, so the table"
            " could not be reproduced or verified",
            where=str(call.node.location),
            remedy="compare with the column ingested_at, which sources provide, or pass the day in as an input",
        )


def _instead(changing: str) -> str:
    if changing in ("uuid()", "monotonically_increasing_id()"):
        return "derive the id from the row's values, sha2(concat_ws(...), 256)"
    if changing.startswith("the nondeterministic"):
        return "make it deterministic"
    return "use the column ingested_at, which sources provide"
