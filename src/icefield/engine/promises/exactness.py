"""Whether a function gives the same rows however often it is computed: no clock, no chance, no order of rows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from icefield.engine.promises.plan_tree import Tree, trees_in

if TYPE_CHECKING:
    from collections.abc import Iterator

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
}
#: Aggregates whose value depends on the order of rows, which nothing keeps.
_UNORDERED = {
    "First": "first()",
    "Last": "last()",
    "AnyValue": "any_value()",
    "NthValue": "nth_value()",
    "CollectList": "collect_list()",
    "CollectSet": "collect_set()",
    "MaxBy": "max_by()",
    "MinBy": "min_by()",
    "Mode": "mode()",
    "ListAgg": "listagg()",
    "ApproximatePercentile": "percentile_approx()",
}
#: What gives the same for a list in any order.
_ORDERING = frozenset(["SortArray", "ArraySort", "Size", "ArrayMin", "ArrayMax", "ArrayContains"])
#: What a predicate that calls one of the changing expressions surely holds.
_CLOCK = re.compile(
    r"current|now|localtimestamp|curdate|unix_timestamp|uuid|rand|uniform|shuffle|monotonic|partition_id|input_file",
    re.IGNORECASE,
)


def changing_in(plan: Tree) -> str | None:
    """The first expression that gives another value in each run, as an author writes it."""
    for tree in everything(plan):
        if tree.name in CHANGING:
            return CHANGING[tree.name]
        if tree.name in ("PythonUDF", "PythonUDAF") and tree.fields.get("udfDeterministic") is False:
            return f"the nondeterministic function {tree.fields.get('name')}()"
    return None


def may_change(predicate: str) -> bool:
    """Whether a predicate's text could hold such an expression: most do not, and are not looked at closely."""
    return _CLOCK.search(predicate) is not None


def unordered_in(plan: Tree) -> str | None:
    """What takes rows in the order in which they happen to come, as an author writes it."""
    for tree in everything(plan):
        if tree.name == "Aggregate" and (found := _unordered(tree.listed("aggregateExpressions"))):
            return found
        is_unordered = tree.name == "Window" and not tree.listed("orderSpec")
        if is_unordered and (found := _unordered(tree.listed("windowExpressions"))):
            return f"{found} over a window without orderBy"
        if tree.name == "Deduplicate" and len(tree.listed("keys")) < _width(tree.children[0]):
            return "dropDuplicates() on a subset of the columns"
    return None


def _unordered(entries: list[Tree]) -> str | None:
    for entry in entries:
        for parent, tree in _pairs(entry, None):
            if tree.name == "AggregateExpression" and (found := _UNORDERED.get(tree.children[0].name)):
                is_list = tree.children[0].name in ("CollectList", "CollectSet")
                ordered = is_list and parent is not None and parent.name in _ORDERING
                if not ordered and not tree.children[0].listed("orderExpressions"):
                    return found
    return None


def _pairs(tree: Tree, parent: Tree | None) -> Iterator[tuple[Tree | None, Tree]]:
    yield parent, tree
    for child in tree.children:
        yield from _pairs(child, tree)


def _width(step: Tree) -> int:
    """How many columns a step gives, where that can be told; else 0, so that nothing is refused for it."""
    while step.name in ("SubqueryAlias", "View", "Filter", "Sort", "Repartition", "RepartitionByExpression"):
        step = step.children[0]
    for name in ("projectList", "aggregateExpressions", "output"):
        if listed := step.listed(name):
            return len(listed)
    if step.name == "Window":
        return _width(step.children[0]) + len(step.listed("windowExpressions"))
    if step.name in ("Union", "Deduplicate", "Distinct"):
        return _width(step.children[0])
    if step.name == "Join":
        semi = step.fields["joinType"] in ("LeftSemi", "LeftAnti")
        return sum(map(_width, step.children[:1] if semi else step.children))
    return 0


def everything(plan: Tree) -> Iterator[Tree]:
    """Every step and every expression of a plan, those of subqueries as well."""
    for step in plan.walk():
        yield step
        for value in step.fields.values():
            for tree in trees_in(value):
                yield from everything(tree)
