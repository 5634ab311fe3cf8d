"""Values that another computation would give differently: followed through the plan to where they are used."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from declared import derive
from icefield import accumulate, append, by_key, lookup, sql
from icefield.errors import NotExact

pytestmark = pytest.mark.spark

KEYED = {"refresh": by_key("customer")}
SEEN = {"refresh": by_key("customer"), "volatile": ["seen"]}


def _chance() -> Any:
    return F.udf(lambda n: n, LongType()).asNondeterministic()


#: What is said, and the function; nothing is declared volatile.
DIFFERS: dict[str, Any] = {
    "reflect()": lambda rows: rows.select("customer", F.expr("reflect('java.util.UUID', 'randomUUID')").alias("u")),
    "aes_encrypt() without an initialisation vector": lambda rows: rows.select(
        "customer", F.expr("aes_encrypt(customer, '0123456789abcdef')").alias("secret")
    ),
    "cast('today')": lambda rows: rows.select("customer", F.lit("today").cast("DATE").alias("day")),
    "cast('now')": lambda rows: rows.where(F.col("at") > F.to_timestamp(F.lit("now"))).select("customer"),
    "histogram_numeric()": lambda rows: rows.groupBy("customer").agg(F.histogram_numeric("id", F.lit(3)).alias("h")),
    "approx_top_k()": lambda rows: rows.groupBy("customer").agg(F.expr("approx_top_k(id)").alias("top")),
    "a window function over rows over a window without orderBy": lambda rows: rows.select(
        "customer", F.sum("amount").over(Window.partitionBy("customer").rowsBetween(-1, 0)).alias("two")
    ),
    "nth_value() over a window without orderBy": lambda rows: rows.select(
        "customer", F.nth_value("id", 2).over(Window.partitionBy("customer").orderBy("customer")).alias("id")
    ),
    "row_number() over a window without orderBy": lambda rows: rows.select(
        "customer", F.row_number().over(Window.partitionBy("customer").orderBy(F.lit(1))).alias("n")
    ),
    "lag() over a window without orderBy": lambda rows: rows.select(
        "customer", F.lag("id").over(Window.partitionBy("customer").orderBy("customer")).alias("id")
    ),
    "the nondeterministic function <lambda>()": lambda rows: rows.select("customer", _chance()("id").alias("id")),
    "collect_list()": lambda rows: rows.groupBy("customer").agg(F.collect_list("id")[0].alias("id")),
    "max_by()": lambda rows: rows.groupBy("customer").agg(F.max_by("id", "day").alias("id")).where("id > 1"),
}


@pytest.mark.parametrize("told", DIFFERS)
def test_what_another_computation_would_give_differently_is_refused(spark: SparkSession, told: str) -> None:
    def function(orders: Any) -> Any:
        return DIFFERS[told](orders)

    with pytest.raises(NotExact, match=re.escape(told)):
        derive(spark, function, **KEYED)


#: Uses of a clock whose own column is declared volatile: it may end there, and nowhere else.
ELSEWHERE: dict[str, Any] = {
    "in another column": lambda rows: rows.withColumn("seen", F.current_timestamp()).withColumn(
        "age", F.col("seen") - F.col("at")
    ),
    "in a filter": lambda rows: rows.withColumn("seen", F.current_timestamp()).where("at > seen - INTERVAL 3 DAYS"),
    "in a group": lambda rows: (
        rows.withColumn("seen", F.current_timestamp())
        .groupBy("customer", F.hour("seen").alias("hour"))
        .agg(F.max("seen").alias("seen"))
    ),
    "in the order of a window": lambda rows: rows.withColumn("seen", F.rand()).select(
        "customer", "seen", F.row_number().over(Window.partitionBy("customer").orderBy("seen")).alias("n")
    ),
    "in what duplicates are told by": lambda rows: rows.select(
        "customer", F.current_timestamp().alias("seen")
    ).distinct(),
    "in a part of a union": lambda rows: rows.select("customer", "at", F.lit(None).cast("TIMESTAMP").alias("seen"))
    .union(rows.select("customer", F.current_timestamp(), F.current_timestamp())),
}  # fmt: skip


@pytest.mark.parametrize("where", ELSEWHERE)
def test_a_volatile_column_excuses_no_other_use_of_the_clock(spark: SparkSession, where: str) -> None:
    def function(orders: Any) -> Any:
        return ELSEWHERE[where](orders)

    with pytest.raises(NotExact, match=r"calls (current_timestamp|rand)\(\)"):
        derive(spark, function, **SEEN)


def test_a_clock_that_only_ends_in_a_volatile_column_is_taken(spark: SparkSession) -> None:
    def function(orders: Any) -> Any:
        named = orders.withColumn("now", F.current_timestamp()).withColumn("seen", F.date_trunc("HOUR", "now"))
        return named.drop("now").orderBy("seen").select("customer", "id", "seen")

    assert derive(spark, function, **SEEN).promises["gold.t"] == "proven"


def test_a_limit_without_an_order_is_refused_of_a_lookup_too(spark: SparkSession) -> None:
    query = "SELECT customer, (SELECT rate FROM (SELECT rate FROM {rates} LIMIT 1)) AS rate FROM {orders}"
    options = {**KEYED, "inputs": {"rates": lookup("bronze.rates")}}
    with pytest.raises(NotExact, match=r"limit\(\) without orderBy"):
        derive(spark, sql(query), **options)
    ordered = query.replace("LIMIT 1", "ORDER BY customer, day, name, rate LIMIT 1")
    assert derive(spark, sql(ordered), **options).promises["gold.t"] == "proven"


@pytest.mark.parametrize("moment", ["DATE 'today'", "TIMESTAMP 'now'", "timestamp_ntz ' Yesterday '"])
def test_a_literal_of_sql_that_means_another_moment_in_each_run_is_refused(spark: SparkSession, moment: str) -> None:
    query = f"SELECT customer, count(*) AS n FROM {{orders}} WHERE at < {moment} GROUP BY customer"
    with pytest.raises(NotExact, match=re.escape(f"contains the literal {moment}")):
        derive(spark, sql(query), **KEYED)
    dated = query.replace(moment, "TIMESTAMP '2026-01-01 00:00:00'")
    assert derive(spark, sql(dated), **KEYED).promises["gold.t"] == "proven"


#: Lists of which the order does not matter.
SORTED: dict[str, Any] = {
    "sorted a step later": lambda rows: rows.groupBy("customer")
    .agg(F.collect_list("id").alias("ids"))
    .select("customer", F.sort_array("ids").alias("ids")),
    "distinct, then sorted": lambda rows: rows.groupBy("customer").agg(
        F.sort_array(F.array_distinct(F.collect_list("id"))).alias("ids")
    ),
    "exploded again": lambda rows: rows.groupBy("customer")
    .agg(F.collect_set("id").alias("ids"))
    .select("customer", F.explode("ids").alias("id")),
    "counted": lambda rows: rows.groupBy("customer").agg(F.size(F.collect_set("id")).alias("n")),
    "searched": lambda rows: rows.groupBy("customer").agg(F.array_contains(F.collect_set("id"), 3).alias("three")),
}  # fmt: skip


@pytest.mark.parametrize("how", SORTED)
def test_a_list_whose_order_does_not_matter_is_taken(spark: SparkSession, how: str) -> None:
    def function(orders: Any) -> Any:
        return SORTED[how](orders)

    assert derive(spark, function, **KEYED).promises["gold.t"] == "proven"


def test_positions_in_a_list_without_an_order_are_refused(spark: SparkSession) -> None:
    def placed(orders: Any) -> Any:
        listed = orders.groupBy("customer").agg(F.collect_list("id").alias("ids"))
        return listed.select("customer", F.posexplode("ids").alias("place", "id"))

    with pytest.raises(NotExact, match=r"collect_list\(\)"):
        derive(spark, placed, **KEYED)


def test_the_order_of_rows_matters_in_no_refresh_kind(spark: SparkSession) -> None:
    def appended(orders: Any) -> Any:
        return orders.select("id", F.shuffle("tags").alias("tags"))

    with pytest.raises(NotExact, match=r"shuffle\(\)"):
        derive(spark, appended, refresh=append())

    def merged(orders: Any) -> Any:
        return orders.withColumn("n", F.rand()).groupBy("customer").agg(F.max("n").alias("n"))

    with pytest.raises(NotExact, match=r"rand\(\)"):
        derive(spark, merged, refresh=accumulate("customer", n="max"))
