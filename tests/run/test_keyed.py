"""What is known to go wrong with tables that follow changes, one by one."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import DecimalType
from pyspark.sql import SparkSession

from icefield import Lake
from icefield.engine import limits
from icefield.engine.limits import Limits
from icefield.engine.refresh import changes, pruning, renewal, update
from icefield.engine.refresh import keys as keyed
from icefield.engine.refresh import outcome as outcomes
from icefield.engine.refresh import replace as replacing
from icefield.engine.refresh.accumulate import Accumulating
from icefield.engine.refresh.computed import Updated
from icefield.errors import KeyUnknown
from icefield.lake import metadata as meta
from icefield.lake.catalog import LAKE
from icefield.lake.embedded import RECORDER
from projects import TinyProject, order, tiny

pytestmark = pytest.mark.spark

HEAD = """
from pyspark.sql import functions as F
from icefield import (
    accumulate, append, by_key, expect, expect_table, files, full, lookup, reconciles, ref, references, table, unique
)

ORDERS = "id BIGINT, customer STRING, amount DECIMAL(10,2), at TIMESTAMP"


@table("bronze.orders", source=files("landing/orders/*.csv", schema=ORDERS, changed="replace"), refresh=append())
def orders(rows):
    return rows.drop("ingested_at", "source_line")
"""


def project_of(root: Path, text: str, *orders: str) -> TinyProject:
    project = tiny(root, HEAD + text)
    project.land("1.csv", orders or [order(1), order(2, "bob", "3.00")])
    return project


def outcome(result: Any, table: str) -> Any:
    assert result.status == "published", result.error
    return next(one for one in result.tables if one.table == table)


def require_exact(project: TinyProject, *tables: str) -> None:
    """Every table is what its function gives for all of its inputs."""
    verdicts = Lake(project.root).verify(" ".join(tables))
    found = {verdict.table: (verdict.status, verdict.examples) for verdict in verdicts}
    assert found == dict.fromkeys(tables, ("exact", ()))


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many keys change, no rebuild."""
    monkeypatch.setattr(update, "REBUILD_SHARE", 100.0)


NUMBERS = """
@table("silver.numbers", refresh=append())
def numbers(orders):
    key = "CASE customer WHEN 'nan' THEN double('NaN') WHEN 'minus' THEN -0.0D WHEN 'zero' THEN 0.0D END"
    return orders.select(F.expr(key).alias("k"), "amount", F.col("id"))


@table("gold.by_key", refresh=by_key("k"))
def keyed(numbers):
    return numbers.groupBy("k").agg(F.count("*").alias("n"), F.sum("amount").alias("amount"))


@table("gold.merged", refresh=accumulate("k", n="count", amount="sum", last="max"))
def merged(numbers):
    return numbers.groupBy("k").agg(F.count("*").alias("n"), F.sum("amount").alias("amount"), F.max("id").alias("last"))
"""


@pytest.mark.usefixtures("always")
def test_null_nan_and_both_zeros_are_keys_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacing, "SMALL_TABLE", 0)  # by delete files; tables that are written anew join likewise
    kinds = ["nan", "minus", "zero", "none"]
    project = project_of(tmp_path, NUMBERS, *(order(n, kind) for n, kind in enumerate(kinds)))
    project.run()
    project.land("2.csv", [order(n + 10, kind, "2.50") for n, kind in enumerate(kinds)])
    assert outcome(project.run(), "gold.merged").action == "update"
    expected = "SELECT k IS NULL, isnan(k), k = 0, n::INT, amount::VARCHAR FROM gold.{0} ORDER BY 1, 2"
    for table in ("by_key", "merged"):
        assert project.ask(expected.format(table)) == [
            (False, False, True, 4, "7.00"), (False, True, False, 2, "3.50"), (True, None, None, 2, "3.50"),
        ]  # fmt: skip
    require_exact(project, "gold.by_key", "gold.merged")


CHAIN = """
@table("silver.latest", refresh=by_key("id"))
def latest(orders):
    newest = F.max(F.struct("source_file", "amount", "customer")).alias("newest")
    return orders.groupBy("id").agg(newest).select("id", "newest.customer", "newest.amount")


@table("gold.largest", refresh=accumulate("customer", amount="max", spent="sum"))
def largest(latest):
    return latest.groupBy("customer").agg(F.max("amount").alias("amount"), F.sum("amount").alias("spent"))
"""


