"""Reads from Spark's analysed plan which columns of its inputs each column of a function's result is made of."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from icefield.declare.columns import RESERVED_PREFIX
from icefield.engine.promises.anchors import MARK
from icefield.engine.promises.plan_tree import Tree, trees_in
from icefield.engine.promises.spark_plans import deep_plans, tree_of
from icefield.graph.column_lineage import DIRECT, ColumnLineage, Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from icefield.graph import Node
    from icefield.graph.column_lineage import Direct, Indirect

    Origins = frozenset[Origin]

NOTHING: Origins = frozenset()
#: Expressions of whose operands only a hash is left.
_HASHES = frozenset(["Sha1", "Sha2", "Md5", "Crc32", "Murmur3Hash", "XxHash64", "HiveHash"])
#: Expressions that give their operand as it is.
_SAME = frozenset(["Alias", "OuterReference", "KnownNotNull", "KnownNullable"])
#: Joins of which only the left side comes out.
_LEFT_ONLY = ("LeftSemi", "LeftAnti")


def column_lineage(inputs: Mapping[str, DataFrame], output: DataFrame) -> ColumnLineage:
    """Where the columns of `output` come from; inputs are what `input_frame` gave, by parameter, in their order."""
    walk = _Walk([(name, tuple(frame.columns)) for name, frame in inputs.items()])
    with deep_plans():
        numbers = walk.columns(tree_of(output))
    named = zip(output.columns, numbers, strict=True)
    found = {name: _listed(walk.known.get(number, NOTHING)) for name, number in named if _is_visible(name)}
    return ColumnLineage(columns=found, rows=_listed(walk.rows))


def remembered(node: Node, inputs: Mapping[str, DataFrame], find: Callable[[], ColumnLineage]) -> ColumnLineage | None:
    """The lineage of a table, found once for its code and the columns of its inputs; None where a plan is too odd.

    A process of many runs would read the same plans again and again. No run fails because its lineage is unknown.
    """
    about = (node.fingerprint, *(frame.schema for frame in inputs.values()))
    known = _known.get(node.name)
    if known is None or known[0] != about:
        try:
            found: ColumnLineage | None = find()
        except Exception:
            found = None
        known = _known[node.name] = (about, found)
    return known[1]


_known: dict[str, tuple[object, ColumnLineage | None]] = {}


def through(first: ColumnLineage, then: ColumnLineage) -> ColumnLineage:
    """The lineage of a function whose result is handed to another one, as the measures are to `finish`."""

    def origins(some: Iterable[Origin]) -> tuple[Origin, ...]:
        return _listed(_used(inner, outer) for outer in some for inner in first.columns.get(outer.column, ()))

    rows = _listed({*first.rows, *origins(then.rows)})
    return ColumnLineage(columns={name: origins(some) for name, some in then.columns.items()}, rows=rows)


def _used(inner: Origin, outer: Origin) -> Origin:
    """An origin of a value that is itself used for something."""
    masked = inner.masked or outer.masked
    if not inner.is_direct:
        return replace(inner, masked=masked)
    if not outer.is_direct:
        return replace(inner, use=outer.use, masked=masked)
    return replace(inner, use=max(inner.use, outer.use, key=lambda use: DIRECT.index(use)), masked=masked)


def _as(use: Direct | Indirect, origins: Iterable[Origin], *, masked: bool = False) -> Origins:
    outer = Origin(parameter="", column="", use=use, masked=masked)
    return frozenset(_used(origin, outer) for origin in origins)


def _listed(origins: Iterable[Origin]) -> tuple[Origin, ...]:
    kept = {origin for origin in origins if _is_visible(origin.column)}
    return tuple(sorted(kept, key=lambda one: (one.parameter, one.column, one.use, one.masked)))


def _is_visible(column: str) -> bool:
    return not column.startswith(RESERVED_PREFIX)


class _Walk:
    """Walks one plan, bottom up. Spark tells every column of a plan from all others by its number."""

    def __init__(self, inputs: Sequence[tuple[str, tuple[str, ...]]]) -> None:
        self.known: dict[int, Origins] = {}
        self.rows: set[Origin] = set()
        self._inputs = inputs
        self._definitions: dict[int, Tree] = {}
        self._seen: dict[int, list[int]] = {}

    def columns(self, step: Tree) -> list[int]:
        """The numbers of the columns that a step gives, in their order; their origins are known from then on."""
        if id(step) not in self._seen:
            self._seen[id(step)] = self._input(step) or _STEPS.get(step.name, _Walk._any_other)(self, step)
        return self._seen[id(step)]

    # -- steps

    def _input(self, step: Tree) -> list[int] | None:
        """The columns of a parameter, if this step is one of the frames that were handed to the function."""
        if step.name != "Project" or step.children[0].name != "Range":
            return None
        number = MARK - int(step.children[0].fields["start"])
        if not 0 <= number < len(self._inputs):
            return None
        parameter, names = self._inputs[number]
        entries = step.listed("projectList")
        for name, entry in zip(names, entries, strict=True):
            self.known[entry.id] = frozenset([Origin(parameter=parameter, column=name, use="IDENTITY")])
        return [entry.id for entry in entries]

    def _project(self, step: Tree) -> list[int]:
        self.columns(step.children[0])
        return self._define(step.listed("projectList"))

    def _aggregate(self, step: Tree) -> list[int]:
        self.columns(step.children[0])
        self._decide("GROUP_BY", step.listed("groupingExpressions"))
        return self._define(step.listed("aggregateExpressions"))

    def _window(self, step: Tree) -> list[int]:
        return [*self.columns(step.children[0]), *self._define(step.listed("windowExpressions"))]

    def _filter(self, step: Tree) -> list[int]:
        found = self.columns(step.children[0])
        self._decide("FILTER", step.listed("condition"))
        return found

    def _sort(self, step: Tree) -> list[int]:
        found = self.columns(step.children[0])
        self._decide("SORT", step.listed("order"))
        return found

    def _deduplicate(self, step: Tree) -> list[int]:
        found = self.columns(step.children[0])
        self._decide("GROUP_BY", step.listed("keys"))
        return found

    def _join(self, step: Tree) -> list[int]:
        left, right = (self.columns(child) for child in step.children)
        self._decide("JOIN", step.listed("condition"))
        kind = step.fields["joinType"]
        told = kind if isinstance(kind, str) else str(kind.get("product-class", "")).rpartition(".")[2]
        return left if told in _LEFT_ONLY else [*left, *right]

    def _lateral_join(self, step: Tree) -> list[int]:
        left = self.columns(step.children[0])
        inside = [plan for one in step.listed("right") if isinstance(plan := one.fields.get("plan"), Tree)]
        found = [*left, *(number for plan in inside for number in self.columns(plan))]
        self._decide("JOIN", step.listed("condition"))
        return found

    def _union(self, step: Tree) -> list[int]:
        first, *others = [self.columns(child) for child in step.children]
        for numbers in others:
            self._also(first, numbers)
        return first

    def _set_operation(self, step: Tree) -> list[int]:
        """INTERSECT and EXCEPT: the rows of the left side that the other one has, or has not."""
        left, right = (self.columns(child) for child in step.children)
        for number in right:
            self.rows |= _as("FILTER", self.known.get(number, NOTHING))
        return left

    def _expand(self, step: Tree) -> list[int]:
        self.columns(step.children[0])
        outputs = step.listed("output")
        for entry in outputs:
            self.known.setdefault(entry.id, NOTHING)
        for projection in step.fields.get("projections") or ():
            for entry, value in zip(outputs, trees_in(projection), strict=True):
                self.known[entry.id] |= self._of(value)
        return [entry.id for entry in outputs]

    def _generate(self, step: Tree) -> list[int]:
        below, made = self.columns(step.children[0]), step.listed("generatorOutput")
        origins = _as("TRANSFORMATION", self._of_all(step.listed("generator")))
        for entry in made:
            self.known[entry.id] = origins
        return [*below, *(entry.id for entry in made)]

    def _with_definitions(self, step: Tree) -> list[int]:
        for child in step.children:
            if child.name == "CTERelationDef":
                self._definitions[int(child.fields["id"])] = child
        return self.columns(next(child for child in step.children if child.name != "CTERelationDef"))

    def _reference(self, step: Tree) -> list[int]:
        """A common table expression by its name; a recursive one is not there while it is being defined."""
        outputs = [entry.id for entry in step.listed("output")]
        if (definition := self._definitions.pop(int(step.fields["cteId"]), None)) is not None:
            self._also(outputs, self.columns(definition))
            self._definitions[int(step.fields["cteId"])] = definition
        return outputs

    def _any_other(self, step: Tree) -> list[int]:
        """Hands on what is below, or makes columns of its own of it, in Python say."""
        below = [number for child in step.children for number in self.columns(child)]
        outputs = [entry.id for entry in step.listed("output") if "exprId" in entry.fields]
        if not outputs:
            return below
        self._decide("GROUP_BY", step.listed("groupingAttributes"))
        origins = _as("TRANSFORMATION", (origin for number in below for origin in self.known.get(number, NOTHING)))
        for number in outputs:
            self.known.setdefault(number, origins)
        return outputs

    # -- what steps have in common

    def _define(self, entries: Sequence[Tree]) -> list[int]:
        named = [entry for entry in entries if "exprId" in entry.fields]
        for entry in named:
            self.known[entry.id] = self._of(entry)
        return [entry.id for entry in named]

    def _also(self, numbers: Sequence[int], others: Sequence[int]) -> None:
        """Columns that come from others as well, by their place."""
        for number, other in zip(numbers, others, strict=True):
            self.known[number] = self.known.get(number, NOTHING) | self.known.get(other, NOTHING)

    def _decide(self, use: Indirect, expressions: Iterable[Tree]) -> None:
        """Notes what decides which rows there are."""
        self.rows.update(replace(origin, use=use) for origin in self._of_all(expressions))

    # -- expressions

    def _of(self, expression: Tree) -> Origins:
        name = expression.name
        if name == "AttributeReference":
            return self.known.get(expression.id, NOTHING)
        if isinstance(plan := expression.fields.get("plan"), Tree):
            return self._of_query(expression, plan)
        operands = expression.children or tuple(t for value in expression.fields.values() for t in trees_in(value))
        if name in _SAME:
            return self._of_all(operands)
        if name == "AggregateExpression":
            return _as("AGGREGATION", self._of_all(operands))
        if name == "WindowSpecDefinition":
            return _as("WINDOW", self._of_all(operands))
        if name in ("If", "CaseWhen"):
            return self._of_cases(operands)
        return _as("TRANSFORMATION", self._of_all(operands), masked=name in _HASHES)

    def _of_cases(self, operands: Sequence[Tree]) -> Origins:
        """Conditions and values in turn; the last value may have no condition."""
        conditions = operands[: len(operands) // 2 * 2 : 2]
        values = [operand for operand in operands if operand not in conditions]
        return _as("CONDITIONAL", self._of_all(conditions)) | _as("TRANSFORMATION", self._of_all(values))

    def _of_query(self, expression: Tree, plan: Tree) -> Origins:
        """A query inside of an expression: its value, or whether it finds something."""
        given = frozenset(origin for number in self.columns(plan) for origin in self.known.get(number, NOTHING))
        asked = self._of_all(expression.children)
        if expression.name == "ScalarSubquery":
            return _as("TRANSFORMATION", given)
        return _as("CONDITIONAL", given | asked)

    def _of_all(self, expressions: Iterable[Tree]) -> Origins:
        return frozenset(origin for expression in expressions for origin in self._of(expression))


_STEPS: Mapping[str, Callable[[_Walk, Tree], list[int]]] = {
    "Aggregate": _Walk._aggregate,
    "CTERelationRef": _Walk._reference,
    "Deduplicate": _Walk._deduplicate,
    "Except": _Walk._set_operation,
    "Expand": _Walk._expand,
    "Filter": _Walk._filter,
    "Generate": _Walk._generate,
    "Intersect": _Walk._set_operation,
    "Join": _Walk._join,
    "LateralJoin": _Walk._lateral_join,
    "Project": _Walk._project,
    "Sort": _Walk._sort,
    "Union": _Walk._union,
    "Window": _Walk._window,
    "WithCTE": _Walk._with_definitions,
}
