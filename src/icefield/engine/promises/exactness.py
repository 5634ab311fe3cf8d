"""Whether a function gives the same rows however often it is computed: no clock, no chance, no order of rows.

A value that may differ from one computation to the next is followed through the plan to where it is used. It may end
in a column that is declared `volatile`, and a list in no particular order may be sorted. It may not decide which rows
there are, nor end in any other column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from icefield.engine.promises.plan_tree import Tree, everything, trees_in
from icefield.engine.promises.values import value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

#: Expressions that give another value in each run, as an author writes them.
CHANGING = {
    "CurrentTimestamp": "current_timestamp()",
    "Now": "now()",
    "LocalTimestamp": "localtimestamp()",
    "CurrentDate": "current_date()",
    "CurrentTime": "current_time()",
    "Uuid": "uuid()",
    "Rand": "rand()",
    "Randn": "randn()",
    "RandStr": "randstr()",
    "Uniform": "uniform()",
    "Shuffle": "shuffle()",
    "MonotonicallyIncreasingID": "monotonically_increasing_id()",
    "SparkPartitionID": "spark_partition_id()",
    "InputFileName": "input_file_name()",
    "InputFileBlockStart": "input_file_block_start()",
    "InputFileBlockLength": "input_file_block_length()",
    "CurrentUser": "current_user()",
    "CallMethodViaReflection": "reflect()",
    "TryReflect": "try_reflect()",
}
#: Texts that mean another moment whenever they are cast.
_MOMENTS = frozenset(["now", "today", "tomorrow", "yesterday"])
_DATED = ("date", "timestamp", "timestamp_ntz")
_PARSING = ("ParseToDate", "ParseToTimestamp")
_MOMENT = re.compile(r"\b(?:DATE|TIMESTAMP(?:_NTZ|_LTZ)?)\s*'\s*(?:now|today|tomorrow|yesterday)\s*'", re.IGNORECASE)
#: Aggregates whose value depends on the order of rows, which nothing keeps.
_UNORDERED = {
    "First": "first()",
    "Last": "last()",
    "AnyValue": "any_value()",
    "CollectList": "collect_list()",
    "CollectSet": "collect_set()",
    "MaxBy": "max_by()",
    "MinBy": "min_by()",
    "Mode": "mode()",
    "ListAgg": "listagg()",
    "ApproximatePercentile": "percentile_approx()",
    "HistogramNumeric": "histogram_numeric()",
    "HllSketchAgg": "hll_sketch_agg()",
    "HllUnionAgg": "hll_union_agg()",
    "ApproxTopK": "approx_top_k()",
    "ApproxTopKAccumulate": "approx_top_k_accumulate()",
    "KllSketchAggBigint": "kll_sketch_agg_bigint()",
    "KllSketchAggFloat": "kll_sketch_agg_float()",
    "KllSketchAggDouble": "kll_sketch_agg_double()",
}
#: Functions of windows that go by the place of a row among others.
_BY_PLACE = {
    "RowNumber": "row_number()",
    "NTile": "ntile()",
    "Lag": "lag()",
    "Lead": "lead()",
    "NthValue": "nth_value()",
}
_LISTS = ("CollectList", "CollectSet")
#: What gives the same for a list in any order, and what gives the same list in another order.
_ORDERING = frozenset(["SortArray", "ArraySort", "Size", "ArrayMin", "ArrayMax", "ArrayContains"])
_ELEMENT_BY_ELEMENT = frozenset(["ArrayDistinct", "ArrayTransform", "ArrayFilter", "ArrayCompact", "Flatten", "Alias"])
#: Functions that give one row for each element of a list.
_EXPLODING = ("Explode",)
#: Steps that compare whole rows.
_COMPARING = ("Distinct", "Intersect", "Except")
_CHOOSING = {"GlobalLimit": "limit()", "Offset": "offset()", "Tail": "tail()"}
#: Fields of steps that make columns.
_ENTRIES = ("projectList", "aggregateExpressions", "windowExpressions")
#: What a predicate that calls one of the changing expressions surely holds.
_CLOCK = re.compile(
    r"current|now|localtimestamp|curdate|unix_timestamp|uuid|rand|uniform|shuffle|monotonic|partition_id|input_file"
    r"|reflect|java_method|aes_encrypt|today|tomorrow|yesterday",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Inexact:
    """What makes a value differ from one computation to the next, as an author writes it.

    `listed`: it is a list of the same elements, in another order.
    """

    kind: Literal["changing", "unordered"]
    told: str
    listed: bool = False


class _DecidesRows(Exception):
    """A value that may differ decides which rows there are."""

    def __init__(self, found: Inexact) -> None:
        super().__init__(found.told)
        self.found = found


def changing_in(plan: Tree) -> str | None:
    """The first expression that gives another value in each run, as an author writes it."""
    return next((told for tree in everything(plan) if (told := _changing(tree))), None)


def _changing(tree: Tree) -> str | None:
    if tree.name in CHANGING:
        return CHANGING[tree.name]
    if tree.name in ("PythonUDF", "PythonUDAF") and tree.fields.get("udfDeterministic") is False:
        return f"the nondeterministic function {tree.fields.get('name')}()"
    if tree.name == "AesEncrypt" and _is_literal(tree.children[4], "") and not _is_literal(tree.children[2], "ECB"):
        return "aes_encrypt() without an initialisation vector"
    if tree.name == "Sample":
        return "sample()"
    dated = tree.name in _PARSING or (tree.name == "Cast" and tree.fields.get("dataType") in _DATED)
    moment = _literal(tree.children[0]) if dated and tree.children else None
    return f"cast('{moment}')" if moment is not None and moment.strip().lower() in _MOMENTS else None


def moment_in(query: str) -> str | None:
    """A literal in a query's text that means another moment whenever it is parsed: no plan shows that."""
    found = _MOMENT.search(query)
    return None if found is None else found[0]