@pytest.mark.usefixtures("always")
def test_what_all_have_read_is_no_longer_told_and_who_is_behind_still_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MANY_FILES", 2)
    project = project_of(tmp_path, CHAIN)
    told = "SELECT DISTINCT _icefield_number::INT FROM silver.latest__changes ORDER BY 1"
    project.run()
    project.land("2.csv", [order(1, "ann", "2.00")])
    project.run()
    assert "silver.latest__changes" not in project.lake.pointers(), "all who follow have read it in the same run"
    for number in (3, 4, 5):
        project.land(f"{number}.csv", [order(2, "bob", f"{number}0.00")])
        project.run(select="bronze.orders silver.latest")
    assert project.ask(told) == [(3,), (4,), (5,)], "nobody has read these"
    project.land("6.csv", [order(2, "eve", "6.00")])
    assert outcome(project.run(), "gold.largest").action == "update"
    assert project.ask(told) == [(3,), (4,), (5,)], "the last was read in the same run"
    require_exact(project, "silver.latest", "gold.largest")
    project.land("7.csv", [order(1, "eve", "7.00")])
    project.run(select="bronze.orders silver.latest")
    assert project.ask(told) == [(7,)], "four files are too many, and three of them have been read"
    assert outcome(project.run(), "gold.largest").action == "update"
    require_exact(project, "silver.latest", "gold.largest")


@pytest.mark.usefixtures("always")
def test_a_consumer_far_behind_does_not_see_what_came_and_went_meanwhile(tmp_path: Path) -> None:
    project = project_of(tmp_path, CHAIN)
    project.run()
    project.land("2.csv", [order(1, "ann", "900.00"), order(3, "ann", "1.00")])
    project.run(select="orders latest")
    project.land("3.csv", [order(1, "ann", "2.00")])  # the 900.00 are taken back before gold.largest saw them
    project.run(select="orders latest")
    assert outcome(project.run(), "gold.largest").action == "update"
    assert sorted(project.ask("SELECT customer, amount::VARCHAR, spent::VARCHAR FROM gold.largest")) == [
        ("ann", "2.00", "3.00"), ("bob", "3.00", "3.00"),
    ]  # fmt: skip
    # A maximum that is removed is looked for among the rows that are left; a key without rows goes.
    project.land("4.csv", [order(1, "bob", "0.50"), order(3, "bob", "0.50"), order(2, "cid", "1.00")])
    project.run()
    assert sorted(project.ask("SELECT customer, amount::VARCHAR, spent::VARCHAR FROM gold.largest")) == [
        ("bob", "0.50", "1.00"), ("cid", "1.00", "1.00"),
    ]  # fmt: skip
    require_exact(project, "silver.latest", "gold.largest")


def test_when_most_keys_changed_the_table_is_rebuilt_and_says_so(tmp_path: Path) -> None:
    project = project_of(tmp_path, CHAIN)
    project.run()
    project.land("2.csv", [order(3), order(4)])
    assert outcome(project.run(), "silver.latest").action == "update", "two of four: the others need not be read"
    project.land("3.csv", [order(1, "ann", "5.00"), order(2, "ann", "5.00"), order(5)])
    told = outcome(project.run(), "silver.latest")
    assert (told.action, told.reason) == ("rebuild", "3 of 5 keys changed")
    recorded = project.ask("""SELECT action, reason FROM ops.table_runs WHERE "table" = 'silver.latest'""")
    assert ("rebuild", "3 of 5 keys changed") in recorded


def test_a_correction_withdraws_rows_everywhere_below(tmp_path: Path) -> None:
    project = project_of(tmp_path, CHAIN)
    project.land("2.csv", [order(9, "eve", "8.00")])
    project.run()
    project.land("2.csv", [order(10, "ann", "7.00"), order(11, "fay", "1.00")])
    project.run()
    assert sorted(project.ask("SELECT customer FROM gold.largest")) == [("ann",), ("bob",), ("fay",)]
    require_exact(project, "silver.latest", "gold.largest")


PARTS = """
@table("gold.days", refresh=by_key("day"), partitioned_by=["day"],
       inputs={"orders": ref("bronze.orders", day="date(at)")},
       checks=[expect("amounts are small", "amount < 1000", otherwise="quarantine")])
def days(orders):
    return orders.select(F.to_date("at").alias("day"), "customer", "amount")
"""


@pytest.mark.usefixtures("always")
def test_partitions_and_quarantine_are_replaced_by_key(tmp_path: Path) -> None:
    one, two = "2026-08-01 10:00:00", "2026-08-02 10:00:00"
    lines = [order(1, "ann", "5000.00", one), order(2, "ann", "1.00", one), order(3, "bob", "1.00", two)]
    project = project_of(tmp_path, PARTS, *lines)
    project.run()
    project.land("2.csv", [order(4, "ann", "2.00", one), order(5, "ann", "7000.00", one)])
    assert outcome(project.run(), "gold.days").action == "update"
    assert sorted(project.ask("SELECT amount::INT FROM gold.days")) == [(1,), (1,), (2,)]
    assert sorted(project.ask("SELECT amount::INT FROM gold.days__quarantine")) == [(5000,), (7000,)]
    assert outcome(project.run(full_refresh=True), "gold.days").action == "rebuild"
    assert sorted(project.ask("SELECT amount::INT FROM gold.days__quarantine")) == [(5000,), (7000,)]


