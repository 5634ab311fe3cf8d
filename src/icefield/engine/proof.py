"""Proves a keyed function's promise from Spark's analysis of it, where its shape is a plain one.

Rows are picked, renamed and united, then grouped by the key, and each measure is an aggregate that merges: nothing has
to be tried then. Whatever has another shape is not refused, but tried on data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from icefield.declare import Accumulate
from icefield.engine.keyed import key_of
from icefield.engine.lineage import analysed, children_of, copied, has_subquery, items, outputs_of, walk
from icefield.engine.merging import merges
from icefield.engine.promises import lookups, union
from icefield.engine.tables import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from icefield.graph import Node

_ROW_BY_ROW = {"Project", "Filter", "SubqueryAlias", "View", "Union", "Generate", "ResolvedHint", "Sort", "Range"}
Source = tuple[str, str]  # a parameter, and a column of what it receives


def is_proven(node: Node, inputs: Mapping[str, DataFrame], output: DataFrame) -> bool:
    """Whether the function surely does what its refresh kind promises.

    By which columns a lookup is joined is not followed: that is tried.
    """
    if any(edge.on for edge in node.edges):
        return False
    proof = _Proof(node, inputs)
    plan = analysed(output)
    if has_subquery(output) or not proof.is_plain(output) or not all(proof.is_key(plan, name) for name in node.keys):
        return False
    return not isinstance(node.refresh, Accumulate) or (proof.groups_once(output) and proof.merges(plan, node.refresh))


@dataclass(slots=True)
class _Proof:
    node: Node
    inputs: Mapping[str, DataFrame]
    columns: dict[int, Source] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for parameter, frame in self.inputs.items():
            for column in outputs_of(analysed(frame)):
                self.columns[column.exprId().id()] = (parameter, column.name())

    def is_plain(self, output: DataFrame) -> bool:
        """Whether every step works on rows alone, or on rows of one key, or joins a lookup to rows."""
        whole = lookups(self.node, self.inputs)
        for step, below in walk(output):
            if step in _ROW_BY_ROW or step == "Aggregate" or union(below) <= whole:
                continue
            if step not in ("Join INNER", "Join LEFT OUTER") or not below[1] <= whole:
                return False
        return True

    def groups_once(self, output: DataFrame) -> bool:
        """Whether rows that arrive are grouped by one step only: a count of groups does not merge."""
        whole = lookups(self.node, self.inputs)
        return sum(step == "Aggregate" and not union(below) <= whole for step, below in walk(output)) == 1

    def is_key(self, plan: Any, name: str) -> bool:
        """Whether a column of the result is the key of the input rows it was made of, for every input."""
        found = [column for column in outputs_of(plan) if column.name() == name]
        if len(found) != 1:
            return False
        sources = self._sources(plan, found[0].exprId().id())
        wanted = {
            (edge.parameter, key_of(self.node, edge, self.inputs[edge.parameter].columns)[name])
            for edge in self.node.edges
            if not edge.lookup
        }
        return sources is not None and {(parameter, quoted(column)) for parameter, column in sources} == wanted

    def merges(self, plan: Any, refresh: Accumulate) -> bool:
        """Whether the last step groups by the key alone, and every measure is an aggregate of its kind."""
        while plan.nodeName() == "SubqueryAlias":
            (plan,) = children_of(plan)
        if plan.nodeName() != "Aggregate" or not self._groups_by_keys(plan, refresh.keys):
            return False
        made = {entry.name(): entry for entry in items(plan.aggregateExpressions())}
        return all(
            made[name].nodeName() == "Alias" and merges(made[name].child(), how)
            for name, how in refresh.measures.items()
        )

    def _sources(self, plan: Any, wanted: int) -> set[Source] | None:
        """The input columns that a column is a copy of; None where it is not just that, or groups by something else."""
        name, below = plan.nodeName(), children_of(plan)
        if name == "Project" and below[0].nodeName() == "Range":  # one of the empty frames that were handed over
            return {self.columns[wanted]} if wanted in self.columns else None
        if name == "Union":
            place = [column.exprId().id() for column in outputs_of(plan)].index(wanted)
            found = [self._sources(child, outputs_of(child)[place].exprId().id()) for child in below]
            return None if None in found else {source for some in found if some for source in some}
        if name == "Aggregate" and not self._groups_by(plan, wanted):
            return None
        if name in ("Project", "Aggregate"):
            entries = plan.projectList() if name == "Project" else plan.aggregateExpressions()
            followed = copied(items(entries), wanted)
            return None if followed is None else self._sources(below[0], followed)
        for child in below:
            if wanted in [column.exprId().id() for column in outputs_of(child)]:
                return self._sources(child, wanted)
        return None

    def _groups_by_keys(self, plan: Any, keys: tuple[str, ...]) -> bool:
        """Whether rows are grouped by the keys and by nothing else, so that each key has one row."""
        shown = {column.name(): column.exprId().id() for column in outputs_of(plan)}
        followed = {copied(items(plan.aggregateExpressions()), shown[key]) for key in keys}
        return len(items(plan.groupingExpressions())) == len(followed) and followed == set(_grouping(plan))

    def _groups_by(self, plan: Any, wanted: int) -> bool:
        return copied(items(plan.aggregateExpressions()), wanted) in _grouping(plan)


def _grouping(plan: Any) -> list[int]:
    """The columns that a step groups by."""
    return [e.exprId().id() for e in items(plan.groupingExpressions()) if e.nodeName() == "AttributeReference"]
