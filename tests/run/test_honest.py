"""Functions that keep their promise: proven from Spark's plan, and equal to a full build after runs of every kind.

`silver.current` turns what arrives into additions, corrections and deletions: the newest line of an id is its row, and
one without a customer takes it away.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from icefield import Lake
from icefield.engine.refresh import update
from projects import TinyProject, tiny

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

HEAD = """
import pandas as pd
from pyspark.sql import Window, functions as F
from pyspark.sql.types import DoubleType, StringType
from icefield import accumulate, append, by_key, files, lookup, ref, sql, table

LINE = "id BIGINT, customer STRING, shop STRING, amount DECIMAL(10,2), at TIMESTAMP, number BIGINT"


@table("bronze.lines", source=files("landing/lines/*.csv", schema=LINE), refresh=append())
def lines(rows):
    return rows.drop("source_line", "source_file", "ingested_at")


@table("bronze.shops", source=files("landing/shops/*.csv", schema="shop STRING, city STRING"), refresh=append())
def shops(rows):
    return rows.select("shop", "city")


@table("silver.current", refresh=by_key("id"))
def current(lines):
    newest = F.max(F.struct("number", "customer", "shop", "amount", "at")).alias("newest")
    return lines.groupBy("id").agg(newest).select("id", "newest.*").where("customer IS NOT NULL")


@table("silver.cities", refresh=by_key("shop"))
def cities(shops):
    return shops.groupBy("shop").agg(F.max("city").alias("city"))


CITIES = {"cities": lookup("silver.cities")}
FOLLOWED = {"cities": lookup("silver.cities", on="shop")}
BY = by_key("customer")
"""

HONEST = '''
@table("gold.grouped", refresh=BY)
def grouped(current):
    return current.groupBy("customer").agg(F.count_distinct("shop").alias("shops"), F.sum("amount").alias("amount"))


@table("gold.twice_grouped", refresh=BY)
def twice_grouped(current):
    days = current.groupBy("customer", F.to_date("at").alias("day")).agg(F.sum("amount").alias("amount"))
    return days.groupBy("customer").agg(F.max("amount").alias("best_day"), F.count("*").alias("days"))


@table("gold.windowed", refresh=BY)
def windowed(current):
    return current.select("customer", "id", F.sum("amount").over(Window.partitionBy("customer")).alias("all"))


@table("gold.ranked", refresh=BY)
def ranked(current):
    by_shop = Window.partitionBy("shop", "customer").orderBy("at", "id")
    return current.select("customer", "shop", "id", F.row_number().over(by_shop).alias("nth"))


@table("gold.joined", refresh=BY)
def joined(current, lines):
    seen = lines.groupBy("customer").agg(F.count("*").alias("lines"))
    return current.groupBy("customer").agg(F.sum("amount").alias("amount")).join(seen, "customer", "left")


@table("gold.full_joined", refresh=BY)
def full_joined(current, lines):
    seen = lines.groupBy("customer").agg(F.count("*").alias("lines"))
    return current.groupBy("customer").agg(F.sum("amount").alias("amount")).join(seen, "customer", "full")


@table("gold.with_itself", refresh=BY)
def with_itself(current):
    most = current.groupBy("customer").agg(F.max("amount").alias("most"))
    return current.join(most, "customer").where("amount = most").select("customer", "id", "most")


@table("gold.united", refresh=BY)
def united(current, lines):
    both = current.select("customer", "amount").unionByName(lines.select("customer", F.lit(0).alias("amount")))
    return both.groupBy("customer").agg(F.count("*").alias("rows"), F.sum("amount").alias("amount"))


@table("gold.looked_up", refresh=BY, inputs=CITIES)
def looked_up(current, cities):
    return current.join(cities, "shop", "left").groupBy("customer").agg(F.count_distinct("city").alias("cities"))


@table("gold.followed", refresh=by_key("id"), inputs=FOLLOWED)
def followed(current, cities):
    return current.select("id", "shop").join(cities, "shop", "left")


@table("gold.in_pandas", refresh=BY)
def in_pandas(current):
    def summed(rows: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"customer": rows["customer"].iloc[:1], "n": [len(rows)]})

    return current.select("customer", "id").groupBy("customer").applyInPandas(summed, "customer STRING, n BIGINT")


@table("gold.in_arrow", refresh=BY)
def in_arrow(current):
    return current.select("customer", "shop", "id").groupBy("shop", "customer").applyInArrow(
        lambda rows: rows.slice(0, 1).select(["customer", "shop"]), "customer STRING, shop STRING")


@table("gold.mean", refresh=BY)
def mean(current):
    @F.pandas_udf(DoubleType())
    def middle(values: pd.Series) -> float:
        return float(values.max() + values.min())

    return current.groupBy("customer").agg(middle(F.col("amount").cast("DOUBLE")).alias("middle"))


@table("gold.once", refresh=BY)
def once(current):
    return current.select("customer", "shop").distinct().groupBy("customer").agg(F.count("*").alias("shops"))


@table("gold.exploded", refresh=BY)
def exploded(current):
    letters = current.select("customer", F.explode(F.split("shop", "")).alias("letter"))
    return letters.dropDuplicates(["letter", "customer"])


@table("gold.cased", refresh=BY)
def cased(current):
    shout = F.udf(lambda text: text and text.upper(), StringType())
    return current.select("customer", "id", shout("shop").alias("shop")).where("id % 2 = 0")


@table("gold.a_day", refresh=by_key(day="date(at)"))
def a_day(current):
    return current.groupBy(F.to_date("at").alias("day")).agg(F.sum("amount").alias("amount"))


@table("gold.a_minute", refresh=by_key("shop", minute="date_trunc('MINUTE', at)"))
def a_minute(current):
    again = Window.partitionBy("shop", "at").orderBy("id")
    first = current.withColumn("nth", F.row_number().over(again)).where("nth = 1")
    return first.groupBy("shop", F.date_trunc("minute", "at").alias("minute")).agg(F.count("*").alias("n"))


@table("gold.missing", refresh=BY)
def missing(lines, current):
    return lines.select("customer").distinct().join(current, "customer", "left_anti")


@table("gold.both", refresh=BY)
def both(lines, current):
    return lines.select("customer", "shop").intersect(current.select("customer", "shop"))


@table("gold.sets", refresh=BY)
def sets(current):
    grouping = "SELECT customer, shop, count(*) AS n FROM {c} GROUP BY GROUPING SETS ((customer, shop), (customer))"
    return current.sparkSession.sql(grouping, c=current)


@table("gold.other_name", refresh=by_key("who"), inputs={"current": ref("silver.current", who="customer"),
                                                        "lines": ref("bronze.lines", who="customer")})
def other_name(current, lines):
    named = current.select(F.col("customer").alias("who"), "amount")
    seen = lines.select(F.col("customer").alias("who")).distinct()
    return named.join(seen, "who", "left_semi").groupBy("who").agg(F.sum("amount").alias("amount"))


with_shops = table("gold.with_shops", refresh=BY)(sql("""
    WITH sums AS (SELECT customer, shop, sum(amount) AS amount FROM {current} GROUP BY customer, shop),
         most AS (SELECT customer, max(amount) AS most FROM sums GROUP BY customer)
    SELECT s.customer, s.shop, s.amount FROM sums s JOIN most m ON s.customer = m.customer AND s.amount = m.most