SOUND = """
KNOWN = expect("known", "brand <> 'x'", otherwise="drop")


@table("silver.named", refresh=append(), volatile=["seen_at"], checks=[KNOWN])
def named(orders):
    return orders.select("id", F.col("customer").alias("brand"), F.current_timestamp().alias("seen_at"))


@table("gold.wide", refresh=accumulate("customer", ann="sum", bob="sum", trusted=True))
def wide(orders):
    both = orders.withColumn("kind", F.col("customer"))
    return both.groupBy("customer").pivot("kind", ["ann", "bob"]).agg(F.sum("amount"))


@table("gold.less", refresh=accumulate("customer", n="sum", most="max", day="max", last="last"))
def less(orders):
    fee = F.coalesce("amount", F.lit(0)).alias("fee")  # never NULL, but what is stored may be
    found = orders.groupBy("customer").agg(
        F.expr("coalesce(sum(amount), 0.000) - ifnull(sum(id), 0) * 2").alias("n"),
        F.expr("greatest(max(id), max(int(amount)))").alias("most"),
        F.max("at").cast("date").alias("day"),
        F.max(F.struct("at", fee)).alias("last"),
    )
    return found.where("customer IS NOT NULL")


@table("gold.ids", refresh=by_key("customer"))
def ids(orders):
    once = orders.select("customer", "id").dropDuplicates(["id", "customer"])
    return once.groupBy("customer").agg(F.sort_array(F.collect_list("id")).alias("ids"))


@table("gold.known", refresh=by_key("id"), inputs={"named": lookup("silver.named")})
def known(orders, named):
    brands = [row.brand for row in named.select("brand").distinct().collect()]  # of a table that is passed whole
    return orders.select("id", "customer").where(F.col("customer").isin(brands))
"""


@pytest.mark.usefixtures("always")
def test_what_only_looks_like_a_broken_promise_is_taken(tmp_path: Path) -> None:
    """A clock in a volatile column is none of the check's; a pivot is two groups of Spark's, one of the author's."""
    project = project_of(tmp_path, SOUND, order(1, amount=""), order(2, "bob"))
    assert project.run().status == "published"
    project.land("2.csv", [order(3, "ann", "2.50"), order(4, "")])
    assert outcome(project.run(), "gold.wide").action == "update"
    require_exact(project, "gold.ids", "gold.known", "gold.less", "gold.wide")


CARRIED = """
@table("bronze.days", source=files("landing/days/*.csv", schema="id BIGINT, day DATE, customer STRING, rate BIGINT"))
def days(rows):
    return rows.select("id", "day", F.col("customer").alias("by"), "rate")


@table("gold.t", refresh=by_key("id"), inputs={"days": "bronze.days", "rates": lookup("bronze.days", on=["id", "by"])})
def t(orders, days, rates):
    carried = orders.select("id", "amount").join(days.select("id", "by"), "id")
    return carried.join(rates.select("id", "by", "rate"), ["id", "by"])
"""


def test_a_lookup_is_carried_by_rows_of_one_input(tmp_path: Path) -> None:
    assert refused(tmp_path / "one", CARRIED) is None, "days have both"
    both = CARRIED.replace('on=["id", "by"]', 'on=["customer", "day"]').replace('.alias("by")', '.alias("customer")')
    both = both.replace('{"days": "bronze.days",', '{"days": "silver.days",').replace('"by"', '"day"') + SILVER_DAYS
    assert "one keyed input must have all these columns" in str(refused(tmp_path / "two", both))


SILVER_DAYS = """

@table("silver.days", refresh=append(), inputs={"rows": "bronze.days"})
def silver_days(rows):
    return rows.select("id", "day")
"""


def refused(root: Path, text: str) -> Exception | None:
    """What a run does not take; None where it takes all."""
    project = project_of(root, text)
    project.land("1.csv", "id,day,customer,rate\n1,2026-08-01,ann,2\n", "days")
    try:
        assert project.run().status == "published"
    except KeyUnknown as error:
        return error
    return None


