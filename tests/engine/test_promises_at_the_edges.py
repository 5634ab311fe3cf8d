"""Promises at the edges: what is asked of frames, subqueries by the key, and what a plan does not show by itself."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from declared import derive
from icefield import accumulate, by_key, lookup, sql
from icefield.errors import KeyUnknown, PromiseBroken

pytestmark = pytest.mark.spark

BY = by_key("customer")


def _in_a_thread(rows: Any) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(rows.count()))
    thread.start()
    thread.join()
    return rows.select("customer", F.lit(found[0]).alias("n"))


def _fitted(rows: Any) -> Any:
    from pyspark.ml.feature import StringIndexer

    return StringIndexer(inputCol="customer", outputCol="n").fit(rows).transform(rows).select("customer", "n")


#: What has Spark compute something of some rows, in ways that are easily missed.
ASKED: dict[str, Any] = {
    "count()": _in_a_thread,
    "pivot() without values": lambda rows: rows.groupBy("customer").pivot("id").count(),
    "inputFiles()": lambda rows: rows.select("customer", F.lit(len(rows.inputFiles())).alias("n")),
    "_collect_as_arrow()": lambda rows: rows.select("customer", F.lit(len(rows._collect_as_arrow())).alias("n")),
    "StringIndexer.fit()": _fitted,
}


@pytest.mark.parametrize("method", ASKED)
def test_an_action_on_some_rows_is_refused(spark: SparkSession, method: str) -> None:
    def function(orders: Any) -> Any:
        return ASKED[method](orders)

    with pytest.raises(PromiseBroken, match=re.escape(f"calls the Spark action {method}")):
        derive(spark, function, refresh=BY)


def test_an_action_on_a_lookup_that_is_passed_whole_is_taken_and_on_one_that_is_followed_refused(
    spark: SparkSession,
) -> None:
    def function(orders: Any, rates: Any) -> Any:
        return orders.select("customer", F.lit(rates.count()).alias("n"))

    whole = derive(spark, function, refresh=BY, inputs={"rates": lookup("bronze.rates")})
    assert whole.promises["gold.t"] == "proven"
    with pytest.raises(PromiseBroken, match=re.escape("calls the Spark action count()")):
        derive(spark, function, refresh=BY, inputs={"rates": lookup("bronze.rates", on="customer")})


def test_an_action_in_finish_is_refused(spark: SparkSession) -> None:
    def counted(orders: Any) -> Any:
        return orders.groupBy("customer").agg(F.count("*").alias("n"))

    def finish(measures: Any) -> Any:
        return measures.withColumn("share", F.col("n") / measures.count())

    with pytest.raises(PromiseBroken, match=re.escape("finish= of gold.t calls the Spark action count()")):
        derive(spark, counted, refresh=accumulate("customer", n="count", finish=finish))


#: Queries in which rows of a key meet rows of that key alone.
KEPT = {
    "exists by the key": "SELECT customer FROM {orders} o WHERE EXISTS (SELECT 1 FROM {b} b"
    " WHERE b.customer = o.customer AND b.day > o.day)",
    "an aggregate by the key": "SELECT customer, (SELECT max(day) FROM {b} b WHERE b.customer = o.customer) AS day"
    " FROM {orders} o",
    "in by the key": "SELECT customer, day FROM {orders} WHERE customer IN (SELECT customer FROM {b} WHERE id > 1)",
    "tables listed and met by a filter": "SELECT o.customer, b.day FROM {orders} o, {b} b"
    " WHERE o.customer = b.customer",
    "a pipe": "FROM {orders} |> WHERE amount > 0 |> AGGREGATE count(*) AS n GROUP BY customer",
    "a lateral query by the key": "SELECT o.customer, l.m FROM {orders} o,"
    " LATERAL (SELECT max(day) AS m FROM {b} b WHERE b.customer = o.customer) l",
    "a named query": "WITH days AS (SELECT customer, day, count(*) AS n FROM {orders} GROUP BY customer, day)\n"
    "SELECT customer, max(n) AS n FROM days GROUP BY customer",
    "a struct of the key": "SELECT k.c AS customer, count(*) AS n FROM"
    " (SELECT struct(customer AS c, day AS d) AS k FROM {orders}) GROUP BY k",
}


@pytest.mark.parametrize("case", KEPT)
def test_queries_by_the_key_are_proven(spark: SparkSession, case: str) -> None:
    assert derive(spark, sql(KEPT[case]), refresh=BY).promises["gold.t"] == "proven"


#: Queries that look like those above, but in which rows of other keys make a difference.
LOST = {
    "not in by the key": (
        "uses a subquery over `b`",
        "SELECT customer, day FROM {orders} WHERE customer NOT IN (SELECT customer FROM {b})",
    ),
    "in by the key or another condition": (
        "uses a subquery over `b`",
        "SELECT customer, day FROM {orders} WHERE id = 1 OR customer IN (SELECT customer FROM {b})",
    ),
    "in by another column": (
        "uses a subquery over `b`",
        "SELECT customer FROM {orders} WHERE customer IN (SELECT string(id) FROM {b})",
    ),
    "exists with another key": (
        "uses a subquery over `b`",
        "SELECT customer FROM {orders} o WHERE EXISTS (SELECT 1 FROM {b} b WHERE b.customer <> o.customer)",
    ),
    "tables listed and not met": (
        "joins two keyed inputs",
        "SELECT o.customer, b.day FROM {orders} o, {b} b WHERE o.day = b.day",
    ),
    "a pipe over all rows": (
        "aggregates over all rows",
        "FROM {orders} |> AGGREGATE max(customer) AS customer",
    ),
    "unpivoted in a subquery": (
        "uses a subquery over `b`",
        "SELECT customer FROM {orders} WHERE id IN"
        " (SELECT v FROM (SELECT id, id + 1 AS more FROM {b}) UNPIVOT (v FOR name IN (id, more)))",
    ),
    "a pattern that is another one": (
        "groups by",
        "SELECT max(customer) AS customer, count(*) AS n FROM {orders} GROUP BY customer LIKE 'a%'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LOST)
def test_queries_in_which_keys_meet_are_refused(spark: SparkSession, case: str) -> None:
    told, query = LOST[case]
    with pytest.raises(PromiseBroken, match=re.escape(told)):
        derive(spark, sql(query), refresh=BY)


def test_a_variable_of_the_session_is_refused(spark: SparkSession) -> None:
    spark.sql("DECLARE OR REPLACE VARIABLE newest DATE DEFAULT DATE '2026-01-01'")
    try:
        with pytest.raises(PromiseBroken, match="reads a SQL session variable"):
            derive(spark, sql("SELECT customer FROM {orders} WHERE day > newest"), refresh=BY)
    finally:
        spark.sql("DROP TEMPORARY VARIABLE newest")


@pytest.mark.parametrize("key", ["explode(tags)", "max(customer)", "row_number() OVER (ORDER BY id)"])
def test_a_key_is_computed_from_one_row(spark: SparkSession, key: str) -> None:
    def function(orders: Any) -> Any:
        return orders.select(F.col("customer").alias("k"))

    with pytest.raises(KeyUnknown):
        derive(spark, function, refresh=by_key(k=key))


@pytest.mark.parametrize("units", [("month", "MM"), ("MON", "MONTH"), ("year", "YYYY"), ("day", "dd")])
def test_units_of_time_have_several_names(spark: SparkSession, units: tuple[str, str]) -> None:
    one, other = units

    def function(orders: Any) -> Any:
        return orders.groupBy(F.date_trunc(other, "at").alias("k")).count()

    key = by_key(k=f"date_trunc('{one}', at)")
    assert derive(spark, function, refresh=key).promises["gold.t"] == "proven"


def test_groups_in_python_that_come_in_parts_are_not_taken_for_whole_ones(spark: SparkSession) -> None:
    def parts(groups: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        yield from groups

    def function(orders: Any) -> Any:
        return orders.select("customer", "id").groupBy("customer").applyInPandas(parts, "customer STRING, id BIGINT")

    with pytest.raises(PromiseBroken, match="calls Python in a way that icefield cannot analyse"):
        derive(spark, function, refresh=BY)