def _literal(tree: Tree) -> str | None:
    while tree.name in ("Cast", "Alias"):
        tree = tree.children[0]
    value = tree.fields.get("value")
    return value if tree.name == "Literal" and isinstance(value, str) else None


def _is_literal(tree: Tree, text: str) -> bool:
    return (found := _literal(tree)) is not None and found.upper() == text


def may_change(predicate: str) -> bool:
    """Whether a predicate's text could hold such an expression: most do not, and are not looked at closely."""
    return _CLOCK.search(predicate) is not None


def inexact_in(plan: Tree, volatile: Collection[str] = ()) -> Inexact | None:
    """What could make another computation give other rows; columns that are declared volatile may differ."""
    lower = {name.lower() for name in volatile}
    walk = _Walk()
    try:
        found = walk.inexact(plan)
    except _DecidesRows as decided:
        return decided.found
    names = walk.outputs(plan)
    return next((one for number, one in found.items() if names.get(number, "").lower() not in lower), None)


class _Walk:
    """Follows values that may differ through one plan, bottom up."""

    def __init__(self) -> None:
        self._definitions: dict[int, Tree] = {}

    def inexact(self, step: Tree) -> dict[int, Inexact]:
        """The columns of a step that may differ, by id."""
        if step.name == "WithCTE":
            return self.inexact(self._main(step))
        if step.name == "CTERelationRef":
            return self._referenced(step)
        below = [self.inexact(child) for child in step.children]
        known = {number: one for some in below for number, one in some.items()}
        handle = _STEPS.get(step.name)
        if handle is not None:
            return handle(self, step, known)
        if told := _changing(step):
            raise _DecidesRows(Inexact("changing", told))
        if step.name in _CHOOSING and not _is_sorted(step):
            raise _DecidesRows(Inexact("unordered", f"{_CHOOSING[step.name]} without orderBy"))
        if step.name in _COMPARING or "functionExpr" in step.fields:
            for number in self.outputs(step.children[0]).keys() & known.keys():
                raise _DecidesRows(known[number])
        if step.name != "Sort":
            self._require_exact(_deciding(step), known)
        return self._by_place(step, below) if step.name in ("Union", *_COMPARING) else known

    def outputs(self, step: Tree) -> dict[int, str]:
        """The columns of a step, in order: id and name."""
        if step.name == "WithCTE":
            return self.outputs(self._main(step))
        for name in (*_ENTRIES[:2], "output"):
            if listed := step.listed(name):
                return {e.id: str(e.fields["name"]) for e in listed if "exprId" in e.fields}
        if step.name in ("Union", *_COMPARING):
            return self.outputs(step.children[0])
        own = [*step.listed("windowExpressions"), *step.listed("generatorOutput")]
        sides = step.children[:1] if step.fields.get("joinType") in ("LeftSemi", "LeftAnti") else step.children
        below = {number: name for child in sides for number, name in self.outputs(child).items()}
        return {**below, **{e.id: str(e.fields["name"]) for e in own}}

    # -- steps

    def _main(self, step: Tree) -> Tree:
        for child in step.children:
            if child.name == "CTERelationDef":
                self._definitions[int(child.fields["id"])] = child
        return next(child for child in step.children if child.name != "CTERelationDef")

    def _referenced(self, step: Tree) -> dict[int, Inexact]:
        definition = self._definitions.get(int(step.fields["cteId"]))
        if definition is None:
            return {}
        found = self.inexact(definition)
        numbers = zip(self.outputs(definition), step.listed("output"), strict=False)
        return {new.id: found[old] for old, new in numbers if old in found}

    def _by_place(self, step: Tree, below: list[dict[int, Inexact]]) -> dict[int, Inexact]:
        found: dict[int, Inexact] = {}
        for child, some in zip(step.children, below, strict=True):
            places = zip(self.outputs(child), self.outputs(step.children[0]), strict=False)
            found |= {first: some[own] for own, first in places if own in some}
        return found

    def _entries(self, step: Tree, known: Mapping[int, Inexact]) -> dict[int, Inexact]:
        """A step that makes columns: of them, those that are made of values that may differ."""
        self._require_exact(step.listed("groupingExpressions"), known)
        entries = [*step.listed("projectList"), *step.listed("aggregateExpressions")]
        return {e.id: found for e in entries if (found := self._of(e, known)) and "exprId" in e.fields}

    def _window(self, step: Tree, known: Mapping[int, Inexact]) -> dict[int, Inexact]:
        self._require_exact([*step.listed("partitionSpec"), *step.listed("orderSpec")], known)
        ordered = _is_ordered(step)
        found = dict(known)
        for entry in step.listed("windowExpressions"):
            one = self._of(entry, known, in_order=ordered)
            if one is None and not ordered:
                one = _by_place(entry)
            if one is not None and one.kind == "unordered" and not ordered:
                one = Inexact("unordered", f"{one.told} over a window without orderBy", one.listed)
            if one is not None:
                found[entry.id] = one
        return found

    def _deduplicate(self, step: Tree, known: Mapping[int, Inexact]) -> dict[int, Inexact]:
        self._require_exact(step.listed("keys"), known)
        keys = {key.id for key in step.listed("keys")}
        told = step.fields.get("columns")
        columns = told if isinstance(told, list) else list(self.outputs(step.children[0]))
        left = Inexact("unordered", "dropDuplicates() on a subset of the columns")
        return {**known, **{number: left for number in columns if number not in keys}}

    def _expand(self, step: Tree, known: Mapping[int, Inexact]) -> dict[int, Inexact]:
        columns = [entry.id for entry in step.listed("output")]
        found: dict[int, Inexact] = {}
        for projection in step.fields.get("projections") or ():
            values = list(trees_in(projection))
            if len(values) == len(columns):
                found |= {n: one for n, v in zip(columns, values, strict=True) if (one := self._of(v, known))}
        return found

    def _generate(self, step: Tree, known: Mapping[int, Inexact]) -> dict[int, Inexact]:
        generator = step.one("generator")
        one = None if generator is None else self._of(generator, known)
        if one is None or generator is None:
            return dict(known)
        if one.listed and generator.name in _EXPLODING and self._list_below(generator.children[0], known):
            return dict(known)
        return {**known, **{entry.id: one for entry in step.listed("generatorOutput")}}

    # -- expressions

    def _require_exact(self, expressions: Iterable[Tree], known: Mapping[int, Inexact]) -> None:
        for expression in expressions:
            if found := self._of(expression, known):
                raise _DecidesRows(found)

    def _of(self, tree: Tree, known: Mapping[int, Inexact], *, in_order: bool = False) -> Inexact | None:
        """What makes a value differ, if anything does; `in_order`: rows come in the order of a window."""
        if told := _changing(tree):
            return Inexact("changing", told)
        if tree.name == "AttributeReference":
            return known.get(tree.id)
        if isinstance(plan := tree.fields.get("plan"), Tree) and (found := self.inexact(plan)):
            return next(iter(found.values()))
        if tree.name == "AggregateExpression" and not in_order and (found_here := _depends_on_order(tree.children[0])):
            return found_here
        if tree.name in _ORDERING and _orders(tree) and self._list_below(tree.children[0], known):
            rest = (self._of(child, known, in_order=in_order) for child in tree.children[1:])
        else:
            rest = (self._of(child, known, in_order=in_order) for child in tree.children)
        return next((one for one in rest if one is not None), None)

    def _list_below(self, tree: Tree, known: Mapping[int, Inexact]) -> bool:
        """Whether a value is a list in no order, of which only the elements matter."""
        while tree.name in _ELEMENT_BY_ELEMENT:
            if any(self._of(child, known) for child in tree.children[1:]):
                return False
            tree = tree.children[0]
        if tree.name == "AttributeReference":
            return tree.id in known and known[tree.id].listed
        while tree.name in ("AggregateExpression", "WindowExpression"):
            tree = tree.children[0]
        return tree.name in _LISTS and not any(self._of(child, known) for child in tree.children)