def test_what_stands_beside_a_table_follows_a_change_of_its_columns(tmp_path: Path) -> None:
    """Measures kept beside, and the changes told, are icefield's own: nobody has to make them anew by hand."""
    project = project_of(tmp_path, BESIDE.replace("{measures}", "n='count', m='last'").replace("{more}", LAST))
    project.run()
    project.land("2.csv", [order(3)])
    project.run()
    project.declare(HEAD + BESIDE.replace("{measures}", "n='count'").replace("{more}", ""))
    assert outcome(project.run(full_refresh=True), "silver.counts").action == "rebuild"
    project.land("3.csv", [order(4)])
    assert outcome(project.run(), "silver.counts").action == "update"
    assert sorted(project.ask("SELECT customer, n2::INT FROM gold.doubled")) == [("ann", 6), ("bob", 2)]


LAST = ", F.max(F.struct('at', 'id')).alias('m')"
BESIDE = """
def shown(measures):
    return measures.select("customer", (F.col("n") + 0).alias("shown_n"))


@table("silver.counts", refresh=accumulate("customer", {measures}, finish=shown))
def counts(orders):
    return orders.groupBy("customer").agg(F.count("*").alias("n"){more})


@table("gold.doubled", refresh=by_key("customer"))
def doubled(counts):
    return counts.select("customer", (F.col("shown_n") * 2).alias("n2"))
"""


LOOKED_UP = """
@table("bronze.names", source=files("landing/names/*.csv", schema="customer STRING, name STRING", changed="replace"))
def names(rows):
    return rows.select("customer", "name")


@table("silver.names", refresh=by_key("customer"))
def known(names):
    return names.groupBy("customer").agg(F.max("name").alias("name"))


@table("gold.orders", refresh=by_key("id"), inputs={"known": lookup("silver.names", on="customer")})
def named(orders, known):
    return orders.select("id", "customer").join(known, "customer", "left")
"""


@pytest.mark.usefixtures("always")
def test_a_changed_row_of_a_lookup_touches_only_the_keys_that_carry_it(tmp_path: Path) -> None:
    project = project_of(tmp_path, LOOKED_UP, order(1, "ann"), order(2, "bob"), order(3, "ann"), order(4, "cid"))
    project.land("1.csv", "customer,name\nann,Ann\nbob,Bob\n", "names")
    project.run()
    project.land("2.csv", "customer,name\nann,Anna\ncid,Cid\n", "names")
    told = outcome(project.run(), "gold.orders")
    assert (told.action, told.rows_added, told.rows_removed) == ("update", 3, 3)
    assert sorted(project.ask("SELECT id::INT, name FROM gold.orders")) == [
        (1, "Anna"), (2, "Bob"), (3, "Anna"), (4, "Cid"),
    ]  # fmt: skip


def test_verify_shows_rows_that_someone_changed_and_the_next_run_mends_them(tmp_path: Path) -> None:
    project = project_of(tmp_path, CHAIN)
    project.run()
    verdicts = {verdict.table: verdict for verdict in Lake(project.root).verify()}
    assert verdicts["bronze.orders"].status == "not compared"
    assert verdicts["silver.latest"].status == verdicts["gold.largest"].status == "exact"
    deep = {verdict.table: verdict.status for verdict in Lake(project.root).verify(deep=True)}
    assert set(deep.values()) == {"exact"}

    delete(project, "silver.latest", "id = 1")
    (verdict,) = Lake(project.root).verify("silver.latest")
    assert (verdict.status, verdict.missing, verdict.too_many) == ("differs", 1, 0)
    assert verdict.examples[0][0] == "missing"
    assert verdict.examples[0][1]["id"] == 1
    assert len(catalogs(project, RECORDER)) == 1, "three times under one name: Spark forgets none"
    told = outcome(project.run(), "silver.latest")
    assert (told.action, told.reason) == ("rebuild", "its rows were changed outside icefield")
    require_exact(project, "silver.latest", "gold.largest")


def opened(project: TinyProject) -> SqlCatalog:
    """The lake, as someone else opens it."""
    lake = project.lake
    return SqlCatalog(LAKE, uri=f"sqlite:///{lake.catalog.path}", warehouse=str(lake.warehouse))


