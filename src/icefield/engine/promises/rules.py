"""What each refresh kind promises of a function: proven from Spark's plan, or refused with the step and a remedy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as F

from icefield.declare import Accumulate, Append, ByKey, Incremental, Query
from icefield.engine.promises.exactness import inexact_in, moment_in
from icefield.engine.promises.lineage import KEY, ROW, Input, Lineage, Refusal, placed
from icefield.engine.promises.measures import require_merging
from icefield.engine.promises.plan_tree import Tree
from icefield.engine.promises.spark_plans import deep_plans, line_in_query, tree_of, typed
from icefield.engine.promises.values import column, value_of
from icefield.engine.refresh.keys import key_of
from icefield.errors import KeyUnknown, NotExact, PromiseBroken

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from icefield.engine.promises.lineage import Rows
    from icefield.engine.promises.values import Value
    from icefield.graph import Edge, Node

#: What a plan tells of a promise: that it is kept, or nothing, where the author vouches for it.
Proof = Literal["proven", "trusted"]
#: Steps that may stand above the group of an accumulating function.
_ABOVE = ("Project", "SubqueryAlias", "View", "Sort", "Filter", "ResolvedHint", "PipeOperator", "CTERelationDef")
_QUERIES = ("WithCTE", "CTERelationRef")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A function as it was called with empty inputs: what it gave, and which lines made which frames."""

    node: Node
    function: object
    inputs: Mapping[str, DataFrame]
    output: DataFrame
    lines: Sequence[tuple[str, DataFrame]] = ()


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
                raise _broken(call, refusal) from None
            proof = "trusted"
        _require_exact(call.node, plan)
        _require_no_moments(call)
    return proof


def _require_promise(call: Call, plan: Tree) -> None:
    match call.node.refresh:
        case ByKey():
            _require_keys_apart(call, plan)
        case Accumulate():
            _require_one_group(call, plan)
        case Append():
            _require_rows_alone(call, plan)


# -- by_key: the rows of a key depend on that key's rows alone


def _require_keys_apart(call: Call, plan: Tree) -> None:
    rows = Lineage(_inputs(call, (KEY,))).rows(plan)
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
    if not Lineage(_inputs(call, (ROW,))).rows(plan).main:
        raise Refusal(plan, "does not use the rows that arrive", ROW)


# -- accumulate: rows are united and grouped once, and what is computed of a group merges


def _require_one_group(call: Call, plan: Tree) -> None:
    refresh = call.node.refresh
    assert isinstance(refresh, Accumulate)
    lineage = Lineage(_inputs(call, (ROW, KEY)))
    followed, group = _group_below(call, lineage, plan)
    if group.name != "Aggregate":
        rows = lineage.rows(group)  # refuses whatever lets rows meet in another way
        raise Refusal(group, "does not group its rows" if rows.main else "does not use the rows that arrive", ROW)
    if any(expression.name == "PivotFirst" for expression in group.expressions()):
        raise Refusal(group, "uses pivot()", ROW, known=False)
    lineage.require_plain_expressions(group)
    _require_groups_by_key(call, group, followed, lineage.rows(group.children[0]))
    for name, how in refresh.measures.items():
        require_merging(group, name, how, followed[name])


def _group_below(call: Call, lineage: Lineage, plan: Tree) -> tuple[dict[str, Tree], Tree]:
    """What the columns of the result are made of, as far down as the step that groups, and that step."""
    followed = _outputs(plan)
    while (plan.name in _ABOVE and not _is_input(plan)) or plan.name in _QUERIES:
        if plan.name == "WithCTE":
            plan = lineage.defined(plan)
            continue
        if plan.name == "CTERelationRef":
            below = lineage.definition(plan)
            names = zip(plan.listed("output"), _outputs(below).values(), strict=True)
            followed = _put_in(followed, [Tree("Alias", new.fields, (old,)) for new, old in names])
            plan = below
            continue
        lineage.require_plain_expressions(plan)
        if plan.name == "Filter" and _groups_below(plan) and not _is_about_keys(call, plan, followed):
            raise Refusal(plan, "filters groups by an aggregate that is not final until all rows have arrived", ROW)
        if plan.name == "Project":
            followed = _put_in(followed, typed(call.output, plan, "projectList"))
        plan = plan.children[0]
    if plan.name == "Aggregate":
        followed = _put_in(followed, typed(call.output, plan, "aggregateExpressions"))
    return followed, plan


def _put_in(followed: Mapping[str, Tree], entries: list[Tree]) -> dict[str, Tree]:
    """Columns with what they are made of in place of the names that a step gives to it."""
    values = {entry.id: entry for entry in entries}

    def put(tree: Tree) -> Tree:
        if tree.name == "AttributeReference":
            return values.get(tree.id, tree)
        return replace(tree, children=tuple(map(put, tree.children))) if tree.children else tree

    return {name: put(tree) for name, tree in followed.items()}


def _is_input(plan: Tree) -> bool:
    return plan.name == "Project" and plan.children[0].name == "Range"


def _outputs(plan: Tree) -> dict[str, Tree]:
    """The columns of a plan by name, before anything is known of what they are made of."""
    if plan.name == "WithCTE":
        return _outputs(next(child for child in plan.children if child.name != "CTERelationDef"))
    while not (listed := plan.listed("projectList") or plan.listed("aggregateExpressions") or plan.listed("output")):
        if not plan.children:
            return {}
        plan = plan.children[0]
    return {str(entry.fields["name"]): Tree("AttributeReference", entry.fields) for entry in listed}


def _groups_below(plan: Tree) -> bool:
    return any(step.name == "Aggregate" for step in plan.walk())


