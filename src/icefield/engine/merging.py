"""Whether the measures of an accumulating function merge as they say, as far as Spark's plan tells.

What surely does not is refused: data may take long to show it. What the plan leaves open is tried.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DecimalType, DoubleType, FloatType, NumericType

from icefield.declare import Accumulate
from icefield.engine.lineage import analysed, children_of, copied, items, outputs_of
from icefield.errors import NotExact, PromiseBroken

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from icefield.graph import Node

#: The aggregates that merge by each way.
MERGES = {
    "sum": ("sum", "count", "count_if"),
    "min": ("min", "bool_and", "every"),
    "max": ("max", "bool_or", "some", "any"),
}
_ABOVE = ("Project", "SubqueryAlias", "Sort", "Filter")


def measured(node: Node, output: DataFrame) -> StructType:
    """The keys and measures that an accumulating function gives; anything else cannot be merged."""
    assert isinstance(node.refresh, Accumulate)
    schema = output.schema
    wanted = [*node.refresh.keys, *node.refresh.measures]
    if sorted(schema.names) != sorted(wanted):
        gone = [f"{name} is missing" for name in wanted if name not in schema.names]
        more = [f"{name} is neither key nor measure" for name in schema.names if name not in wanted]
        raise PromiseBroken(
            f"{node.name} accumulates, but its function gives other columns than its keys and measures:"
            f" {'; '.join([*gone, *more])}",
            where=str(node.location),
            remedy="name each measure and how it merges; columns made from measures belong into finish=",
        )
    for name, how in node.refresh.measures.items():
        if how == "sum":
            _require_sum(node, name, output)
    return schema.toNullable()  # as it is stored


def _require_sum(node: Node, name: str, output: DataFrame) -> None:
    kind = output.schema[name].dataType
    told = kind.simpleString().upper()
    if not isinstance(kind, NumericType):
        raise PromiseBroken(
            f"{node.name} adds up {name}, which is {told}",
            where=str(node.location),
            remedy='only numbers are added up: merge it by "min", "max", "first" or "last"',
        )
    if isinstance(kind, DoubleType | FloatType):
        raise NotExact(
            f"{node.name} adds up {name}, which is {told}: the sum of such numbers depends on their order, so that"
            " merging it is not exact",
            where=str(node.location),
            remedy=f"sum it as DECIMAL, or {_by_key(node)}",
        )
    if isinstance(kind, DecimalType) and output.sparkSession.conf.get("spark.sql.ansi.enabled") != "true":
        raise NotExact(
            f"{node.name} adds up {name}, which is {told}: without spark.sql.ansi.enabled a sum that is too large is"
            " NULL, and nothing can be added to it",
            where=str(node.location),
            remedy=f"leave spark.sql.ansi.enabled on, or {_by_key(node)}",
        )


def require_merging(node: Node, output: DataFrame) -> None:
    """Refuses groups that are left out, distinct values, and aggregates that do not merge in the way they say."""
    assert isinstance(node.refresh, Accumulate)
    followed = {column.name(): column.exprId().id() for column in outputs_of(analysed(output))}
    plan = analysed(output)
    while plan.nodeName() in _ABOVE:
        keys = {followed[key] for key in node.keys if key in followed}
        if plan.nodeName() == "Filter" and _groups(plan) and not _uses(plan.condition()) <= keys:
            raise _refused(node, "leaves out groups by what was counted of them so far", "let finish= leave them out")
        if plan.nodeName() == "Project":
            entries = items(plan.projectList())
            below = {name: copied(entries, wanted) for name, wanted in followed.items()}
            followed = {name: wanted for name, wanted in below.items() if wanted is not None}
        (plan,) = children_of(plan)
    if plan.nodeName() != "Aggregate":
        return
    made = {entry.exprId().id(): entry for entry in items(plan.aggregateExpressions())}
    for name, how in node.refresh.measures.items():
        if name in followed:
            _require_merging(node, name, how, made[followed[name]])


def _uses(condition: Any) -> set[int]:
    """The columns that a condition is about."""
    if condition.nodeName() == "AttributeReference":
        return {int(condition.exprId().id())}
    return {found for child in children_of(condition) for found in _uses(child)}


def _groups(plan: Any) -> bool:
    """Whether rows are grouped below a step."""
    return any(child.nodeName() == "Aggregate" or _groups(child) for child in children_of(plan))


def _require_merging(node: Node, name: str, how: str, entry: Any) -> None:
    value = entry.child() if entry.nodeName() == "Alias" else entry
    if merges(value, how) or (_is_linear(value) if how == "sum" else _is_monotone(value, how)):
        return
    raise _refused(node, f"gives {name} as {value.sql()}, which does not merge by {how}", _FINISHED)


_FINISHED = "let the measures be sums, counts, least and greatest values, and make the rest of them in finish="


def _refused(node: Node, what: str, remedy: str) -> PromiseBroken:
    return PromiseBroken(
        f"{node.name} accumulates, but its function {what}: what comes of all rows cannot be merged from what came of"
        " the old and of the new ones",
        where=str(node.location),
        remedy=f"{remedy}, or {_by_key(node)}",
    )


def _by_key(node: Node) -> str:
    return f"declare the table by_key({', '.join(map(repr, node.keys))})"


def merges(value: Any, how: str) -> bool:
    """Whether an expression surely is an aggregate that merges in this way; a sum may stand for 0 where it is empty."""
    value = _spelled_out(value)
    while value.nodeName() in ("Cast", "Coalesce"):
        parts = children_of(value)
        if value.nodeName() == "Cast" and not _keeps_value(parts[0].dataType(), value, how):
            return False
        if value.nodeName() == "Coalesce" and not (how == "sum" and _is_zero(parts[1:])):
            return False
        value = _spelled_out(parts[0])
    return _is_aggregate(value, how)


def _spelled_out(value: Any) -> Any:
    """What stands behind another name for coalesce."""
    while value.nodeName() in ("Nvl", "ZeroIfNull"):
        (value,) = children_of(value)
    return value


def _is_aggregate(value: Any, how: str) -> bool:
    if value.nodeName() != "AggregateExpression" or value.isDistinct():
        return False
    return str(value.aggregateFunction().prettyName()) in MERGES[how]


def _is_linear(value: Any) -> bool:
    """Whether a value is made of sums in such a way that it is one: what is added to NULL must not be lost by it."""
    value = _spelled_out(value)
    name, parts = value.nodeName(), children_of(value)
    if name == "Cast":
        return _keeps_digits(parts[0].dataType(), value) and _is_linear(parts[0])
    if name == "Coalesce":
        return _is_zero(parts[1:]) and _is_linear(parts[0])
    if name in ("UnaryMinus", "UnaryPositive"):
        return _is_linear(parts[0])
    if name in ("Add", "Subtract"):
        sums = [part for part in parts if not _is_zero([part])]
        return all(map(_is_linear, sums)) and (len(sums) < len(parts) or all(map(_is_never_null, sums)))
    if name == "Multiply":
        return any(one.foldable() and _is_linear(other) for one, other in (parts, parts[::-1]))
    return _is_aggregate(value, "sum")


def _is_never_null(value: Any) -> bool:
    """Whether a value that is made of sums has one in every group."""
    value = _spelled_out(value)
    if value.nodeName() == "AggregateExpression":
        return str(value.aggregateFunction().prettyName()) != "sum"
    return value.nodeName() == "Coalesce" or all(part.foldable() or _is_never_null(part) for part in children_of(value))


def _is_monotone(value: Any, how: str) -> bool:
    """Whether a value is made of least or greatest ones in such a way that it is one, as far as that can be tried."""
    name, parts = value.nodeName(), children_of(value)
    if name == "Cast":
        return _keeps_order(parts[0].dataType(), value) and _is_monotone(parts[0], how)
    if name == {"min": "Least", "max": "Greatest"}[how]:
        return all(_is_monotone(part, how) for part in parts)
    return _is_aggregate(value, how)


def _keeps_order(before: Any, cast: Any) -> bool:
    kinds = [kind.typeName() for kind in (before, cast.dataType())]
    return str(cast.evalMode()) != "TRY" and any(all(kind in group for kind in kinds) for group in _ORDERED)


#: Types of which one can be cast to the other without another order.
_ORDERED = (("byte", "short", "integer", "long"), ("timestamp", "date"), ("timestamp_ntz", "date"))
_ZERO = re.compile(r"-?0+(?:\.0+)?L?")


def _is_zero(rest: list[Any]) -> bool:
    """Whether all that a sum is replaced by is 0."""
    if len(rest) != 1 or not rest[0].foldable():
        return False
    inner = rest[0]
    while inner.nodeName() == "Cast":
        inner = inner.child()
    return _ZERO.fullmatch(str(inner.toString())) is not None


def _keeps_value(before: Any, cast: Any, how: str) -> bool:
    """Whether casting the merged value is merging the cast ones: not so if it rounds, orders in another way, or gives
    NULL for what is too large.
    """
    after = cast.dataType()
    if how != "sum":
        return bool(before.catalogString() == after.catalogString())
    return _keeps_digits(before, cast) and _scale(before) == _scale(after)


def _keeps_digits(before: Any, cast: Any) -> bool:
    """Whether a cast of a sum rounds nothing, and fails where it is too large."""
    exact = ("byte", "short", "integer", "long", "decimal")
    names = [kind.typeName().partition("(")[0] for kind in (before, cast.dataType())]
    kept = all(name in exact for name in names) and _scale(before) <= _scale(cast.dataType())
    return str(cast.evalMode()) != "TRY" and kept


def _scale(kind: Any) -> int:
    return int(kind.scale()) if kind.typeName().startswith("decimal") else 0
