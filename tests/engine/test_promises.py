"""Promises of refresh kinds: what Spark's plan shows to be kept is proven, everything else is refused with its step.

Broken ones were accepted once, and wrong from the second run on: a trial on samples cannot see them, a plan can.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, LongType

from declared import derive
from icefield import accumulate, append, by_key, lookup, ref, sql
from icefield.errors import IcefieldError, NotExact, PromiseBroken
from icefield.testing import assert_incremental

pytestmark = pytest.mark.spark

RATES = {"rates": lookup("bronze.rates")}
BY_CUSTOMER = {"rates": lookup("bronze.rates", on="customer")}
REFRESH = {"by_key": by_key("customer"), "append": append(), "accumulate": accumulate("customer", n="count")}


def rates_once(rates: Any) -> Any:
    return rates.groupBy("customer").agg(F.max("rate").alias("rate"))


# -- broken: kind, what is said of the step, the function, and what else is declared

BROKEN: dict[str, tuple[str, str, Any, dict[str, Any]]] = {}


def broken(told: str, kind: str = "by_key", **options: Any) -> Any:
    def keep(function: Any) -> Any:
        BROKEN[f"{kind}: {function.__name__.replace('_', ' ')}"] = (kind, told, function, options)
        return function

    return keep


@broken("uses a window over all rows")
def recency_against_the_newest_day(orders: Any) -> Any:
    return orders.withColumn("newest", F.max("day").over(Window.partitionBy())).select("customer", "day", "newest")


@broken("aggregates over all rows")
def a_cross_join_with_an_aggregate_of_the_same_input(orders: Any) -> Any:
    return orders.crossJoin(orders.agg(F.max("day").alias("newest"))).select("customer", "day", "newest")


@broken("groups by `customer`", refresh=by_key("day"))
def new_customers_a_day(orders: Any) -> Any:
    return orders.groupBy("customer").agg(F.min("day").alias("day")).groupBy("day").count()


@broken("uses a window partitioned by `day`")
def a_window_by_another_column(orders: Any) -> Any:
    return orders.select("customer", F.rank().over(Window.partitionBy("day").orderBy("amount")).alias("place"))


@broken("uses a window over all rows")
def a_rank_among_all(orders: Any) -> Any:
    return orders.select("customer", F.percent_rank().over(Window.orderBy("amount")).alias("place"))


@broken("groups by `day`")
def a_group_that_loses_the_key(orders: Any) -> Any:
    return orders.groupBy("day").agg(F.max("customer").alias("customer"))


@broken("removes duplicates by `day`")
def duplicates_by_another_column(orders: Any) -> Any:
    return orders.dropDuplicates(["day"]).select("customer", "day")


@broken("removes duplicates by `amount`")
def distinct_without_the_key(orders: Any) -> Any:
    amounts = orders.select("amount").distinct()
    return orders.select("customer", "amount").join(amounts, "amount")


@broken("joins two keyed inputs on `day` = `day`")
def a_join_on_other_columns(orders: Any, b: Any) -> Any:
    return orders.select("customer", "day").join(b.select("day", "amount"), "day")


@broken("joins two keyed inputs on `id` = `customer_id`", refresh=by_key("id"))
def a_key_that_means_something_else(orders: Any, b: Any) -> Any:
    named = b.select(F.col("id").alias("other"), F.col("amount").cast("BIGINT").alias("customer_id"))
    return orders.select("id").join(named, F.col("id") == F.col("customer_id"))


@broken("joins two keyed inputs without an equality")
def a_join_on_a_range(orders: Any, b: Any) -> Any:
    return orders.select("customer", "day").join(b.select(F.col("day").alias("since")), F.expr("day > since"))


@broken("joins two keyed inputs on `customer` = `customer`")
def a_join_on_a_key_that_may_be_missing(orders: Any, b: Any) -> Any:
    left = orders.select("customer").join(b.select("customer", "day").groupBy("customer").count(), "customer", "left")
    again = left.withColumn("customer", F.col("count").cast("STRING"))
    return again.join(orders.select("customer", "amount"), "customer")


@broken("keeps unmatched rows of a lookup (FULL OUTER JOIN)", inputs=RATES)
def a_full_join_with_a_lookup(orders: Any, rates: Any) -> Any:
    return orders.select("customer", "amount").join(rates_once(rates), "customer", "full")


@broken("keeps unmatched rows of a lookup (RIGHT OUTER JOIN)", inputs=RATES)
def a_right_join_with_a_lookup(orders: Any, rates: Any) -> Any:
    return orders.select("customer", "amount").join(rates_once(rates), "customer", "right")


@broken("adds rows that do not come from a keyed input", inputs=RATES)
def a_union_with_a_lookup(orders: Any, rates: Any) -> Any:
    return orders.select("customer").union(rates.select("customer"))


@broken("adds rows that do not come from a keyed input")
def ghost_rows(orders: Any) -> Any:
    return orders.select("customer").union(orders.sparkSession.createDataFrame([("nobody",)], "customer STRING"))


@broken("keeps only some of the rows (limit)")
def a_limit(orders: Any) -> Any:
    return orders.orderBy("amount").limit(10).select("customer", "amount")


@broken("takes a sample of the rows")
def a_sample(orders: Any) -> Any:
    return orders.sample(0.5, seed=1).select("customer", "amount")


@broken("groups by `customer`, `day`, `spark_grouping_id`")
def a_rollup_above_the_key(orders: Any) -> Any:
    return orders.rollup("customer", "day").agg(F.sum("amount").alias("amount"))


@broken("groups by upper(`customer`)")
def a_changed_key(orders: Any) -> Any:
    return orders.groupBy(F.upper("customer").alias("customer")).count()


@broken("returns a column `customer` that is not the key", inputs=RATES)
def a_key_of_a_lookup(orders: Any, rates: Any) -> Any:
    named = rates.select("day", F.col("customer").alias("other"))
    return orders.select("customer", "day").join(named, "day").select(F.col("other").alias("customer"), "day")


@broken("does not use any of its keyed inputs", inputs=RATES)
def a_function_of_a_lookup_alone(orders: Any, rates: Any) -> Any:
    return rates_once(rates)


@broken("calls Python on batches of rows (mapInPandas)")
def python_over_batches(orders: Any) -> Any:
    return orders.select("customer", "id").mapInPandas(lambda parts: parts, "customer STRING, id BIGINT")


@broken("calls Python on batches of rows (mapInArrow)")
def arrow_over_batches(orders: Any) -> Any:
    return orders.select("customer", "id").mapInArrow(lambda parts: parts, "customer STRING, id BIGINT")


@broken("calls a vectorised Python UDF on batches of rows (above)")
def a_vectorised_function(orders: Any) -> Any:
    @F.pandas_udf(DoubleType())
    def above(amounts: pd.Series) -> pd.Series:
        return amounts - amounts.mean()

    return orders.select("customer", above(F.col("id").cast("DOUBLE")).alias("above"))


@broken("contains a step that icefield cannot analyse (FlatMapCoGroupsInPandas)")
def groups_of_two_inputs_in_python(orders: Any, b: Any) -> Any:
    both = orders.select("customer", "id").groupBy("customer").cogroup(b.select("customer", "id").groupBy("customer"))
    return both.applyInPandas(lambda left, right: left, "customer STRING, id BIGINT")


@broken("groups by `day` in Python")
def python_over_other_groups(orders: Any) -> Any:
    return orders.select("customer", "day").groupBy("day").applyInPandas(lambda g: g, "customer STRING, day DATE")


@broken("reads data that is not one of its inputs")
def a_file_of_its_own(orders: Any) -> Any:
    names = orders.sparkSession.read.schema("customer STRING, name STRING").csv(__file__)
    return orders.select("customer").join(names, "customer", "left")


@broken("compares whole rows of two inputs")
def a_set_operation_without_the_key(orders: Any, b: Any) -> Any:
    days = orders.select("day").intersect(b.select("day"))
    return orders.select("customer", "day").join(days, "day", "left_semi")


@broken("joins two keyed inputs on `day` = `day`")
def a_semi_join_on_other_columns(orders: Any, b: Any) -> Any:
    return orders.select("customer", "day").join(b.select("day"), "day", "left_semi")


@broken("returns a column `k` that is not the key", refresh=by_key(k="coalesce(customer, 'nobody')"))
def a_computed_key_of_a_side_that_may_be_missing(orders: Any, b: Any) -> Any:
    key = F.expr("coalesce(customer, 'nobody')")
    left, right = orders.select("customer", "amount"), b.select(F.col("customer").alias("other"), "day")
    same = key == F.expr("coalesce(other, 'nobody')")
    return left.join(right, same, "full").select(key.alias("k"), "amount", "day")


SQL = {
    "a subquery over the same input": (
        "uses a subquery over `orders`",
        "SELECT customer, count(*) AS n FROM {orders}\n"
        "WHERE day > (SELECT max(day) FROM {orders}) - INTERVAL 3 DAYS\nGROUP BY customer",
    ),
    "a correlated subquery": (
        "uses a subquery over `b`",
        "SELECT customer FROM {orders} o WHERE EXISTS (SELECT 1 FROM {b} b WHERE b.day = o.day)",
    ),
    "a list of values": (
        "uses a subquery over `b`",
        "SELECT customer FROM {orders} WHERE day IN (SELECT day FROM {b})",
    ),
    "a lateral subquery": (
        "uses a subquery over `b`",
        "SELECT o.customer, l.m FROM {orders} o, LATERAL (SELECT max(day) AS m FROM {b} b WHERE b.id = o.id) l",
    ),
    "a common table expression": (
        "uses a subquery over `orders`",
        "WITH newest AS (SELECT max(day) AS day FROM {orders})\n"
        "SELECT customer FROM {orders} WHERE day = (SELECT day FROM newest)",
    ),
    "a common table expression that is joined": (
        "aggregates over all rows",
        "WITH newest AS (SELECT max(day) AS day FROM {orders})\n"
        "SELECT o.customer FROM {orders} o JOIN newest USING (day)",
    ),
    "a window over all rows": (
        "uses a window over all rows",
        "SELECT customer, amount / sum(amount) OVER () AS share FROM {orders}",
    ),
    "a union that ends elsewhere": (
        "returns a column `customer` that is not the key",
        "SELECT customer FROM {orders} UNION ALL SELECT CAST(id AS STRING) FROM {b}",
    ),
    "except without the key": (
        "compares whole rows of two inputs",
        "SELECT customer FROM {orders} JOIN (SELECT day FROM {orders} EXCEPT SELECT day FROM {b}) USING (day)",
    ),
}  # fmt: skip


@broken("groups by `customer`", kind="append")
def a_group(orders: Any) -> Any:
    return orders.groupBy("customer").count()


@broken("removes duplicates", kind="append")
def distinct(orders: Any) -> Any:
    return orders.distinct()


@broken("joins two inputs whose matching rows may arrive in different runs", kind="append")
def a_join_with_itself(orders: Any) -> Any:
    return orders.join(orders.select("id", F.col("amount").alias("other")), "id")


@broken("uses a subquery over `orders`", kind="append")
def a_subquery(orders: Any) -> Any:
    return orders.where(F.col("amount") > orders.select(F.avg("amount")).scalar())


@broken("adds rows that do not come from a keyed input", kind="append", inputs=RATES)
def rows_of_a_lookup_again_in_each_run(orders: Any, rates: Any) -> Any:
    return orders.select("customer").union(rates.select("customer"))


@broken("groups by `id` in Python", kind="append")
def groups_in_python(orders: Any) -> Any:
    return orders.select("id").groupBy("id").applyInPandas(lambda rows: rows, "id BIGINT")


@broken("skips some of the rows", kind="append")
def an_offset(orders: Any) -> Any:
    return orders.orderBy("id").offset(2)


@broken("calls Python on batches of rows (mapInPandas)", kind="append")
def batches(orders: Any) -> Any:
    return orders.select("id").mapInPandas(lambda parts: parts, "id BIGINT")


@broken("joins two inputs whose matching rows may arrive in different runs", kind="accumulate")
def a_join(orders: Any, b: Any) -> Any:
    return orders.join(b.select("id"), "id").groupBy("customer").agg(F.count("*").alias("n"))


@broken("groups by `customer`, `amount`", kind="accumulate")
def groups_of_groups(orders: Any) -> Any:
    return orders.groupBy("customer", "amount").count().groupBy("customer").agg(F.count("*").alias("n"))


@broken("removes duplicates by `customer`, `amount`", kind="accumulate")
def distinct_rows(orders: Any) -> Any:
    return orders.select("customer", "amount").distinct().groupBy("customer").agg(F.count("*").alias("n"))


@broken('count(DISTINCT id), which cannot be merged with "sum"', kind="accumulate")
def distinct_values(orders: Any) -> Any:
    return orders.groupBy("customer").agg(F.count_distinct("id").alias("n"))


@broken("groups by more columns than the key", kind="accumulate")
def a_group_by_more_than_the_key(orders: Any) -> Any:
    return orders.groupBy("customer", "day").agg(F.count("*").alias("n")).drop("day")


@broken("does not group by the key `customer`", kind="accumulate")
def another_key(orders: Any) -> Any:
    return orders.groupBy(F.upper("customer").alias("customer")).agg(F.count("*").alias("n"))


@broken("filters groups by an aggregate that is not final until all rows have arrived", kind="accumulate")
def groups_that_are_left_out(orders: Any) -> Any:
    return orders.groupBy("customer").agg(F.count("*").alias("n")).where("n > 100")


@broken('computes `n` as (n * n), which cannot be merged with "sum"', kind="accumulate")
def squares(orders: Any) -> Any:
    return orders.groupBy("customer").agg(F.count("*").alias("n")).withColumn("n", F.col("n") * F.col("n"))


@broken("does not group its rows", kind="accumulate")
def no_group(orders: Any) -> Any:
    return orders.select("customer", F.lit(1).cast("BIGINT").alias("n"))


@broken("uses pivot()", kind="accumulate", refresh=accumulate("customer", **{"1": "sum"}))
def a_pivot(orders: Any) -> Any:
    return orders.groupBy("customer").pivot("id", [1]).agg(F.sum("amount"))


NOT_MERGING = {
    "an average": ("sum", lambda: F.avg("amount").cast("DECIMAL(12,2)")),
    "a span": ("max", lambda: F.max("amount") - F.min("amount")),
    "a difference of which a part may be NULL": ("sum", lambda: F.sum("amount") - F.sum("id")),
    "a rounded sum": ("sum", lambda: F.sum("amount").cast("DECIMAL(20,1)")),
    "a greatest least value": ("max", lambda: F.greatest(F.min("id"), F.max("id"))),
    "a sum plus one": ("sum", lambda: F.sum("amount") + 1),
    "a sum that is 1 where empty": ("sum", lambda: F.coalesce(F.sum("id"), F.lit(1))),
    "a distinct sum": ("sum", lambda: F.sum_distinct("id")),
    "a sum that may give up": ("sum", lambda: F.try_sum("id")),
    "a cast that may give up": ("sum", lambda: F.expr("try_cast(sum(id) AS INT)")),
    "a decimal times a decimal": ("sum", lambda: F.sum("amount") * F.lit("0.333").cast("DECIMAL(4,3)")),
    "a maximum ordered as text": ("max", lambda: F.max("id").cast("STRING")),
    "a minimum merged as a maximum": ("max", lambda: F.min("id")),
    "a maximum that is 0 where empty": ("max", lambda: F.coalesce(F.max("id"), F.lit(0))),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_promise_is_refused_with_its_step(spark: SparkSession, case: str) -> None:
    kind, told, function, options = BROKEN[case]
    with pytest.raises(PromiseBroken, match=re.escape(told)) as refusal:
        derive(spark, function, **{"refresh": REFRESH[kind], **options})
    assert any(way in refusal.value.remedy for way in ("full()", "by_key(")), "the way out"


@pytest.mark.parametrize("case", SQL)
def test_a_broken_promise_in_sql_is_refused_with_its_line(spark: SparkSession, case: str) -> None:
    told, query = SQL[case]
    with pytest.raises(PromiseBroken, match=re.escape(told)) as refusal:
        derive(spark, sql(query), refresh=by_key("customer"))
    assert re.fullmatch(r"test_promises\.py:\d+", refusal.value.where)


@pytest.mark.parametrize("case", NOT_MERGING)
def test_a_measure_that_does_not_merge_is_refused(spark: SparkSession, case: str) -> None:
    how, measure = NOT_MERGING[case]

    def measured(orders: Any) -> Any:
        return orders.groupBy("customer").agg(measure().alias("n"))

    with pytest.raises(PromiseBroken, match=f'which cannot be merged with "{how}"'):
        derive(spark, measured, refresh=accumulate("customer", n=how))  # type: ignore[arg-type]


# -- honest: each is proven here, and equal to a full build after five runs in tests/run/test_honest.py

UNORDERED = {
    "first()": lambda rows: rows.groupBy("customer").agg(F.first("id").alias("id")),
    "collect_list()": lambda rows: rows.groupBy("customer").agg(F.collect_list("id").alias("ids")),
    "collect_set()": lambda rows: rows.groupBy("customer").agg(F.collect_set("id").alias("ids")),
    "max_by()": lambda rows: rows.groupBy("customer").agg(F.max_by("id", "day").alias("id")),
    "mode()": lambda rows: rows.groupBy("customer").agg(F.mode("id").alias("id")),
    "first() over a window without orderBy": lambda rows: rows.select(
        "customer", F.first("id").over(Window.partitionBy("customer")).alias("id")
    ),
    "dropDuplicates() on a subset of the columns": lambda rows: rows.dropDuplicates(["customer"]),
}


@pytest.mark.parametrize("told", UNORDERED)
def test_what_depends_on_the_order_of_rows_is_refused(spark: SparkSession, told: str) -> None:
    def function(orders: Any) -> Any:
        return UNORDERED[told](orders)

    with pytest.raises(NotExact, match=re.escape(told)):
        derive(spark, function, refresh=by_key("customer"))


def test_lists_that_are_sorted_and_firsts_that_are_ordered_are_taken(spark: SparkSession) -> None:
    def function(orders: Any) -> Any:
        ordered = Window.partitionBy("customer").orderBy("at", "id")
        ids = orders.select("customer", F.first("id").over(ordered).alias("first"), "id")
        listed = F.sort_array(F.collect_set("id")).alias("ids")
        return ids.groupBy("customer").agg(listed, F.size(F.collect_set("first")).alias("firsts"))

    assert derive(spark, function, refresh=by_key("customer")).promises["gold.t"] == "proven"


# -- trusted


def test_what_a_plan_cannot_tell_may_be_vouched_for_but_what_it_shows_to_be_wrong_may_not(spark: SparkSession) -> None:
    trusted = derive(spark, python_over_batches, refresh=by_key("customer", trusted=True))
    assert trusted.promises["gold.t"] == "trusted"
    assert derive(spark, batches, refresh=append(trusted=True)).promises["gold.t"] == "trusted"
    pivoted = derive(spark, a_pivot, refresh=accumulate("customer", trusted=True, **{"1": "sum"}))
    assert pivoted.promises["gold.t"] == "trusted"
    with pytest.raises(PromiseBroken, match="uses a window over all rows"):
        derive(spark, recency_against_the_newest_day, refresh=by_key("customer", trusted=True))

    def proven(orders: Any) -> Any:
        return orders.groupBy("customer").count()

    assert derive(spark, proven, refresh=by_key("customer", trusted=True)).promises["gold.t"] == "proven"


@pytest.mark.parametrize("kind", [append, by_key, accumulate])
def test_trusted_is_a_reserved_word(kind: Any) -> None:
    with pytest.raises(IcefieldError, match="`trusted` is a reserved word"):
        kind("id", trusted="sum") if kind is not append else kind(trusted="yes")


# -- finish

FINISH = {
    "does not process each row independently (Window)": lambda m: m.withColumn(
        "n", F.sum("n").over(Window.orderBy("customer"))
    ),
    "uses a subquery": lambda m: m.where(F.col("n") >= m.select(F.avg("n")).scalar()),
    "must return the key customer unchanged": lambda m: m.withColumn("customer", F.upper("customer")),
    "calls a vectorised Python UDF": lambda m: m.withColumn(
        "n", F.pandas_udf(lambda n: n - n.mean(), LongType(), F.PandasUDFType.SCALAR)("n")
    ),
}


@pytest.mark.filterwarnings("ignore:In Python 3.6")
@pytest.mark.parametrize("told", FINISH)
def test_finish_works_on_each_row_for_itself(spark: SparkSession, told: str) -> None:
    def counted(orders: Any) -> Any:
        return orders.groupBy("customer").agg(F.count("*").alias("n"))

    with pytest.raises(PromiseBroken, match=re.escape(told)):
        derive(spark, counted, refresh=accumulate("customer", n="count", finish=FINISH[told]))


# -- lookups that are followed by some columns

FOLLOWED = {
    "of all its rows": ("aggregates over all rows", "orders.crossJoin(rates.agg(F.max('name').alias('name')))"),
    "by another column": (
        "joins it on cast(`amount`) = ",
        "orders.join(rates.drop('customer', 'day'), F.expr('amount = int(name)'))",
    ),
    "by a part of it": (
        "joins it on lower(`customer`) = `c`", "orders.join(renamed, F.lower('customer') == F.col('c'))",
    ),
    "or by another": (
        "joins it without an equality", "orders.join(renamed, F.expr(\"customer = c OR name = 'x'\"))",
    ),
    "whole": (
        "keeps unmatched rows of a lookup",
        "orders.join(rates.select('customer', 'name'), 'customer', 'right')",
    ),
    "added": ("adds rows that do not come from a keyed input", "orders.unionByName(rates, allowMissingColumns=True)"),
    "ranked": (
        "uses a window over all rows",
        "orders.join(rates.select('customer', F.row_number().over(Window.orderBy('name')).alias('n')), 'customer')",
    ),
    "cut": ("keeps only some of the rows", "orders.join(rates.select('customer', 'name').limit(3), 'customer')"),
    "in a subquery": (
        "uses a subquery over `rates`",
        "orders.where(F.col('amount') > rates.select(F.max('rate')).scalar())",
    ),
    "by a column of another lookup": (
        "joins it on `name` = `c`",
        "orders.join(more.select('day', 'name').distinct(), 'day')"
        ".join(rates.select(F.col('customer').alias('c'), 'rate'), F.expr('name = c'))",
    ),
    "renamed": ("", "orders.join(renamed, F.col('c') == orders.customer)"),
    "grouped": ("", "orders.join(F.broadcast(rates.groupBy('customer').agg(F.max('name'))), 'customer', 'left')"),
    "of what was grouped": (
        "",
        "orders.groupBy('id', 'customer').count()"
        ".join(rates.select('customer', 'name').where('name > 1').dropDuplicates(), 'customer')",
    ),
    "twice": (
        "",
        "orders.join(renamed, F.expr('customer = c'))"
        ".join(rates.select(F.col('customer').alias('c2'), F.lit(1).alias('k')), F.expr('customer = c2'))",
    ),
    "in a window": (
        "",
        "orders.join(rates.select('customer', F.count('*').over(Window.partitionBy('customer')).alias('n')),"
        " 'customer', 'semi')",
    ),
    "never": ("", "orders"),
}  # fmt: skip


@pytest.mark.parametrize("how", FOLLOWED)
def test_a_lookup_is_joined_on_the_columns_that_it_is_followed_by(spark: SparkSession, how: str) -> None:
    told, body = FOLLOWED[how]

    def function(orders: Any, rates: Any, more: Any) -> Any:
        renamed = rates.select(F.col("customer").alias("c"), "name")
        known = {"orders": orders, "rates": rates, "more": more, "renamed": renamed}
        return eval(body, {"F": F, "Window": Window}, known).select("id", "customer")

    options = {"refresh": by_key("id"), "inputs": {**BY_CUSTOMER, "more": lookup("bronze.rates")}}
    if not told:
        assert derive(spark, function, **options).promises["gold.t"] == "proven"
        return
    with pytest.raises(PromiseBroken, match=re.escape(told)) as refusal:
        derive(spark, function, **options)
    assert "omit `on`" in refusal.value.remedy or "full()" in refusal.value.remedy


def test_a_lookup_by_two_columns_is_carried_by_rows_of_one_input(spark: SparkSession) -> None:
    def mixed(orders: Any, b: Any, rates: Any) -> Any:
        both = orders.select("id", "customer").join(b.select("id", "day"), "id")
        return both.join(rates, ["customer", "day"])

    def carried(orders: Any, b: Any, rates: Any) -> Any:
        both = orders.select("id").join(b.select("id", "customer", "day"), "id")
        return both.join(rates, ["customer", "day"])

    options = {"refresh": by_key("id"), "inputs": {"rates": lookup("bronze.rates", on=["customer", "day"])}}
    assert derive(spark, carried, **options).promises["gold.t"] == "proven"
    with pytest.raises(
        PromiseBroken, match=r"""lookup\("bronze\.rates", on=\['customer', 'day'\]\), but its function"""
    ):
        derive(spark, mixed, **options)


# -- what a message says


def test_a_refusal_names_the_line_that_made_the_step(spark: SparkSession) -> None:
    here = Path(__file__)
    with pytest.raises(PromiseBroken) as refusal:
        derive(spark, new_customers_a_day, root=here.parent, refresh=by_key("day"))
    file, _, line = refusal.value.where.rpartition(":")
    assert file == here.name
    assert "groupBy" in here.read_text().splitlines()[int(line) - 1]


# -- assert_incremental says the same, whatever its batches show


@pytest.mark.parametrize(
    "function", [recency_against_the_newest_day, a_cross_join_with_an_aggregate_of_the_same_input, new_customers_a_day]
)
def test_assert_incremental_fails_whatever_its_batches_show(spark: SparkSession, function: Any) -> None:
    empty = spark.createDataFrame([], "id BIGINT, customer STRING, amount DECIMAL(10,2), day DATE")
    key = "day" if function is new_customers_a_day else "customer"
    with pytest.raises(AssertionError, match="the rows of a key must depend only on input rows of that key"):
        assert_incremental(function, [empty], refresh=by_key(key))


def test_assert_incremental_fails_for_a_subquery_whatever_its_batches_show(spark: SparkSession) -> None:
    empty = spark.createDataFrame([], "id BIGINT, customer STRING, amount DECIMAL(10,2), day DATE")
    query = sql(SQL["a subquery over the same input"][1])
    with pytest.raises(AssertionError, match="uses a subquery over `orders`"):
        assert_incremental(query, [empty], refresh=by_key("customer"))


def test_a_key_under_another_name_is_told_by_ref(spark: SparkSession) -> None:
    def named(orders: Any, b: Any) -> Any:
        return orders.select("id").join(b.select(F.col("amount").cast("BIGINT").alias("id"), "customer"), "id", "left")

    told = ref("bronze.b", id="CAST(amount AS BIGINT)")
    assert derive(spark, named, refresh=by_key("id"), inputs={"b": told}).promises["gold.t"] == "proven"
