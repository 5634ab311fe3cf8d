"""The error for a function that breaks the promise of its refresh kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icefield.declare import Query
from icefield.engine.promises.anchors import KEY, ROW
from icefield.engine.promises.spark_plans import line_in_query, tree_of
from icefield.errors import PromiseBroken

if TYPE_CHECKING:
    from icefield.engine.promises.anchors import Refusal
    from icefield.engine.promises.call import Call
    from icefield.engine.promises.plan_tree import Tree
    from icefield.graph import Node


def promise_broken(call: Call, refusal: Refusal) -> PromiseBroken:
    """The error for a refused step: what it does, in which line, why that breaks the promise, and the ways out."""
    node = call.node
    if refusal.anchor not in (KEY, ROW):
        return _misused(call, refusal)
    if not refusal.known:
        return PromiseBroken(
            f"{node.name} is declared {_declared(node)}, but its function {refusal.what}: Spark's plan does not prove"
            f" that {_PROMISED[node.refresh.kind]}",
            where=_where(call, refusal),
            remedy=f"rewrite this step with built-in DataFrame functions, declare the table full(), or, if you are sure"
            f" that it holds, declare {node.refresh.kind}(..., trusted=True)",
        )
    return PromiseBroken(
        f"{node.name} is declared {_declared(node)}, but its function {refusal.what}:"
        f" {_CONSEQUENCE[node.refresh.kind]}",
        where=_where(call, refusal),
        remedy=_remedy(node),
    )


def _declared(node: Node) -> str:
    """The refresh kind and its keys as the author wrote them."""
    return f"{node.refresh.kind}({', '.join(map(repr, node.keys))})"


_PROMISED = {
    "append": "each row is processed independently",
    "by_key": "the rows of a key depend only on input rows of that key",
    "accumulate": "its measures can be merged",
}
_CONSEQUENCE = {
    "append": "each row must be processed independently, because from the second run on the function receives only"
    " new rows",
    "by_key": "the rows of a key must depend only on input rows of that key, because from the second run on the"
    " function receives only the rows of changed keys",
    "accumulate": "the result for all rows cannot be computed by merging the stored result with that of the new rows",
}


def _remedy(node: Node) -> str:
    keys = ", ".join(map(repr, node.keys))
    if node.refresh.kind == "append":
        return "declare it by_key(...), accumulate(...) or full(); pass an input that is needed in full as lookup(...)"
    if node.refresh.kind == "accumulate":
        return (
            f"group once, by {', '.join(node.keys)} (after any union); use sum, count, min and max as measures and"
            f" compute everything else from them in finish=; or declare the table by_key({keys})"
        )
    first = next((edge for edge in node.edges[1:] if not edge.lookup), node.edges[0])
    return (
        f"group, partition and join by {', '.join(node.keys)}; compute what needs rows of other keys in a separate"
        f' table and pass it as lookup(...); if an input has the key under a different name, write ref("{first.table}",'
        f' {node.keys[0]}="..."); or declare the table full()'
    )


def _misused(call: Call, refusal: Refusal) -> PromiseBroken:
    """The error for a lookup that is not joined on its `on` columns."""
    parameter = refusal.anchor.rpartition(" ")[0]
    edge = next(edge for edge in call.node.edges if edge.parameter == parameter)
    columns = ", ".join(edge.on)
    return PromiseBroken(
        f'{call.node.name} declares lookup("{edge.table}", on={list(edge.on)}), but its function {refusal.what}',
        where=_where(call, refusal),
        remedy=f"join {edge.table} on {columns}, set `on` to the columns that it is joined on, or omit `on`: then any"
        " change to the lookup rebuilds the table",
    )


def _where(call: Call, refusal: Refusal) -> str:
    """The author's line that made the step, or else that of the declaration."""
    node = call.node
    if isinstance(call.function, Query):
        number, start = line_in_query(call.output, refusal.step), call.function.location
        return f"{start.file}:{start.line + number - 1}" if number else str(node.location)
    wanted = _signature(refusal.step)
    made = (line for line, frame in call.lines if any(_signature(s) == wanted for s in tree_of(frame).walk()))
    return next(made, str(node.location))


def _signature(step: Tree) -> tuple[object, ...]:
    """Identifies a step apart from the ids of its columns."""
    named = [(e.name, e.fields.get("name"), e.fields.get("value")) for e in step.expressions()]
    return (step.name, *named)