"""))

in_order = table("gold.in_order", refresh=BY)(sql("""
    SELECT customer, id, amount - lag(amount) OVER (PARTITION BY customer ORDER BY at, id) AS more
    FROM {current} WHERE amount > 0
"""))

above_the_cities = table("gold.above", refresh=BY, inputs=CITIES)(sql("""
    SELECT customer, count(*) AS n FROM {current}
    WHERE length(shop) <= (SELECT max(length(city)) FROM {cities}) GROUP BY customer
"""))


@table("gold.rows", refresh=append(), inputs=CITIES)
def each_row(lines, cities):
    return lines.join(cities, "shop", "left").withColumn("cents", F.expr("bigint(amount * 100)"))


def rate(totals):
    return totals.select("customer", "lines", F.try_divide("amount", "lines").alias("each"))


@table("gold.merged", refresh=accumulate("customer", lines="count", amount="sum", last="max", finish=rate))
def merged(current):
    measures = [F.count("*").alias("lines"), F.coalesce(F.sum("amount"), F.lit(0)).alias("amount")]
    return current.groupBy("customer").agg(*measures, F.max(F.struct("at", "id")).alias("last"))


@table("gold.united_and_merged", refresh=accumulate("shop", n="sum", first="min"))
def united_and_merged(current, lines):
    none = lines.select("shop", F.lit(0).alias("n"), "at")
    rows = current.select("shop", F.lit(1).alias("n"), "at").unionByName(none)
    return rows.groupBy("shop").agg(F.sum("n").alias("n"), F.min("at").alias("first"))


@table("gold.shaped_after_the_group", refresh=accumulate("shop", n="sum", least="min", last="max"))
def shaped_after_the_group(current):
    grouped = current.groupBy("shop").agg(
        F.count("*").alias("all"),
        F.count("amount").alias("some"),
        F.min("id").alias("least"),
        F.max(F.struct("at", F.col("id") + 1)).alias("last"),
    )
    return grouped.where("shop <> 'none'").select(
        "shop",
        (F.col("all") + F.col("some")).cast("DECIMAL(20, 2)").alias("n"),
        F.col("least").cast("BIGINT"),
        F.col("last").cast("struct<at:timestamp,next:bigint>"),
    )
'''

#: What arrives, run by run: additions, corrections (an id again), deletions (an id without a customer).
RUNS = [
    [
        "1,ann,north,5.00,2026-08-01 10:00:05", "2,ann,south,2.50,2026-08-01 10:00:05",
        "3,bob,north,1.00,2026-08-02 09:30:00", "4,cid,east,7.00,2026-08-02 09:30:10",
        "5,,west,1.00,2026-08-03 00:00:00", "6,dan,west,3.00,2026-08-03 12:00:00",
    ],
    ["7,ann,north,9.00,2026-08-03 12:00:00", "8,eve,south,4.00,2026-08-04 08:00:00"],
    [
        "1,ann,east,6.00,2026-08-01 10:00:45", "3,cid,north,1.00,2026-08-02 09:30:00",
        "9,fay,west,0.50,2026-08-04 08:00:00",
    ],
    ["6,,west,3.00,2026-08-03 12:00:00", "4,,east,7.00,2026-08-02 09:30:10"],
    [
        "6,dan,west,3.00,2026-08-03 12:00:00", "10,,north,1.00,2026-08-05 00:00:00",
        "2,,south,0.00,2026-08-01 10:00:05",
    ],
    [
        "11,gus,south,8.00,2026-08-05 10:00:00", "1,ann,north,5.00,2026-08-01 10:00:05",
        "8,ann,south,4.00,2026-08-01 10:00:05",
    ],
]  # fmt: skip
SHOPS = ["north,Oslo", "south,Rome", "east,Wien"]


def land(project: TinyProject, number: int) -> None:
    lines = [f"{line},{number}" for line in RUNS[number]]
    project.land(f"{number}.csv", "\n".join(["id,customer,shop,amount,at,number", *lines, ""]), "lines")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> tuple[TinyProject, list[dict[str, Any]]]:
    """All of it, built and run five times more; what each run did to each table."""
    project = tiny(tmp_path_factory.mktemp("honest"), HEAD + HONEST)
    project.land("1.csv", "\n".join(["shop,city", *SHOPS, ""]), "shops")
    told = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(update, "REBUILD_SHARE", 100.0)
        for number in range(len(RUNS)):
            land(project, number)
            if number == 4:
                project.land("2.csv", "shop,city\nwest,Bern\neast,Graz\n", "shops")
            result = project.run()
            assert result.status == "published", result.error
            told.append({outcome.table: outcome for outcome in result.tables})
    return project, told


def test_every_one_of_them_is_proven(lake: tuple[TinyProject, list[dict[str, Any]]]) -> None:
    states = lake[0].lake.states()
    found = {
        name: state.promise
        for name, state in states.items()
        if name.startswith(("gold", "silver")) and "__" not in name
    }
    assert len(found) >= 28
    assert set(found.values()) == {"proven"}


def test_five_runs_later_every_one_of_them_is_what_a_full_build_gives(
    lake: tuple[TinyProject, list[dict[str, Any]]],
) -> None:
    project, told = lake
    actions = {table: [run[table].action for run in told[1:] if table in run] for table in told[0]}
    for table in actions:
        if table.startswith("gold") and table not in ("gold.looked_up", "gold.above", "gold.rows"):
            assert set(actions[table]) <= {"update"}, f"{table}: {actions[table]}"
            assert len(actions[table]) >= 3, table
    verdicts = {verdict.table: (verdict.status, verdict.examples) for verdict in Lake(project.root).verify("gold.*")}
    assert {table: verdict for table, verdict in verdicts.items() if verdict != ("exact", ())} == {}


def test_python_that_gives_rows_of_another_group_is_found_out_when_it_is_called(tmp_path: Path) -> None:
    wrong = """

@table("gold.wrong", refresh=BY)
def wrong(current):
    def other(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(customer="somebody else")

    return current.select("customer", "id").groupBy("customer").applyInPandas(other, "customer STRING, id BIGINT")
"""
    project = tiny(tmp_path, HEAD + wrong)
    project.land("1.csv", "\n".join(["shop,city", *SHOPS, ""]), "shops")
    land(project, 0)
    result = project.run()
    assert result.status == "failed"
    assert "returned rows with a different customer" in result.error
