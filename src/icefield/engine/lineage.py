"""What a function does to the rows it is handed, as far as Spark's plan tells it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

#: Steps that give no row that was not there, and none twice.
_ROW_BY_ROW = ("Project", "Filter", "SubqueryAlias", "Sort", "GlobalLimit", "LocalLimit")

#: Expressions with a query inside.
_SUBQUERIES = frozenset({"ScalarSubquery", "InSubquery", "ListQuery", "Exists", "LateralSubquery"})
_CLASS = re.compile(r'"class":"([\w.$]+)"')


def hands_through(rows: DataFrame, output: DataFrame, column: str) -> bool:
    """Whether every row of `output` is one of `rows`, with this column as it was."""
    plan = analysed(output)
    end = {attribute.exprId().id(): attribute.name() for attribute in outputs_of(analysed(rows))}
    found = [attribute for attribute in outputs_of(plan) if attribute.name() == column]
    if len(found) != 1:
        return False
    followed = found[0].exprId().id()
    while plan.children().size() == 1:
        if plan.nodeName() not in _ROW_BY_ROW:
            return False
        if end.get(followed) != column and plan.nodeName() == "Project":
            followed = copied(items(plan.projectList()), followed)
        plan = plan.children().apply(0)
    return bool(plan.children().isEmpty()) and end.get(followed) == column


def copied(entries: list[Any], wanted: int) -> int | None:
    """The column below that a column is a copy of, if it is just that; a cast to the type it has changes nothing."""
    for entry in entries:
        if entry.exprId().id() == wanted:
            source = entry.child() if entry.nodeName() == "Alias" else entry
            while source.nodeName() == "Cast" and source.child().dataType().sameType(source.dataType()):
                source = source.child()
            return int(source.exprId().id()) if source.nodeName() == "AttributeReference" else None
    return None


def steps_of(output: DataFrame) -> list[str]:
    """What happens to rows on their way, by the names that Spark has for it; a step of several inputs ends the list."""
    plan, names = analysed(output), []
    while not plan.children().isEmpty():
        names.append(str(plan.nodeName()))
        if plan.children().size() > 1:
            break
        plan = plan.children().apply(0)
    return names


def leaves(frame: DataFrame) -> frozenset[int]:
    """What tells the leaves of a frame's plan apart from those of any other."""
    return leaves_of(analysed(frame))


def walk(output: DataFrame) -> Iterator[tuple[str, list[frozenset[int]]]]:
    """Every step of a plan by the name that Spark has for it, with the leaves below each of its children."""
    for plan in steps_below(analysed(output)):
        name = str(plan.nodeName())
        yield join_of(plan) if name == "Join" else name, [leaves_of(child) for child in children_of(plan)]


def steps_below(plan: Any) -> Iterator[Any]:
    """A step of a plan and all that is below it."""
    waiting = [plan]
    while waiting:
        step = waiting.pop()
        yield step
        waiting += children_of(step)


def join_of(step: Any) -> str:
    """A join with its kind."""
    return f"Join {step.joinType().sql()}"


def keeps_any(output: DataFrame) -> bool:
    """Whether of rows that are equal in some columns one is kept, whichever comes first."""
    found = [step for step in steps_below(analysed(output)) if step.nodeName() == "Deduplicate"]
    return any(step.keys().size() < step.child().output().size() for step in found)


def expressions(output: DataFrame) -> frozenset[str]:
    """The names of all expressions in a plan, as Spark's classes are called."""
    return frozenset(_expressions(output))


def has_unsorted_list(output: DataFrame) -> bool:
    """Whether values are collected and not sorted at once, so that they have the order in which rows came."""
    found = _expressions(output)
    sorted_ones = [found[n - 2] == "SortArray" for n, name in enumerate(found) if name == "CollectList"]
    return not all(sorted_ones)


def _expressions(output: DataFrame) -> list[str]:
    """In Spark's order: each before what it is made of."""
    told = analysed(output).toJSON()
    return [name.rpartition(".")[2] for name in _CLASS.findall(told)]


def has_subquery(output: DataFrame) -> bool:
    """Whether rows are compared with the result of another query, which is no step of the plan."""
    return not _SUBQUERIES.isdisjoint(expressions(output))


def leaves_of(plan: Any) -> frozenset[int]:
    """The same of a step."""
    children = children_of(plan)
    if children:
        return frozenset(found for child in children for found in leaves_of(child))
    return frozenset(attribute.exprId().id() for attribute in outputs_of(plan))


def children_of(node: Any) -> list[Any]:
    """What is below a step or an expression."""
    return items(node.children())


def items(sequence: Any) -> list[Any]:
    """The items of a sequence of Scala's."""
    return [sequence.apply(number) for number in range(sequence.size())]


def analysed(frame: DataFrame) -> Any:
    """The plan of a frame, with every name resolved."""
    return frame._jdf.queryExecution().analyzed()


def outputs_of(plan: Any) -> list[Any]:
    """The columns that a step gives."""
    return items(plan.output())