def test_columns_that_someone_else_changed_are_noticed_although_no_snapshot_tells(tmp_path: Path) -> None:
    """A column that was dropped and added again has no values any more, for every reader."""
    project = project_of(tmp_path, CHAIN)
    project.run()
    right = sorted(project.ask("SELECT * FROM silver.latest"))
    catalog = opened(project)
    with catalog.load_table("silver.latest").update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("amount")
    (verdict,) = Lake(project.root).verify("silver.latest")
    assert (verdict.status, verdict.detail) == ("differs", "its columns changed: amount")
    with catalog.load_table("silver.latest").update_schema() as change:
        change.add_column("amount", DecimalType(10, 2))
    catalog.close()
    assert {amount for _, _, amount in project.ask("SELECT * FROM silver.latest")} == {None}
    for deep in (False, True):
        (verdict,) = Lake(project.root).verify("silver.latest", deep=deep)
        assert (verdict.status, verdict.missing, verdict.too_many) == ("differs", 2, 2)
    told = outcome(project.run(), "silver.latest")
    assert (told.action, told.reason) == ("rebuild", "its rows were changed outside icefield")
    assert sorted(project.ask("SELECT * FROM silver.latest")) == right
    require_exact(project, "silver.latest", "gold.largest")


def test_what_was_told_is_not_lost_when_someone_else_widens_a_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewal, "MANY", 0)
    monkeypatch.setattr(limits, "LIMITS", Limits(held_bytes=-1))
    project = project_of(tmp_path, VISITS)
    project.run()
    for number in (3, 4):
        project.land(f"{number}.csv", [order(number, f"new {number}")])
        assert project.run(select="bronze.orders silver.visits").status == "published"
    catalog = opened(project)
    with catalog.load_table("silver.visits").update_schema() as change:
        change.update_column("amount", DecimalType(26, 2))
    catalog.close()
    project.land("5.csv", [order(5, "new 5")])
    refused = project.run()
    assert refused.status == "failed"
    assert refused.error.startswith("ICE-306")
    assert project.run(select="silver.visits", full_refresh=True).status == "published"
    assert project.run().status == "published"
    require_exact(project, "silver.visits", "gold.customers")
    wanted = [("ann",), ("bob",), ("new 3",), ("new 4",), ("new 5",)]
    assert project.ask("SELECT customer FROM gold.customers ORDER BY 1") == wanted


@pytest.mark.usefixtures("always")
def test_who_read_rows_that_someone_else_wrote_is_computed_again_when_they_are_gone(tmp_path: Path) -> None:
    project = project_of(tmp_path, CHAIN)
    project.run()
    catalog = opened(project)
    table = catalog.load_table("silver.latest")
    good = table.metadata.current_snapshot_id
    table.append(table.scan().to_arrow())
    assert outcome(project.run(select="gold.largest"), "gold.largest").action == "rebuild"
    assert project.run(select="gold.largest").status == "nothing new", "as long as they are there"
    with catalog.load_table("silver.latest").manage_snapshots() as manage:
        manage.set_current_snapshot(good)
    catalog.close()
    told = outcome(project.run(), "gold.largest")
    assert (told.action, told.reason) == (
        "rebuild",
        "it read rows of silver.latest that had been changed outside icefield",
    )
    require_exact(project, "silver.latest", "gold.largest")


@pytest.mark.usefixtures("always")
def test_what_a_dropped_table_told_is_not_told_again(tmp_path: Path) -> None:
    project = project_of(tmp_path, VISITS)
    project.run()
    for number in (2, 3):
        project.land(f"{number}.csv", [order(1, "ann", "2.00"), order(number + 5, "eve")])
        project.run()
    catalog = opened(project)
    catalog.drop_table("silver.visits")
    catalog.drop_table("gold.customers")
    catalog.close()
    project.run()
    for number in (4, 5):
        project.land(f"{number}.csv", [order(1, "ann", "2.00"), order(number + 5, "kim")])
        assert outcome(project.run(), "gold.customers").action == "update"
    require_exact(project, "silver.visits", "gold.customers")


SEEN = """
@table("silver.seen", refresh=by_key("id"), volatile=["seen_at"])
def seen(orders):
    newest = F.max(F.struct("source_file", "customer", "amount")).alias("newest")
    found = orders.groupBy("id").agg(newest).select("id", "newest.customer", "newest.amount")
    return found.withColumn("seen_at", F.current_timestamp())


@table("gold.most", refresh=accumulate("customer", most="max", n="count"))
def most(seen):
    return seen.groupBy("customer").agg(F.max("amount").alias("most"), F.count("*").alias("n"))
"""


@pytest.mark.usefixtures("always")
def test_what_came_and_went_again_is_no_change_whatever_the_clock_said(tmp_path: Path) -> None:
    some = [order(number, "bob", f"{number}.00") for number in range(1, 9)]
    project = project_of(tmp_path, SEEN, *some, order(9, "ann", "1.00"))
    project.run()
    for number, amount in enumerate(("90.00", "90.00", "80.00", "2.00"), start=2):
        project.land(f"{number}.csv", [order(20, "ann", amount)])
        assert project.run(select="bronze.orders silver.seen").status == "published"
    assert outcome(project.run(), "gold.most").action == "update"
    assert sorted(project.ask("SELECT customer, most::INT, n::INT FROM gold.most")) == [("ann", 2, 2), ("bob", 8, 8)]


