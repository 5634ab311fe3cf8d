"""Follows rows from a function's inputs through Spark's plan, and refuses steps that mix rows of different anchors.

A step that lets rows meet (a group, a window, a join, a subquery) must keep the rows of different anchors apart: the
columns that it groups, partitions or joins by have to determine the anchor. If every step does so, computing the
function over the rows of some keys gives exactly those rows of the whole result.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from icefield.engine.promises.anchors import KEY, MARK, ROW, Carried, Refusal, Rows, first_anchor, place_of
from icefield.engine.promises.joins import Join, equalities, joined
from icefield.engine.promises.plan_tree import Tree, everything
from icefield.engine.promises.steps import GROUPED_MAPS, STEPS, outputs
from icefield.engine.promises.subqueries import correlated, is_among
from icefield.engine.promises.values import column, renamed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from icefield.engine.promises.anchors import Equality, Input

#: Steps that return their rows unchanged.
_SAME = frozenset(
    [
        "SubqueryAlias",
        "View",
        "Sort",
        "Repartition",
        "RepartitionByExpression",
        "RebalancePartitions",
        "ResolvedHint",
        "LocalLimit",
        "EventTimeWatermark",
        "CTERelationDef",
        "PipeOperator",
    ]
)
#: Leaves that are the same in every run and no input.
_CONSTANT = frozenset(["OneRowRelation", "LocalRelation", "Range", "LogicalRDD", "EmptyRelation"])
#: Steps that choose among all rows, as a message says it.
_CHOOSING = {
    "GlobalLimit": "keeps only some of the rows (limit)",
    "Offset": "skips some of the rows (offset)",
    "Tail": "keeps only the last rows (tail)",
    "Sample": "takes a sample of the rows",
}
#: Evaluation types of Python functions that see one row at a time.
_ROW_BY_ROW = (100, 101)


class Lineage:
    """Walks one plan, bottom up."""

    def __init__(self, inputs: Sequence[Input]) -> None:
        self._inputs = inputs
        self._definitions: dict[int, Tree] = {}
        self._numbers = itertools.count()
        #: The outer rows of the subqueries that the walk is in.
        self._outer: list[Rows] = []

    def rows(self, step: Tree) -> Rows:
        """The rows that a step returns; a step that combines rows of different anchors is refused."""
        if (given := self._input(step)) is not None:
            return given
        self.require_plain_expressions(step)
        if step.name in _SAME:
            return self.rows(step.children[0])
        if (walked := _WALKED.get(step.name)) is not None:
            return walked(self, step)
        if not step.children:
            return self._leaf(step)
        below = [self.rows(child) for child in step.children]
        if (handle := STEPS.get(step.name)) is not None:
            return handle(step, below)
        if not any(rows.anchors for rows in below):  # whatever it does, it does to lookups alone
            return Rows(outputs(step, below))
        if step.name in _CHOOSING:
            raise Refusal(step, _CHOOSING[step.name], first_anchor(below))
        raise Refusal(
            step, f"contains a step that icefield cannot analyse ({step.name})", first_anchor(below), known=False
        )

    # -- leaves

    def _input(self, step: Tree) -> Rows | None:
        """The rows of a parameter, if this step is one of the frames that were handed to the function."""
        if step.name != "Project" or step.children[0].name != "Range":
            return None
        number = MARK - int(step.children[0].fields["start"])
        if not 0 <= number < len(self._inputs):
            return None
        given = self._inputs[number]
        ids = {name: entry.id for name, entry in zip(given.columns, step.listed("projectList"), strict=True)}
        numbers = {place_of(n): ids[name] for n, name in enumerate(given.columns)}
        found = {
            self._named(anchor, given): {part: frozenset([renamed(value, numbers)]) for part, value in parts.items()}
            for anchor, parts in given.anchors.items()
        }
        carried = {name: frozenset([column(ids[name])]) for name in given.carries}
        return Rows(tuple((ids[n], n) for n in given.columns), found, (Carried(carried),) if carried else ())

    def _named(self, anchor: str, given: Input) -> str:
        """Each occurrence of a lookup is an anchor of its own: two of its rows may match one row of an input."""
        return anchor if anchor in (KEY, ROW) else f"{given.name} {next(self._numbers)}"

    def _leaf(self, step: Tree) -> Rows:
        if step.name == "CTERelationRef":
            return self._referenced(step)
        if step.name not in _CONSTANT:
            raise Refusal(step, f"reads data that is not one of its inputs ({step.name})")
        return Rows(outputs(step, []))

    def _with_definitions(self, step: Tree) -> Rows:
        return self.rows(self.defined(step))

    def defined(self, step: Tree) -> Tree:
        """The main query of a WITH; its common table expressions are remembered."""
        for child in step.children:
            if child.name == "CTERelationDef":
                self._definitions[int(child.fields["id"])] = child
        return next(child for child in step.children if child.name != "CTERelationDef")

    def definition(self, step: Tree) -> Tree:
        """The common table expression that a reference names."""
        found = self._definitions.get(int(step.fields["cteId"]))
        if found is None:
            raise Refusal(step, "uses a recursive query", known=False)
        return found

    def _referenced(self, step: Tree) -> Rows:
        found, entries = self.rows(self.definition(step)), step.listed("output")
        known = {column(old): {column(new.id)} for (old, _), new in zip(found.columns, entries, strict=True)}
        return found.through(known, tuple((new.id, new.fields["name"]) for new in entries))

    def _filter(self, step: Tree) -> Rows:
        pairs = equalities(step.one("condition"))
        rows = self._under_filter(step.children[0], pairs)
        if self._outer:
            rows = correlated(rows, self._outer[-1], pairs)
        return rows.with_equal(pairs)

    def _under_filter(self, step: Tree, pairs: list[Equality]) -> Rows:
        """The rows below a filter: the equalities of a filter above inner joins are join conditions as well."""
        if step.name != "Join" or Join.kind_of(step) not in ("Inner", "Cross"):
            return self.rows(step)
        self.require_plain_expressions(step)
        left, right = (self._under_filter(child, pairs) for child in step.children)
        return joined(Join(step, left, right, tuple(pairs)))

    def _lateral_join(self, step: Tree) -> Rows:
        """The right side is a query for each row of the left; `require_plain_expressions` has checked it."""
        left, inside = self.rows(step.children[0]), step.one("right")
        plan = None if inside is None else inside.fields.get("plan")
        assert isinstance(plan, Tree)
        if left.anchors and any(tree.name == "PythonUDTF" for tree in everything(plan)):
            raise Refusal(step, "calls a Python user-defined table function", first_anchor([left]), known=False)
        return replace(left, columns=(*left.columns, *self._inside(left, plan).columns))

    def _inside(self, outer: Rows, plan: Tree) -> Rows:
        """The rows of a subquery of `outer` rows."""
        self._outer.append(outer)
        try:
            return self.rows(plan)
        finally:
            self._outer.pop()

    def require_plain_expressions(self, step: Tree) -> None:
        """Expressions see one row: no subquery over anything but lookups, no Python over many rows."""
        for holder, plan in step.subqueries():
            outer = self.rows(step.children[0]) if len(step.children) == 1 else Rows(())
            try:
                inside = self._inside(outer, plan)
                anchors = (
                    first_anchor([inside]) if inside.anchors and not is_among(step, holder, outer, inside) else None
                )
            except Refusal as refusal:
                anchors = refusal.anchor
            if anchors is not None:
                raise Refusal(step, f"uses a subquery over {self._sources(plan)}", anchors)
        if step.name in GROUPED_MAPS or "functionExpr" in step.fields:
            return
        for expression in step.expressions():
            if expression.name == "VariableReference":
                raise Refusal(step, "reads a SQL session variable, whose value may come from other rows")
            if expression.name == "PythonUDF" and expression.fields.get("evalType") not in _ROW_BY_ROW:
                called = expression.fields.get("name")
                raise Refusal(step, f"calls a vectorised Python UDF on batches of rows ({called})", known=False)

    def _sources(self, plan: Tree) -> str:
        """The inputs that a query reads, as the author calls them."""
        names = dict.fromkeys(f"`{name}`" for name in self._names_in(plan))
        return " and ".join(names) or "its inputs"

    def _names_in(self, plan: Tree) -> Iterator[str]:
        for step in plan.walk():
            if step.name == "CTERelationRef" and (found := self._definitions.get(int(step.fields["cteId"]))):
                yield from self._names_in(found)
            elif step.name == "Range" and 0 <= (number := MARK - int(step.fields["start"])) < len(self._inputs):
                yield self._inputs[number].name


#: Steps that need more than the rows below them.
_WALKED: Mapping[str, Callable[[Lineage, Tree], Rows]] = {
    "Filter": Lineage._filter,
    "LateralJoin": Lineage._lateral_join,
    "WithCTE": Lineage._with_definitions,
}
