"""Merges measures: sums, counts, least and greatest values of new rows with those that are stored."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType, IntegralType, NumericType, StructType

from icefield.declare import Accumulate
from icefield.engine.checks.aggregates import ROUNDED
from icefield.engine.refresh.difference import ADDED, REMOVED
from icefield.engine.sql import quoted, selected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField

    from icefield.graph import Node

SIDE, AGAIN, ROW, OLD = "_icefield_side", "_icefield_again", "_icefield_row", "stored"


def adds_up(node: Node, like: StructType) -> bool:
    """Whether `+` gives up no digits of any sum."""
    assert isinstance(node.refresh, Accumulate)
    sums = [like[name].dataType for name, how in node.refresh.measures.items() if how == "sum"]
    return not any(ROUNDED.fullmatch(kind.simpleString()) for kind in sums)


def with_added(node: Node, delta: DataFrame, stored: DataFrame, like: StructType) -> DataFrame:
    """The measures of what came, with those that are stored; both have one row a key at most."""
    assert isinstance(node.refresh, Accumulate)
    names = [field.name for field in like]
    old = stored.select(*(F.col(quoted(name)).alias(part_name(OLD, n)) for n, name in enumerate(names)))
    place = {name: F.col(part_name(OLD, n)) for n, name in enumerate(names)}
    same = reduce(lambda a, b: a & b, [F.col(quoted(key)).eqNullSafe(place[key]) for key in node.keys])
    joined = delta.join(old, same, "left")
    return joined.select(*(_with_old(node.refresh.measures.get(f.name), place[f.name], f) for f in like))


def _with_old(how: str | None, old: Column, field: StructField) -> Column:
    new = F.col(quoted(field.name))
    value = new  # of a key
    if how == "sum":
        value = F.when(old.isNull(), new).when(new.isNull(), old).otherwise(old + new)
    elif how is not None:
        value = F.least(old, new) if how == "min" else F.greatest(old, new)
    return value.cast(field.dataType).alias(field.name)


def merged_halves(node: Node, one: DataFrame, other: DataFrame, like: StructType) -> DataFrame:
    """The measures of two halves, merged as those of new rows are into the stored ones."""
    sides = one.withColumn(SIDE, F.lit(OLD)).unionByName(other.withColumn(SIDE, F.lit(ADDED)))
    merged = merge(node, sides.withColumn(ROW, F.lit(None).cast("string")), like)
    return merged.select(*(quoted(field.name) for field in like))


def merge(node: Node, rows: DataFrame, like: StructType) -> DataFrame:
    """One row a key: its measures after the change, whether that is in doubt, and how many rows each side gave."""
    assert isinstance(node.refresh, Accumulate)
    measures = list(node.refresh.measures.items())
    sides = (OLD, ADDED, REMOVED)
    keys = [quoted(key) for key in node.keys]
    grouped = [f"count_if({SIDE} = '{side}') AS {count_name(side)}" for side in sides]
    for n, (name, how) in enumerate(measures):
        value = quoted(name)
        grouped += [f"first(IF({SIDE} = '{side}', {value}, NULL), true) AS {part_name(side, n)}" for side in sides]
        if how == "sum":  # by an aggregate, since `+` of long DECIMALs gives up digits
            grouped.append(f"sum(IF({SIDE} = '{REMOVED}', -{value}, {value})) AS {part_name('total', n)}")
    grouped.append(f"first({ROW}, true) AS {ROW}")
    joined = rows.groupBy(*keys).agg(*map(F.expr, grouped))
    merged = [_merged(how, n, like[name]) for n, (name, how) in enumerate(measures)]
    values = fitted_values([(name, value) for (name, _), (value, _) in zip(measures, merged, strict=True)], like)
    # A key that lost rows surely has some left where rows came for it, too, or where something is left to be summed.
    left = [
        f"{count_name(ADDED)} > 0",
        *(_is_left(n, like[name]) for n, (name, how) in enumerate(measures) if how == "sum"),
    ]
    uncertain = f"({count_name(REMOVED)} > 0 AND (NOT ({' OR '.join(left)}) OR {count_name(OLD)} = 0))"
    doubtful = " OR ".join([uncertain, *(f"({doubt})" for _, doubt in merged)])
    return selected(joined, [*keys, *values, f"coalesce({doubtful}, true) AS {AGAIN}", *map(count_name, sides), ROW])


def fitted_values(values: Sequence[tuple[str, str]], like: StructType) -> list[str]:
    """Values as SQL in the types of their columns: aggregates may have given them wider ones."""
    return [
        f"CAST({value} AS {like[name].dataType.simpleString()}) AS {quoted(name)}"
        if isinstance(like[name].dataType, DecimalType | NumericType)
        else f"{value} AS {quoted(name)}"
        for name, value in values
    ]


def _is_left(number: int, field: StructField) -> str:
    """Whether a sum after the change is surely one of some values: they do not add up to 0."""
    exact = isinstance(field.dataType, IntegralType | DecimalType)
    return f"coalesce({part_name('total', number)} <> 0, false)" if exact else "false"


def _merged(how: str, number: int, field: StructField) -> tuple[str, str]:
    """The new value of a measure, and whether it is in doubt."""
    old, added, removed = (part_name(side, number) for side in (OLD, ADDED, REMOVED))
    if how == "sum":
        # A sum without any value is NULL, unless the function says otherwise: values must be left where it may be.
        empty = f"({added} IS NULL AND NOT {_is_left(number, field)})" if field.nullable else "false"
        return part_name("total", number), f"{removed} IS NOT NULL AND ({old} IS NULL OR {empty})"
    pick, reaches, beyond = ("least", ">=", "<=") if how == "min" else ("greatest", "<=", ">=")
    was_extreme = f"({removed} IS NOT NULL AND coalesce({removed} {beyond} {old}, true))"
    return f"{pick}({old}, {added})", f"{was_extreme} AND NOT coalesce({old} {reaches} {added}, false)"


def count_name(side: str) -> str:
    return f"_icefield_{side}"


def part_name(side: str, number: int) -> str:
    return f"_icefield_{side}_{number}"