CLOCKS = """
@table("gold.by_key", refresh=by_key("customer"), volatile=["newest"])
def keyed(orders):
    return orders.groupBy("customer").agg(F.expr("if(now() > '1970-01-01', max(id), 0)").alias("newest"))


@table("gold.merged", volatile=["newest"], refresh=accumulate("customer", last="max", finish=lambda rows: rows.select(
    "customer", F.expr("if(now() > '1970-01-01', last, 0)").alias("newest"))))
def merged(orders):
    return orders.groupBy("customer").agg(F.max("id").alias("last"))


@table("gold.whole", refresh=full(), volatile=["newest"])
def whole(orders):
    return orders.groupBy("customer").agg(F.expr("if(now() > '1970-01-01', max(id), 0)").alias("newest"))


@table("gold.below", refresh=by_key("customer"), inputs={"idle": "gold.by_key"})
def below(idle, whole, merged):
    every = idle.unionByName(whole).unionByName(merged)
    return every.groupBy("customer").agg(F.min("newest").alias("least"), F.max("newest").alias("most"))
"""


def test_a_volatile_column_is_written_and_followed_even_if_no_other_changed(tmp_path: Path) -> None:
    project = project_of(tmp_path, CLOCKS, *(order(n, who) for n, who in enumerate(["ann", "bob", "cai", "dan"])))
    project.run()
    project.land("2.csv", [order(20, "ann")])
    assert outcome(project.run(), "gold.below").action == "update"
    wanted = [("ann", 20, 20), ("bob", 1, 1), ("cai", 2, 2), ("dan", 3, 3)]
    assert project.ask("SELECT customer, least::INT, most::INT FROM gold.below ORDER BY 1") == wanted
    require_exact(project, "gold.below", "gold.by_key", "gold.merged", "gold.whole")


def catalogs(project: TinyProject, kind: str) -> list[str]:
    """Names of one kind under which Spark knows the lake."""
    spark, ending = SparkSession.builder.getOrCreate(), ".warehouse"
    places = {key.removesuffix(ending): at for key, at in spark.conf.getAll.items() if key.endswith(ending)}
    known = [key.rpartition(".")[2] for key, at in places.items() if at == str(project.lake.warehouse)]
    return [name for name in known if name.startswith(kind)]


def delete(project: TinyProject, table: str, condition: str) -> None:
    """Someone else takes rows out, with a commit of their own."""
    catalog = opened(project)
    with warnings.catch_warnings():  # PyIceberg writes files anew where it is asked for delete files
        warnings.simplefilter("ignore", UserWarning)
        catalog.load_table(table).delete(condition)
    catalog.close()


VISITS = """
EVERY = reconciles("every order is in a visit", {"silver.visits": "sum(n)", "bronze.orders": "count(*)"})


@table("silver.visits", refresh=accumulate("customer", "id", n="count", amount="sum", last="max"), checks=[EVERY])
def visits(orders):
    measures = [F.count("*").alias("n"), F.sum("amount").alias("amount"), F.max("at").alias("last")]
    return orders.groupBy("customer", "id").agg(*measures)


@table("gold.customers", refresh=accumulate("customer", n="sum", visits="count"))
def customers(visits):
    return visits.groupBy("customer").agg(F.sum("n").alias("n"), F.count("*").alias("visits"))
"""


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    "more", [0, pytest.param(100, marks=pytest.mark.thorough)], ids=["their keys first", "at once"]
)
def test_many_keys_are_joined_with_those_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    """As with hundred thousands and more; NULL is one of them, and so is a key whose row stays as it is."""
    monkeypatch.setattr(renewal, "_MORE", more)
    joined = []
    real = renewal.with_added
    monkeypatch.setattr(renewal, "with_added", lambda node, *rest: joined.append(node.name) or real(node, *rest))
    monkeypatch.setattr(renewal, "MANY", 0)
    monkeypatch.setattr(limits, "LIMITS", Limits(held_bytes=-1))
    monkeypatch.setattr(keyed, "SMALL", 0)
    monkeypatch.setattr(keyed, "_TELLING", 0)
    monkeypatch.setattr(outcomes, "read_by_all", lambda state, _: state.changes)
    project = project_of(tmp_path, VISITS, *(order(n, who) for n, who in enumerate(["ann", "bob", "", "eve"])))
    project.run()
    arrivals = [
        [(0, "ann"), (2, ""), (9, "kim")],
        [(9, "kim"), (2, ""), (3, "max"), (4, "")],
        [(7, "lee")],
        [(8, "lee")],
    ]
    for number, lines in enumerate(arrivals, 2):
        project.land(f"{number}.csv", [order(n, who, "2.50", f"2026-08-0{number} 10:00:00") for n, who in lines])
        assert outcome(project.run(), "silver.visits").action == "update"
    require_exact(project, "silver.visits", "gold.customers")
    assert joined == ["silver.visits"] * 2 + ["gold.customers"], "visits that are all new are joined with nothing"
    told = "SELECT _icefield_change, n::INT FROM silver.visits__changes WHERE id = 2 ORDER BY ALL"  # all are kept
    assert project.ask(told) == [("added", 2), ("added", 3), ("removed", 1), ("removed", 2)]


