"""Whether the measures of an accumulating function merge as declared: as sums, as least or as greatest values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from icefield.engine.promises.anchors import Refusal

if TYPE_CHECKING:
    from icefield.engine.promises.plan_tree import Tree

#: The aggregates that merge in each way.
MERGES = {
    "sum": ("sum", "count", "count_if"),
    "min": ("min", "bool_and", "every"),
    "max": ("max", "bool_or", "some", "any"),
}
_ZERO = re.compile(r"-?0+(?:\.0+)?L?")
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
#: Types of which one can be cast to the other without another order.
_ORDERED = (_WHOLE, ("timestamp", "date"), ("timestamp_ntz", "date"))


def require_merging(step: Tree, name: str, how: str, entry: Tree) -> None:
    """Refuses a measure that does not merge in the way it is declared; `entry` has types (`spark_plans.typed`)."""
    value = _spelled_out(entry)
    if not (_is_linear(value) if how == "sum" else _is_monotone(value, how)):
        told = str(entry.fields.get("sql", name))
        in_python = any(one.name == "PythonUDAF" for one in value.walk())
        raise Refusal(step, f'computes `{name}` as {told}, which cannot be merged with "{how}"', known=not in_python)


def _is_linear(value: Tree) -> bool:
    """Whether a value is made of sums in such a way that it is one: what is added to NULL must not be lost by it."""
    value = _spelled_out(value)
    name, parts = value.name, value.children
    if name == "Cast":
        return _keeps_digits(parts[0], value) and _is_linear(parts[0])
    if name == "Coalesce":
        return len(parts) == 2 and _is_zero(parts[1]) and _is_linear(parts[0])
    if name in ("UnaryMinus", "UnaryPositive"):
        return _is_linear(parts[0])
    if name in ("Add", "Subtract"):
        sums = [part for part in parts if not _is_zero(part)]
        never_null = len(sums) < len(parts) or all(map(_is_never_null, sums))
        return never_null and _is_exact(value) and all(map(_is_linear, sums))
    if name == "Multiply":
        whole = str(value.fields["type"]) in _WHOLE
        return whole and any(_is_constant(one) and _is_linear(other) for one, other in (parts, parts[::-1]))
    return _is_aggregate(value, "sum")


def _is_monotone(value: Tree, how: str) -> bool:
    """Whether a value is made of least or greatest ones in such a way that it is one."""
    value = _spelled_out(value)
    if value.name == "Cast":
        return _keeps_order(value.children[0], value) and _is_monotone(value.children[0], how)
    if value.name == {"min": "Least", "max": "Greatest"}[how]:
        return all(_is_monotone(part, how) for part in value.children)
    return _is_aggregate(value, how)


def _spelled_out(value: Tree) -> Tree:
    """What stands behind another name for it: an alias, or a function such as `nvl`."""
    while value.name == "Alias" or ("replacement" in value.fields and len(value.children) == 1):
        (value,) = value.children
    return value


def _is_aggregate(value: Tree, how: str) -> bool:
    if value.name != "AggregateExpression" or value.fields.get("isDistinct") is not False:
        return False
    return value.children[0].fields.get("function") in MERGES[how]


def _is_never_null(value: Tree) -> bool:
    """Whether a value that is made of sums has one in every group."""
    value = _spelled_out(value)
    if value.name == "AggregateExpression":
        return value.children[0].fields.get("function") != "sum"
    return value.name == "Coalesce" or all(_is_constant(part) or _is_never_null(part) for part in value.children)


def _is_constant(value: Tree) -> bool:
    value = _spelled_out(value)
    return value.name == "Literal" or (value.name == "Cast" and _is_constant(value.children[0]))


def _is_zero(value: Tree) -> bool:
    while (value := _spelled_out(value)).name == "Cast":
        value = value.children[0]
    return value.name == "Literal" and _ZERO.fullmatch(str(value.fields.get("value"))) is not None


def _is_exact(value: Tree) -> bool:
    """Whether adding gives up no digits: of long decimals Spark keeps fewer."""
    return all(_scale(value) >= _scale(part) for part in value.children)


def _keeps_digits(before: Tree, cast: Tree) -> bool:
    """Whether a cast of a sum rounds nothing, and fails where it is too large."""
    kinds = [str(one.fields["type"]) for one in (before, cast)]
    exact = all(kind in _WHOLE or _DECIMAL.fullmatch(kind) for kind in kinds)
    return exact and cast.fields.get("evalMode") != "TRY" and _scale(before) <= _scale(cast)


def _keeps_order(before: Tree, cast: Tree) -> bool:
    kinds = [str(one.fields["type"]) for one in (before, cast)]
    if cast.fields.get("evalMode") == "TRY":
        return False
    return bool(cast.fields.get("renames")) or any(all(kind in group for kind in kinds) for group in _ORDERED)


def _scale(value: Tree) -> int:
    found = _DECIMAL.fullmatch(str(value.fields.get("type")))
    return int(found[2]) if found else 0