def _deciding(step: Tree) -> Iterator[Tree]:
    """The expressions of a step by which rows are chosen or meet."""
    for value in step.fields.values():
        yield from trees_in(value)


def _depends_on_order(function: Tree) -> Inexact | None:
    """What an aggregate takes from the order in which rows happen to come."""
    told = _UNORDERED.get(function.name)
    ordered = any(child.name == "SortOrder" for child in function.children)
    if told is None or ordered or (function.name == "Mode" and "reverseOpt" in function.fields):
        return None
    return Inexact("unordered", told, listed=function.name in _LISTS)


def _orders(tree: Tree) -> bool:
    """Whether a function gives the same for any order of a list: by a comparison of one's own, some may be equal."""
    if tree.name != "ArraySort":
        return True
    names = {part.name for part in tree.children[1].walk()}
    compares = {"LessThan", "GreaterThan"}
    return compares <= names <= {"LambdaFunction", "If", "And", "IsNull", "Literal", "NamedLambdaVariable", *compares}


def _is_ordered(window: Tree) -> bool:
    """Whether a window orders its rows by anything that differs within a partition."""
    same = {value_of(entry) for entry in window.listed("partitionSpec")}
    orders = [order.children[0] for order in window.listed("orderSpec")]
    made = {entry.id: entry for entry in window.children[0].listed("projectList") if entry.name == "Alias"}
    return any(value_of(one) not in same and _is_made_of_columns(one, made) for one in orders)