GUESSED = """
@table("silver.named", refresh=append())
def named(orders):
    return orders.select("id", F.col("customer").alias("who came"), "amount")


@table("silver.visits", refresh=accumulate("who came", "id", n="count", amount="sum"), {more}
       checks=[unique("id"), expect_table("all", "sum(n) > 0")])
def visits(named):
    return named.groupBy("who came", "id").agg(F.count("*").alias("n"), F.sum("amount").alias("amount"))


@table("gold.amounts", refresh=by_key("who came"))
def amounts(visits):
    return visits.groupBy("who came").agg(F.sum("amount").alias("amount"))
"""


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    ("more", "telling"),
    [pytest.param("", 0, marks=pytest.mark.thorough), ("partitioned_by=['id'],", 100)],
    ids=["spans of keys", "partitioned, keys listed"],
)
def test_keys_that_are_believed_to_be_new_are_written_at_once_and_taken_back_if_one_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, telling: int
) -> None:
    monkeypatch.setattr(renewal, "MANY", 0)
    monkeypatch.setattr(limits, "LIMITS", Limits(held_bytes=-1))
    monkeypatch.setattr(renewal, "_MORE", 0)
    monkeypatch.setattr(keyed, "SMALL", 0)
    monkeypatch.setattr(keyed, "_TELLING", telling)
    believed: list[bool] = []
    real = Accumulating.add_new

    def add_new(self: Accumulating) -> Updated | None:
        found = real(self)
        believed.append(found is not None)
        return found

    monkeypatch.setattr(Accumulating, "add_new", add_new)
    project = project_of(tmp_path, GUESSED.format(more=more), order(1, "ann"), order(2, "bob"))
    project.run()
    arrivals = [[(3, "ann")], [(4, ""), (5, "zoe")], [(6, "eve"), (5, "zoe")], [(7, "eve")], [(4, "")], [(0, "al")]]
    for number, lines in enumerate(arrivals, 2):
        project.land(f"{number}.csv", [order(n, who, f"{number}.25") for n, who in lines])
        result = project.run()
        assert outcome(result, "silver.visits").action == "update"
        catalog = opened(project)
        known = {
            meta.local_path(task.file.file_path) for task in catalog.load_table("silver.visits").scan().plan_files()
        }
        catalog.close()
        files = [f for f in project.files_of(result.run) if f.suffix == ".parquet" and "visits/data" in str(f)]
        assert {file for file in files if "deletes" not in file.name} <= known, "what was taken back is gone"
    assert believed == [False, True, False, False, False, False]
    require_exact(project, "silver.visits", "gold.amounts")


@pytest.mark.usefixtures("always")
def test_rows_that_someone_has_written_in_another_format_are_told_to_those_who_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewal, "MANY", 0)
    monkeypatch.setattr(limits, "LIMITS", Limits(held_bytes=-1))
    project = project_of(tmp_path, VISITS.replace(", checks=[EVERY]", ""), order(1, "ann"), order(2, "bob"))
    project.run()
    catalog = opened(project)
    with catalog.load_table("silver.visits").transaction() as change:
        change.set_properties({"write.format.default": "orc"})
    catalog.close()
    for number in (3, 4):
        project.land(f"{number}.csv", [order(number, "eve")])
        assert outcome(project.run(), "silver.visits").rows_added == 1
    require_exact(project, "silver.visits", "gold.customers")


DAYS = """
@table("gold.days", refresh=by_key(day="DATE(at)"))
def days(orders):
    day = F.expr("DATE(at)").alias("day")
    return orders.groupBy(day).agg(F.count("*").alias("n"), F.sum("amount").alias("amount"))
"""


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    "limit",
    [(pruning, "LISTED", 200), (pruning, "LISTED", 0), (keyed, "_TELLING", 0)],
    ids=["listed", "spans", "spans of files"],
)
def test_days_that_javas_calendar_does_not_have_are_keys_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: tuple[ModuleType, str, int]
) -> None:
    monkeypatch.setattr(*limit)
    old = [order(1, at="0001-01-01 10:00:00"), order(2, at="1582-10-10 10:00:00"), order(3)]
    project = project_of(tmp_path, DAYS, *old)
    project.run()
    project.land("2.csv", [order(4, at="0001-01-01 11:00:00"), order(5, at="1582-10-10 11:00:00")])
    assert outcome(project.run(), "gold.days").action == "update"
    require_exact(project, "gold.days")


