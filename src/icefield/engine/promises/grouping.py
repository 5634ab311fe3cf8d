"""`accumulate`: rows are united and grouped once, and what is computed of a group merges."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from icefield.declare import Accumulate
from icefield.engine.promises.anchors import KEY, ROW, Refusal
from icefield.engine.promises.call import inputs_of, is_input
from icefield.engine.promises.lineage import Lineage
from icefield.engine.promises.measures import require_merging
from icefield.engine.promises.plan_tree import Tree
from icefield.engine.promises.spark_plans import typed
from icefield.engine.promises.values import value_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from icefield.engine.promises.anchors import Rows
    from icefield.engine.promises.call import Call
    from icefield.engine.promises.values import Value

#: Steps that may stand above the group of an accumulating function.
_ABOVE = ("Project", "SubqueryAlias", "View", "Sort", "Filter", "ResolvedHint", "PipeOperator", "CTERelationDef")
#: Steps of common table expressions.
_QUERIES = ("WithCTE", "CTERelationRef")


def require_one_group(call: Call, plan: Tree) -> None:
    """Rows are united and grouped once, by the key, and every measure is an aggregate that merges."""
    refresh = call.node.refresh
    assert isinstance(refresh, Accumulate)
    lineage = Lineage(inputs_of(call, (ROW, KEY)))
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
    """The expressions of the result's columns over the step that groups, and that step."""
    followed = _outputs(plan)
    while (plan.name in _ABOVE and not is_input(plan)) or plan.name in _QUERIES:
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
    """Substitutes the expressions of a step for the names under which columns refer to them."""
    values = {entry.id: entry for entry in entries}

    def put(tree: Tree) -> Tree:
        if tree.name == "AttributeReference":
            return values.get(tree.id, tree)
        return replace(tree, children=tuple(map(put, tree.children))) if tree.children else tree

    return {name: put(tree) for name, tree in followed.items()}


def _outputs(plan: Tree) -> dict[str, Tree]:
    """The output columns of a plan by name, as references."""
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