def _is_made_of_columns(tree: Tree, made: Mapping[int, Tree]) -> bool:
    """Whether a value differs from row to row; `made`: what the step below has named."""
    columns = [part for part in tree.walk() if part.name == "AttributeReference"]
    return any(part.id not in made or _is_made_of_columns(made[part.id].children[0], {}) for part in columns)


def _by_place(entry: Tree) -> Inexact | None:
    """What a window function takes from the place of rows, where they are in no order."""
    for tree in entry.walk():
        if tree.name in _BY_PLACE:
            return Inexact("unordered", _BY_PLACE[tree.name])
        if tree.name == "SpecifiedWindowFrame" and tree.fields.get("frameType") == "RowFrame":
            ends = [child.name.rstrip("$") for child in tree.children]
            if ends != ["UnboundedPreceding", "UnboundedFollowing"]:
                return Inexact("unordered", "a window function over rows")
    return None


def _is_sorted(step: Tree) -> bool:
    """Whether rows that are chosen by their place are in an order."""
    while step.name in (*_CHOOSING, "LocalLimit", "SubqueryAlias", "Project", "View"):
        step = step.children[0]
    return step.name == "Sort"


_STEPS: Mapping[str, Callable[[_Walk, Tree, Mapping[int, Inexact]], dict[int, Inexact]]] = {
    "Aggregate": _Walk._entries,
    "Deduplicate": _Walk._deduplicate,
    "Expand": _Walk._expand,
    "Generate": _Walk._generate,
    "Project": _Walk._entries,
    "Window": _Walk._window,
}