def _is_about_keys(call: Call, plan: Tree, followed: Mapping[str, Tree]) -> bool:
    keys = {value_of(followed[key]) for key in call.node.keys if key in followed}
    used = {value_of(expression) for expression in plan.expressions() if expression.name == "AttributeReference"}
    return used <= keys


def _require_groups_by_key(call: Call, group: Tree, followed: Mapping[str, Tree], rows: Rows) -> None:
    by = {value_of(entry) for entry in group.listed("groupingExpressions")}
    own: set[Value] = set()
    for key in call.node.keys:
        value = value_of(followed[key]) if key in followed else None
        if value is None or value not in by or value not in rows.anchors[KEY][key]:
            raise Refusal(group, f"does not group by the key `{key}` of its input rows")
        own.add(value)
    if by - own:
        raise Refusal(group, "groups by more columns than the key, so that a key has several rows")


# -- finish: a row of measures becomes a row of the table


def prove_finish(node: Node, rows: DataFrame, output: DataFrame) -> tuple[Proof, bool]:
    """Proves that `finish` works on each row for itself, and whether all measures can still be read from its result."""
    assert isinstance(node.refresh, Accumulate)
    with deep_plans():
        plan = tree_of(output)
        _require_exact(node, plan)
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
    """The steps from the result down to the frame that was handed over."""
    while not _is_input(plan):
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


# -- inputs, and what is said where a promise is broken


def _inputs(call: Call, anchors: Sequence[str]) -> list[Input]:
    edges = call.node.edges
    on = sorted({name for edge in edges for name in edge.on})
    return [_input(call, edge, anchors, on) for edge in edges]


def _input(call: Call, edge: Edge, anchors: Sequence[str], on: Sequence[str]) -> Input:
    frame = call.inputs[edge.parameter]
    columns = tuple(frame.columns)
    places = {name: placed(number) for number, name in enumerate(columns)}
    if edge.lookup:
        followed = isinstance(call.node.refresh, ByKey) and edge.on
        own = {edge.parameter: {name: places[name] for name in edge.on}} if followed else {}
        return Input(edge.parameter, columns, own)
    found: dict[str, Mapping[str, Value]] = {ROW: {}} if ROW in anchors else {}
    if KEY in anchors:
        found[KEY] = _keys(call.node, edge, frame, places)
    carried = tuple(name for name in on if name in places)
    return Input(edge.parameter, columns, found, carried)


def _keys(node: Node, edge: Edge, frame: DataFrame, places: Mapping[str, Value]) -> dict[str, Value]:
    """The key of an input's rows as values of its columns."""
    texts = key_of(node, edge, frame.columns)
    own = {name: f"`{name}`" for name in places}
    if all(text in own.values() for text in texts.values()):
        return {key: places[text[1:-1]] for key, text in texts.items()}
    plan = tree_of(frame.select(*(F.expr(text).alias(f"k{n}") for n, text in enumerate(texts.values()))))
    if plan.name != "Project" or not _is_input(plan.children[0]):
        raise KeyUnknown(
            f"the key of {node.name} is not computed from one row: {', '.join(texts.values())}",
            where=str(node.location),
            remedy="use an expression without aggregates, window functions and generators",
        )
    ids = {entry.id: n for n, entry in enumerate(plan.children[0].listed("projectList"))}
    known = {column(number): placed(n) for number, n in ids.items()}
    entries = plan.listed("projectList")
    return {key: _placed(value_of(entry), known) for key, entry in zip(texts, entries, strict=True)}


def _placed(value: Value, known: Mapping[Value, Value]) -> Value:
    if value in known:
        return known[value]
    return tuple(_placed(part, known) if isinstance(part, tuple) else part for part in value)


def _broken(call: Call, refusal: Refusal) -> PromiseBroken:
    node = call.node
    if refusal.anchor not in (KEY, ROW):
        return _misused(call, refusal)
    if not refusal.known:
        return PromiseBroken(
            f"{node.name} is declared {declared(node)}, but its function {refusal.what}: Spark's plan does not prove"
            f" that {_PROMISED[node.refresh.kind]}",
            where=_where(call, refusal),
            remedy=f"rewrite this step with built-in DataFrame functions, declare the table full(), or, if you are sure"
            f" that it holds, declare {node.refresh.kind}(..., trusted=True)",
        )
    return PromiseBroken(
        f"{node.name} is declared {declared(node)}, but its function {refusal.what}: {_CONSEQUENCE[node.refresh.kind]}",
        where=_where(call, refusal),
        remedy=_remedy(node),
    )


def declared(node: Node) -> str:
    """The refresh kind as the author wrote it, without what matters less."""
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
    """A lookup that is followed by some columns, and not joined on them."""
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
    """The author's line that made the step, else that of the declaration."""
    node = call.node
    if isinstance(call.function, Query):
        number, start = line_in_query(call.output, refusal.step), call.function.location
        return f"{start.file}:{start.line + number - 1}" if number else str(node.location)
    wanted = _signature(refusal.step)
    made = (line for line, frame in call.lines if any(_signature(s) == wanted for s in tree_of(frame).walk()))
    return next(made, str(node.location))


def _signature(step: Tree) -> tuple[object, ...]:
    """What tells a step from others, whatever ids its columns have."""
    named = [(e.name, e.fields.get("name"), e.fields.get("value")) for e in step.expressions()]
    return (step.name, *named)


def _require_exact(node: Node, plan: Tree) -> None:
    """An incremental table gives the same rows however often it is computed."""
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


def _require_no_moments(call: Call) -> None:
    """SQL has literals for today and now, which a plan holds as what they were when it was made."""
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
