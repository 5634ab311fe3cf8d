"""What has to be removed from some rows and added to them to get others: a difference of multisets."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructType

from icefield.engine.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField

CHANGE = "_icefield_change"
REMOVED, ADDED = "removed", "added"
_SIGN, _NET, _TIMES = "_icefield_sign", "_icefield_net", "_icefield_times"
_WAS, _ROW = "_icefield_was", "_icefield_row"
#: Types with values inside.
NESTED = (StructType, ArrayType, MapType)


def difference(before: DataFrame, after: DataFrame) -> DataFrame:
    """The rows of `before` that are to go and those of `after` that are to come, each as often; equal pairs cancel."""
    signed = before.withColumn(_SIGN, F.lit(-1)).unionByName(after.withColumn(_SIGN, F.lit(1)))
    return _net(signed, before)


def difference_of_pairs(before: DataFrame, after: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The same, by a join: for rows of which a key has one at most before, and one after."""
    fields = list(enumerate(after.schema))
    renamed = [F.col(quoted(field.name)).alias(_was(n)) for n, field in fields]
    old = before.select(*renamed, F.lit(True).alias(_WAS))  # noqa: FBT003 - Spark's literal
    own = [F.col(quoted(f.name)).eqNullSafe(F.col(_was(n))) for n, f in fields if f.name in keys]
    equal = [_comparable(f).eqNullSafe(_comparable(f, _was(n))) for n, f in fields]
    same = F.coalesce(F.col(_WAS) & reduce(and_, equal), F.lit(False))  # noqa: FBT003
    came = F.struct(*(F.col(quoted(f.name)) for _, f in fields), F.lit(ADDED).alias(CHANGE))
    went = F.struct(*(F.col(_was(n)).alias(f.name) for n, f in fields), F.lit(REMOVED).alias(CHANGE))
    told = F.when(F.col(_WAS), F.array(went, came)).otherwise(F.array(came))
    pairs = after.join(old, reduce(and_, own), "left").where(~same)
    return pairs.select(F.explode(told).alias(_ROW)).select(f"{_ROW}.*")


def _was(number: int) -> str:
    return f"_icefield_was_{number}"


def net(changes: DataFrame) -> DataFrame:
    """The same of a change that was told in several parts: what came and went again is no change."""
    sign = F.when(F.col(CHANGE) == ADDED, 1).otherwise(-1)
    rows = changes.drop(CHANGE)
    return _net(changes.withColumn(_SIGN, sign).drop(CHANGE), rows)


def _net(signed: DataFrame, like: DataFrame) -> DataFrame:
    by = {field.name: _comparable(field).alias(f"_icefield_by_{n}") for n, field in enumerate(like.schema)}
    maps = [field.name for field in like.schema if isinstance(field.dataType, MapType)]
    kept = [F.first(quoted(name), ignorenulls=True).alias(name) for name in maps]
    counted = signed.groupBy(*by.values()).agg(F.sum(_SIGN).alias(_NET), *kept).where(f"{_NET} <> 0")
    columns = [
        F.col(quoted(name)) if name in maps else F.col(f"_icefield_by_{n}").alias(name)
        for n, name in enumerate(like.columns)
    ]
    side = F.when(F.col(_NET) > 0, ADDED).otherwise(REMOVED).alias(CHANGE)
    times = F.explode(F.array_repeat(F.lit(1), F.abs(_NET).cast("int"))).alias(_TIMES)
    return counted.select(*columns, side, times).drop(_TIMES)


def _comparable(field: StructField, name: str = "") -> Column:
    """A value that rows can be grouped by: Spark groups by everything but maps."""
    column = F.col(quoted(name or field.name))
    return F.array_sort(F.map_entries(column)) if isinstance(field.dataType, MapType) else column


def same_rows(one: DataFrame, other: DataFrame) -> bool:
    """Whether two frames hold the same rows as multisets, by count and two independent sums of hashes.

    A hash passes over NULLs, inside of nested values too, and does not tell where one of them ends; rows with such
    values are compared one by one.
    """
    if any(isinstance(field.dataType, NESTED) for field in one.schema):
        return difference(one, other).isEmpty()

    def digest_of(frame: DataFrame) -> tuple[Any, ...]:
        names = [quoted(column) for column in sorted(frame.columns)]
        # Without a word on NULLs (1, NULL) and (NULL, 1) would be the same row.
        columns = [part for name in names for part in (F.col(name), F.col(name).isNull())]
        first, second = F.xxhash64(*columns), F.xxhash64(F.lit("second"), *columns)
        sums = [F.sum(value.cast("DECIMAL(38,0)")) for value in (first, second)]
        return tuple(frame.agg(F.count("*"), *sums).first() or ())

    return digest_of(one) == digest_of(other)
