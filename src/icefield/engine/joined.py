"""Whether a `lookup(..., on=...)` is joined as its declaration says, as far as Spark's plan tells.

A change of it is followed to keys whose rows carry a changed value of those columns, and to no others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from icefield.engine.lineage import analysed, children_of, copied, items, join_of, leaves_of, outputs_of, steps_below
from icefield.engine.promises import CHOOSING, keeps_arrivals, lookups
from icefield.errors import PromiseBroken

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from icefield.graph import Edge, Node

#: Steps that see rows together, and what they gather rows by.
_GATHERING = {"Aggregate": "groupingExpressions", "Window": "partitionSpec", "Deduplicate": "keys"}


def require_joined(node: Node, inputs: Mapping[str, DataFrame], output: DataFrame) -> None:
    """Each such lookup meets rows that have the key by these columns alone."""
    plan = analysed(output)
    for edge in node.edges:
        if edge.on and (told := _Lookup(node, edge, inputs, plan).misused()):
            columns = ", ".join(edge.on)
            raise PromiseBroken(
                f"{node.name} is to follow changes of {edge.table} by {columns}, but its function {told}",
                where=str(node.location),
                remedy=f"join {edge.table} on {columns} as it is, name the columns that it is joined on, or leave `on`"
                " out: then a change of it rebuilds the table",
            )


class _Lookup:
    """One lookup in a plan."""

    def __init__(self, node: Node, edge: Edge, inputs: Mapping[str, DataFrame], plan: Any) -> None:
        self.plan = plan
        self.edge = edge
        self.whole = lookups(node, inputs)
        self.own = leaves_of(analysed(inputs[edge.parameter]))
        self.wanted = _columns(inputs[edge.parameter], edge.on)
        keyed = [_columns(inputs[other.parameter], edge.on) for other in node.edges if not other.lookup]
        self.carried = {number: name for carrier in keyed for number, name in carrier.items()}
        self.copies = _copies(plan)

    def misused(self) -> str:
        """How it is used otherwise, "" if it is not."""
        return next((told for step in steps_below(self.plan) if (told := self._misuse(step))), "")

    def _misuse(self, step: Any) -> str:
        name, below = str(step.nodeName()), [leaves_of(child) for child in children_of(step)]
        if len(below) == 1:
            return self._gathering(step, name) if self._is_it(below[0]) else ""
        meets = any(self._is_it(side) for side in below) and not all(side <= self.whole for side in below)
        if not meets:
            return ""
        if name != "Join":
            return f"puts rows of it beside others ({name})"
        if not keeps_arrivals(join_of(step), [side <= self.whole for side in below]):
            return "keeps rows of it that none of the others meet"
        return "" if self._is_equal(step.condition()) else "joins it otherwise"

    def _is_it(self, leaves: frozenset[int]) -> bool:
        """Whether rows are those of lookups alone, this one among them."""
        return leaves <= self.whole and not leaves.isdisjoint(self.own)

    def _gathering(self, step: Any, name: str) -> str:
        if name in CHOOSING:
            return "takes only some rows of it"
        if name not in _GATHERING:
            return ""
        found = {self._traced(entry) for entry in items(getattr(step, _GATHERING[name])())}
        return "" if set(self.wanted) <= found else f"sees rows of it with other values together ({name})"

    def _is_equal(self, condition: Any) -> bool:
        """Whether rows meet only where all of the columns are equal."""
        met = set()
        for part in _parts(condition.get()) if condition.isDefined() else ():
            if str(part.nodeName()) in ("EqualTo", "EqualNullSafe"):
                sides = [self._traced(side) for side in children_of(part)]
                for one, other in (sides, sides[::-1]):
                    name = self.wanted.get(one)
                    if name is not None and self.carried.get(other) == name:
                        met.add(name)
        return met == set(self.edge.on)

    def _traced(self, expression: Any) -> int:
        """The column of an input that an expression is, as it is; -1 if it is anything else."""
        while expression.nodeName() == "Cast":
            expression = expression.child()
        if expression.nodeName() != "AttributeReference":
            return -1
        number = int(expression.exprId().id())
        while number in self.copies:
            number = self.copies[number]
        return number


def _columns(frame: DataFrame, names: Sequence[str]) -> dict[int, str]:
    found = outputs_of(analysed(frame))
    return {int(one.exprId().id()): str(one.name()) for one in found if one.name() in names}


def _copies(plan: Any) -> dict[int, int]:
    """Columns that are another one, as it is, under a name of their own."""
    found = {}
    for step in steps_below(plan):
        entries = {"Project": "projectList", "Aggregate": "aggregateExpressions"}.get(str(step.nodeName()))
        for entry in items(getattr(step, entries)()) if entries else []:
            number = int(entry.exprId().id())
            source = copied([entry], number)
            if source is not None and source != number:
                found[number] = source
    return found


def _parts(condition: Any) -> Iterable[Any]:
    if condition.nodeName() == "And":
        for side in children_of(condition):
            yield from _parts(side)
    else:
        yield condition
