"""Rejected rows: how many may be, tables that read them, checks that count them, columns with another name."""

from __future__ import annotations

from pathlib import Path

import pytest

from icefield import Lake
from icefield.graph.state import Repair
from projects import TinyProject, order, tiny

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

HEAD = """
from pyspark.sql import functions as F
from icefield import accumulate, append, by_key, expect, files, full, not_null, reconciles, table, unique

ORDERS = "id BIGINT, customer STRING, amount DECIMAL(10,2), at TIMESTAMP"
CHECKS = [not_null("customer"), unique("id"), expect("amount is positive", "amount > 0")]


@table("bronze.orders", source=files("landing/orders/*.csv", schema=ORDERS, changed="replace"), checks=CHECKS,
       otherwise="quarantine"{options})
def orders(rows):
    return rows.drop("source_line", "ingested_at")
"""
GOOD = [order(1), order(2, "bob"), order(3, "cid")]
BAD = [order(4, ""), "x,eve,1.00,2026-08-01 10:00:00"]


def project_of(root: Path, options: str = "", more: str = "") -> TinyProject:
    return tiny(root, HEAD.replace("{options}", options) + more)


@pytest.mark.parametrize(("limit", "passes"), [('"40%"', True), ('"39%"', False), ("2", True), ("1", False)])
def test_a_table_that_rejects_too_many_rows_fails_the_run(tmp_path: Path, limit: str, *, passes: bool) -> None:
    project = project_of(tmp_path, f", max_rejected={limit}")
    project.land("1.csv", [*GOOD, *BAD])
    result = project.run()
    assert (result.status == "published") is passes, result.error
    if not passes:
        assert "2 of 5 rows were rejected, 40.0%" in result.error
        assert "row:   id=4" in result.error, "the first rows are shown"
        assert f'icefield sql --run {result.run} "SELECT * FROM bronze.orders__quarantine LIMIT 20"' in result.error
        assert "bronze.orders" not in project.lake.pointers()
        return
    recorded = "SELECT status, failed_rows::INT FROM ops.checks WHERE kind = 'rejected'"
    assert project.ask(recorded) == [("passed", 2)]
    project.land("2.csv", [order(9, "")])
    again = project.run()
    assert again.status == ("failed" if "%" in limit else "published"), "all of the new rows, and these count"
    if "%" in limit:
        assert "row:   id=9" in again.error
        assert "row:   id=4" not in again.error, "it was rejected by another run"


LIMITED = """
SMALL = expect("amounts are small", "amount < 2", otherwise="fail", at_most="{most}")


@table("silver.sales", refresh=append(), checks=[SMALL, unique("customer", otherwise="warn", at_most=1)])
def sales(orders):
    return orders.select("id", "customer", "amount")
"""


def test_a_check_may_fail_for_some_rows(tmp_path: Path) -> None:
    project = project_of(tmp_path, more=LIMITED.replace("{most}", "30%"))
    project.land("1.csv", [*GOOD, order(5, "ann", "7.00")])
    result = project.run()
    assert result.status == "published", result.error
    told = {check.check: (check.status, check.failed_rows, check.detail) for check in result.checks}
    assert told["amounts are small"] == ("passed", 1, "at most 30% may fail")
    assert told["customer is unique"][:2] == ("passed", 1)
    project.land("2.csv", [order(6, "dan", "8.00"), order(7, "ann"), order(8, "eve")])
    result = project.run()
    assert "check `amounts are small` failed for 1 row, at most 30% may fail" in result.error
    assert "row:   id=6, customer=dan, amount=8.00" in result.error
    assert "customer is unique" not in result.error, "a warning stops nothing"


READERS = """
@table("silver.why", refresh=append(), inputs={"waiting": "bronze.orders__quarantine"})
def why(waiting):
    return waiting.select(F.explode("reasons").alias("reason"), "line")


@table("gold.reasons", refresh=accumulate("reason", n="count"))
def reasons(why):
    return why.groupBy("reason").agg(F.count("*").alias("n"))


@table("gold.waiting", refresh=full(), inputs={"waiting": "orders__quarantine"}, checks=[reconciles(
    "all that wait are counted", {"bronze.orders__quarantine": "count(*)", "gold.waiting": "sum(n)"})])
def waiting(waiting):
    return waiting.agg(F.count("*").alias("n"))
"""


