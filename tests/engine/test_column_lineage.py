"""Which columns of its inputs a function's columns are made of, read from Spark's plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from icefield.engine.promises.column_lineage import column_lineage, through
from icefield.engine.promises.spark_plans import input_frame
from icefield.graph.column_lineage import Origin

pytestmark = pytest.mark.spark

A = "k BIGINT, v INT, s STRING, _icefield_row BIGINT"
B = "k BIGINT, w INT, at TIMESTAMP, tags ARRAY<STRING>"
Function = Callable[[DataFrame, DataFrame], DataFrame]

#: Each function, what its columns are made of, and what decides on its rows.
CASES: dict[str, tuple[Function, dict[str, str], str]] = {
    "as they are": (
        lambda a, b: a.select("k", F.col("v").alias("x"), "_icefield_row"),
        {"k": "a.k IDENTITY", "x": "a.v IDENTITY"},
        "",
    ),
    "computed": (
        lambda a, b: a.withColumn("x", F.col("v") + F.length("s")).select("x", F.lit(1).alias("one")),
        {"x": "a.s TRANSFORMATION, a.v TRANSFORMATION", "one": ""},
        "",
    ),
    "hashed": (
        lambda a, b: a.select(F.sha2("s", 256).alias("h")).select(F.upper("h").alias("h")),
        {"h": "a.s TRANSFORMATION masked"},
        "",
    ),
    "grouped": (
        lambda a, b: a.where("v > 0").groupBy(F.upper("s").alias("s")).agg(F.sum("v").alias("t"), F.count("*")),
        {"s": "a.s TRANSFORMATION", "t": "a.v AGGREGATION", "count(1)": ""},
        "a.s GROUP_BY, a.v FILTER",
    ),
    "joined": (
        lambda a, b: a.join(b, "k", "left").select("k", "v", "w"),
        {"k": "a.k IDENTITY", "v": "a.v IDENTITY", "w": "b.w IDENTITY"},
        "a.k JOIN, b.k JOIN",
    ),
    "joined with itself": (
        lambda a, b: a.alias("l").join(a.alias("r"), F.expr("l.k = r.v")).selectExpr("l.s AS s", "r.k AS k"),
        {"s": "a.s IDENTITY", "k": "a.k IDENTITY"},
        "a.k JOIN, a.v JOIN",
    ),
    "kept where there is a match": (
        lambda a, b: a.select("v", "k").join(b, "k", "left_semi"),
        {"k": "a.k IDENTITY", "v": "a.v IDENTITY"},
        "a.k JOIN, b.k JOIN",
    ),
    "by cases": (
        lambda a, b: a.select(F.when(F.col("s") == "x", F.col("v")).otherwise(F.col("k")).alias("c")),
        {"c": "a.k TRANSFORMATION, a.s CONDITIONAL, a.v TRANSFORMATION"},
        "",
    ),
    "over a window": (
        lambda a, b: a.select(F.sum("v").over(Window.partitionBy("k").orderBy("s")).alias("t")),
        {"t": "a.k WINDOW, a.s WINDOW, a.v AGGREGATION"},
        "",
    ),
    "the newest of each": (
        lambda a, b: (
            b.withColumn("n", F.row_number().over(Window.partitionBy("k").orderBy("at"))).where("n = 1").select("w")
        ),
        {"w": "b.w IDENTITY"},
        "b.at FILTER, b.k FILTER",
    ),
    "united": (
        lambda a, b: a.select("k", "v").union(b.select("k", "w")),
        {"k": "a.k IDENTITY, b.k IDENTITY", "v": "a.v IDENTITY, b.w IDENTITY"},
        "",
    ),
    "without some": (
        lambda a, b: a.select("k").exceptAll(b.select("k")),
        {"k": "a.k IDENTITY"},
        "b.k FILTER",
    ),
    "exploded": (
        lambda a, b: b.select("k", F.explode("tags").alias("tag")),
        {"k": "b.k IDENTITY", "tag": "b.tags TRANSFORMATION"},
        "",
    ),
    "rolled up": (
        lambda a, b: a.rollup("s").agg(F.max("v").alias("m")),
        {"s": "a.s IDENTITY", "m": "a.v AGGREGATION"},
        "a.s GROUP_BY",
    ),
    "sorted and without repeats": (
        lambda a, b: a.select("k", "v").dropDuplicates(["k"]).orderBy("v"),
        {"k": "a.k IDENTITY", "v": "a.v IDENTITY"},
        "a.k GROUP_BY, a.v SORT",
    ),
    "common table expressions": (
        lambda a, b: a.sparkSession.sql(
            "WITH t AS (SELECT k, sum(v) AS v FROM {a} GROUP BY k) SELECT x.k, y.v FROM t x JOIN t y ON x.k = y.k",
            a=a,
        ),
        {"k": "a.k IDENTITY", "v": "a.v AGGREGATION"},
        "a.k GROUP_BY, a.k JOIN",
    ),
    "subqueries": (
        lambda a, b: a.sparkSession.sql(
            "SELECT k, (SELECT max(w) FROM {b} b WHERE b.k = a.k) AS w FROM {a} a WHERE v IN (SELECT w FROM {b})",
            a=a,
            b=b,
        ),
        {"k": "a.k IDENTITY", "w": "b.w AGGREGATION"},
        "a.k FILTER, a.v FILTER, b.k FILTER, b.w FILTER",
    ),
    "by Python": (
        lambda a, b: a.select("k", "v").groupBy("k").applyInPandas(lambda one: one, "k BIGINT, d DOUBLE"),
        {"k": "a.k TRANSFORMATION, a.v TRANSFORMATION", "d": "a.k TRANSFORMATION, a.v TRANSFORMATION"},
        "a.k GROUP_BY",
    ),
}


def told(origins: Iterable[Origin]) -> str:
    masked = {True: " masked", False: ""}
    return ", ".join(f"{one.parameter}.{one.column} {one.use}{masked[one.masked]}" for one in origins)


def inputs(spark: Any) -> dict[str, DataFrame]:
    return {
        name: input_frame(spark, number, StructType.fromDDL(ddl))  # type: ignore[arg-type]
        for number, (name, ddl) in enumerate({"a": A, "b": B}.items())
    }


@pytest.mark.parametrize("case", CASES)
def test_every_column_tells_its_origins(spark: Any, case: str) -> None:
    function, columns, rows = CASES[case]
    given = inputs(spark)
    found = column_lineage(given, function(**given))
    assert {name: told(origins) for name, origins in found.columns.items()} == columns
    assert told(found.rows) == rows


def test_what_becomes_of_a_result_tells_the_origins_of_that(spark: Any) -> None:
    given = inputs(spark)
    first = given["a"].where("v > 0").groupBy("k").agg(F.sum("v").alias("total"), F.max("s").alias("name"))
    middle = input_frame(spark, 0, first.schema)
    then = middle.where("total > 1").select("k", (F.col("total") * 2).alias("twice"), F.md5("name").alias("name"))
    found = through(column_lineage(given, first), column_lineage({"rows": middle}, then))
    assert {name: told(origins) for name, origins in found.columns.items()} == {
        "k": "a.k IDENTITY", "twice": "a.v AGGREGATION", "name": "a.s AGGREGATION masked",
    }  # fmt: skip
    assert told(found.rows) == "a.k GROUP_BY, a.v FILTER"
