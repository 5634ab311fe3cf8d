"""What is proven from a plan must be true; what is not plain is left to a trial."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as F

from icefield.declare import accumulate, append, by_key, collecting, files, lookup, ref, table
from icefield.engine.frames import empty_frame
from icefield.engine.proof import is_proven
from icefield.graph import build_graph

pytestmark = pytest.mark.spark

COLUMNS = "k BIGINT, g STRING, v DECIMAL(12,2), n INT"


def proven(spark: Any, refresh: Any, function: Any, **inputs: Any) -> bool:
    with collecting() as registry:
        for name in ("a", "b"):
            table(f"t.{name}", source=files(f"{name}/*.csv", schema=COLUMNS), refresh=append())(_same)
        table("t.x", refresh=refresh, inputs=inputs)(function)
    node = build_graph(registry.tables)["t.x"]
    frames = {edge.parameter: empty_frame(spark, COLUMNS) for edge in node.edges}
    return is_proven(node, frames, function(**frames))


def _same(rows: Any) -> Any:
    return rows


SUMS = {"v": "sum", "c": "count", "m": "max"}


def summed(rows: Any) -> Any:
    totals = F.coalesce(F.sum("v"), F.lit(0)).cast("DECIMAL(20,2)").alias("v")
    return rows.groupBy("k").agg(totals, F.count_if(F.expr("g = 'x'")).alias("c"), F.max(F.struct("n", "g")).alias("m"))


def test_plain_groups_are_proven(spark: Any) -> None:
    def one(a: Any) -> Any:
        return summed(a.where("n > 0").withColumn("n", F.col("n") + 1))

    def united(a: Any, b: Any) -> Any:
        both = a.select("k", "v", "g", "n").unionByName(b.select("k", "n"), allowMissingColumns=True)
        return summed(both)

    def looked_up(a: Any, b: Any) -> Any:
        return summed(a.join(b.select(F.col("g").alias("h")).distinct(), F.expr("g = h"), "left"))

    assert proven(spark, accumulate("k", **SUMS), one, a="t.a")  # type: ignore[arg-type]
    assert proven(spark, accumulate("k", **SUMS), united, a="t.a", b="t.b")  # type: ignore[arg-type]
    assert proven(spark, accumulate("k", **SUMS), looked_up, a="t.a", b=lookup("t.b"))  # type: ignore[arg-type]

    def distinct(a: Any) -> Any:
        return a.groupBy("k").agg(F.count_distinct("g").alias("n"), F.sum("v").alias("v"))

    assert proven(spark, by_key("k"), distinct, a="t.a")

    def twice(a: Any) -> Any:
        return a.groupBy("k", "g").agg(F.sum("v").alias("v")).groupBy("k").agg(F.max("v").alias("v"))

    assert proven(spark, by_key("k"), twice, a="t.a")
    assert not proven(spark, accumulate("k", v="max"), twice, a="t.a"), "the largest sum does not merge"


def test_what_does_not_merge_is_not_proven(spark: Any) -> None:
    def measured(value: Any) -> Any:
        def function(a: Any) -> Any:
            return a.groupBy("k").agg(value().alias("v"))

        return function

    cases = {
        "a distinct sum": (lambda: F.sum_distinct("n"), "sum"),
        "a rounded sum": (lambda: F.sum("v").cast("DECIMAL(20,1)"), "sum"),
        "a sum plus one": (lambda: F.sum("n") + 1, "sum"),
        "a sum that is 1 where empty": (lambda: F.coalesce(F.sum("n"), F.lit(1)), "sum"),
        "a mean": (lambda: F.avg("v"), "sum"),
        "a maximum ordered as text": (lambda: F.max("n").cast("string"), "max"),
        "a minimum merged as a maximum": (lambda: F.min("n"), "max"),
        "a maximum that is 0 where empty": (lambda: F.coalesce(F.max("n"), F.lit(0)), "max"),
    }
    for told, (value, how) in cases.items():
        assert not proven(spark, accumulate("k", v=how), measured(value), a="t.a"), told


def test_another_key_than_the_inputs_is_not_proven(spark: Any) -> None:
    def other(a: Any) -> Any:
        return a.select(F.col("n").cast("BIGINT").alias("k"), "v").groupBy("k").agg(F.sum("v").alias("v"))

    def mixed(a: Any, b: Any) -> Any:
        both = a.select("k", "v").unionByName(b.select(F.col("n").cast("BIGINT").alias("k"), "v"))
        return both.groupBy("k").agg(F.sum("v").alias("v"))

    def without_group(a: Any) -> Any:
        return a.groupBy("g").agg(F.max("k").alias("k"))

    def joined(a: Any, b: Any) -> Any:
        return a.join(b.select("k", F.col("v").alias("w")), "k").groupBy("k").agg(F.sum("w").alias("v"))

    def limited(a: Any) -> Any:
        return a.limit(3).groupBy("k").agg(F.sum("v").alias("v"))

    def compared(a: Any) -> Any:
        above = "SELECT k, v FROM {a} WHERE v > (SELECT avg(v) FROM {a})"
        return a.sparkSession.sql(above, a=a).groupBy("k").agg(F.sum("v").alias("v"))

    assert not proven(spark, by_key("k"), compared, a="t.a")
    for function, inputs in [
        (other, {"a": "t.a"}), (mixed, {"a": "t.a", "b": "t.b"}), (without_group, {"a": "t.a"}),
        (joined, {"a": "t.a", "b": "t.b"}), (limited, {"a": "t.a"}),
    ]:  # fmt: skip
        assert not proven(spark, by_key("k"), function, **inputs), function.__name__

    def renamed(a: Any) -> Any:
        return a.select(F.col("n").alias("k"), "v").groupBy("k").agg(F.sum("v").alias("v"))

    assert proven(spark, by_key("k"), renamed, a=ref("t.a", k="`n`"))
    assert not proven(spark, by_key("k"), renamed, a="t.a")