def test_a_quarantine_may_be_an_input_and_is_followed_like_one(tmp_path: Path) -> None:
    project = project_of(tmp_path, more=READERS)
    project.land("1.csv", GOOD)
    result = project.run()
    assert result.status == "published", result.error
    assert project.ask("SELECT n::INT FROM gold.waiting") == [(0,)], "nothing was ever rejected"
    for number, lines in enumerate([BAD, [order(5, ""), order(6)], [order(1), order(7)]], 2):
        project.land(f"{number}.csv", lines)
        result = project.run()
        assert result.status == "published", result.error
        actions = {outcome.table: outcome.action for outcome in result.tables}
        assert actions["silver.why"] == "append"
        assert actions["gold.reasons"] == ("rebuild" if number == 2 else "update"), "from none it is built"
    assert project.ask("SELECT n::INT FROM gold.waiting") == [(4,)]
    told = dict(project.ask("SELECT left(reason, 9), n::INT FROM gold.reasons"))
    assert told == {"customer ": 2, "malformed": 1, "id is uni": 1}
    discard = Repair(table="bronze.orders", kind="discard", reason="gone")
    dry = project.run(select="bronze.orders", repairs=(discard,), dry_run=True)
    assert dry.status == "dry run", "what tables below check is not asked: they are not refreshed"
    project.land("8.csv", [order(8)])
    statuses = {one.table: one.status for one in project.run().tables}
    assert statuses.pop("bronze.orders") == "published"
    assert set(statuses.values()) == {"unchanged"}, "nothing new waits"
    project.land("2.csv", [order(4, "dan"), "9,eve,1.00,2026-08-01 10:00:00"])  # corrected: both are taken now
    assert project.run().status == "published"
    assert project.ask("SELECT n::INT FROM gold.waiting") == [(2,)]
    assert {verdict.status for verdict in Lake(project.root).verify("silver.why gold.*")} == {"exact"}


RENAMED = """
@table("silver.sales", refresh=by_key("id"){renamed}, checks=[expect("small", "{amount} < 5", otherwise="quarantine")])
def sales(orders):
    return orders.select("id", F.col("amount").alias("{amount}"))


@table("gold.total", refresh=full())
def total(sales):
    return sales.agg(F.sum("{amount}").alias("all"))
"""


@pytest.mark.parametrize("accept", [False, True], ids=["rebuilt", "accepted"])
def test_a_column_may_have_another_name(tmp_path: Path, *, accept: bool) -> None:
    def declare(amount: str, renamed: str = "") -> str:
        return HEAD.replace("{options}", "") + RENAMED.replace("{amount}", amount).replace("{renamed}", renamed)

    project = tiny(tmp_path, declare("price"))
    project.land("1.csv", [*GOOD, order(4, "dan", "9.00")])
    assert project.run().status == "published"
    project.declare(declare("paid"))
    refused = project.run()
    assert refused.error.startswith("ICE-306 the columns of silver.sales are incompatible with the stored rows: price")
    assert 'renamed={"paid": "price"}' in refused.error
    project.declare(declare("paid", ', renamed={"paid": "price"}'))
    taken = ("silver.sales", "gold.total") if accept else ()
    result = project.run(accept=taken)
    assert result.status == "published", result.error
    assert sorted(project.ask("SELECT id::INT, paid::VARCHAR FROM silver.sales")) == [
        (1, "1.00"), (2, "1.00"), (3, "1.00"),
    ]  # fmt: skip
    project.land("2.csv", [order(5, "eve", "2.00"), order(6, "fay", "8.00")])
    result = project.run()
    assert result.status == "published", result.error
    assert next(one.action for one in result.tables if one.table == "silver.sales") == "update"
    assert project.ask('SELECT "all"::VARCHAR FROM gold.total') == [("5.00",)]
    assert sorted(project.ask("SELECT paid::VARCHAR FROM silver.sales__quarantine")) == [("8.00",), ("9.00",)]
    assert {verdict.status for verdict in Lake(project.root).verify("silver.sales gold.total")} == {"exact"}