LONG = """
@table("gold.long", refresh=accumulate("customer", v="sum"), checks=[expect_table("all", "sum(v) > 0")])
def long(orders):
    tiny = F.expr("CAST(amount * 0.00000001BD AS DECIMAL(28,10))")
    return orders.groupBy("customer").agg(F.sum(tiny).alias("v"))
"""


@pytest.mark.usefixtures("always")
def test_sums_of_long_decimals_keep_their_last_digit(tmp_path: Path) -> None:
    project = project_of(tmp_path, LONG)
    project.run()
    for number in (2, 3):
        project.land(f"{number}.csv", [order(number + 8, "ann", "0.01")])
        assert outcome(project.run(), "gold.long").action == "update"
    assert project.ask("SELECT v::VARCHAR FROM gold.long WHERE customer = 'ann'") == [("0.0000000102",)]
    require_exact(project, "gold.long")


SHOUTED = CHAIN.replace('latest.groupBy("customer")', 'latest.groupBy(F.upper("customer").alias("customer"))')


def test_a_merged_key_that_is_made_of_something_else_is_told_by_ref(tmp_path: Path) -> None:
    named = """inputs={"latest": ref("silver.latest", customer="upper(customer)")}, refresh=accumulate("""
    project = project_of(tmp_path, SHOUTED.replace("refresh=accumulate(", named))
    project.run()
    project.land("2.csv", [order(1, "bob", "2.00")])
    assert outcome(project.run(), "gold.largest").action == "update"
    require_exact(project, "gold.largest")


EMPTIED = """
@table("silver.large", refresh=append(){more})
def large(orders):
    return orders.where("amount > {limit}").select("id", {amount})


@table("gold.sizes", refresh=by_key("id"))
def by_id(large):
    return large.groupBy("id").count()
"""


@pytest.mark.parametrize("change", [{"amount": "F.col('amount').cast('STRING')"}, {"more": ", partitioned_by=['id']"}])
def test_a_table_that_is_made_anew_and_is_empty_then_is_not_the_same(tmp_path: Path, change: dict[str, str]) -> None:
    told = {"amount": "'amount'", "limit": "0", "more": ""}
    project = project_of(tmp_path, EMPTIED.format(**told))
    project.run()
    told |= {"limit": "1000000", **change}
    project.declare(HEAD + EMPTIED.format(**told))
    project.run(select="silver.large", full_refresh=True)
    assert project.ask("SELECT count(*)::INT FROM silver.large") == [(0,)]
    project.run()
    assert project.ask("SELECT count(*)::INT FROM gold.sizes") == [(0,)]


HOURS = """
@table("gold.hours", refresh=by_key(hour="{hour}"), partitioned_by=["hour"])
def hours(orders):
    return orders.groupBy(F.expr("{hour}").alias("hour")).agg(F.count("*").alias("n"))
"""


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ"])
def test_partitions_by_time_do_not_depend_on_the_zone_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Half past two comes twice on that night in Berlin."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        hour = f"CAST(date_trunc('HOUR', at) AS {kind})"
        at = ["2026-10-25 00:30:00", "2026-10-25 01:30:00"]
        project = project_of(tmp_path, HOURS.format(hour=hour), *(order(n, at=a) for n, a in enumerate(at)))
        project.run()
        for number, when in enumerate(at):
            project.land(f"{number + 2}.csv", [order(number + 10, at=when)])
            assert outcome(project.run(), "gold.hours").action == "update"
        assert project.ask("SELECT n::INT FROM gold.hours") == [(2,), (2,)]
        require_exact(project, "gold.hours")
    finally:
        monkeypatch.undo()
        time.tzset()


DAILY = """
@table("gold.daily", refresh=by_key("id"), partitioned_by=["days(at)"])
def daily(orders):
    return orders.select("id", "at", "amount")
"""


@pytest.mark.usefixtures("always")
def test_keys_that_only_come_find_their_partitions(tmp_path: Path) -> None:
    project = project_of(tmp_path, DAILY)
    project.run()
    project.land("2.csv", [order(3, at="2026-08-02 10:00:00")])
    assert outcome(project.run(), "gold.daily").rows_added == 1
    require_exact(project, "gold.daily")
