"""Refresh by key and by merging: after every run each table holds what a rebuild from scratch gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from icefield.engine.refresh import replace as replacing
from icefield.engine.refresh import update
from projects import TinyProject, order, tiny

pytestmark = pytest.mark.spark

SHOP = """
from pyspark.sql import functions as F
from icefield import accumulate, append, by_key, files, full, lookup, ref, table, unique

ORDERS = "id BIGINT, customer STRING, amount DECIMAL(10,2), at TIMESTAMP"


@table("bronze.orders", source=files("landing/orders/*.csv", schema=ORDERS, changed="replace"), refresh=append())
def orders(rows):
    return rows


@table("silver.sales", refresh=append())
def sales(orders):
    return orders.select("id", "customer", "amount", F.to_date("at").alias("day"))


@table("silver.latest", refresh=by_key("id"), checks=[unique("id")])
def latest(sales):
    newest = F.max(F.struct("day", "amount", "customer")).alias("newest")
    return sales.groupBy("id").agg(newest).select("id", "newest.customer", "newest.amount", "newest.day")


@table("gold.by_day", refresh=by_key("day"))
def by_day(latest):
    return latest.groupBy("day").agg(F.count_distinct("customer").alias("customers"), F.sum("amount").alias("amount"))


def rates(measures):
    return measures.select("customer", "amount", "orders", F.try_divide("amount", "orders").alias("mean"))


@table("gold.by_customer", refresh=accumulate("customer", amount="sum", orders="count", finish=rates),
       checks=[unique("customer")])
def by_customer(latest):
    return latest.groupBy("customer").agg(F.sum("amount").alias("amount"), F.count("*").alias("orders"))


def newest_only(measures):
    return measures.select("customer", F.col("newest.amount").alias("newest"), F.col("first").alias("since"))


@table("gold.newest", refresh=accumulate("customer", newest="last", first="min", finish=newest_only))
def newest(latest):
    return latest.groupBy("customer").agg(
        F.max(F.struct("day", "id", "amount")).alias("newest"), F.min("day").alias("first"))


@table("gold.total", refresh=full())
def total(by_customer):
    return by_customer.agg(F.sum("amount").alias("amount"), F.sum("orders").alias("orders"))
"""


def twin(project: TinyProject, root: Path) -> TinyProject:
    """The same project and files, built from scratch."""
    other = tiny(root, (project.root / "tables.py").read_text())
    for file in sorted((project.root / "landing").rglob("*.csv")):
        other.land(file.name, file.read_bytes(), file.parent.name)
    assert other.run().status == "published"
    return other


def tables_of(project: TinyProject) -> dict[str, Any]:
    """What readers are to see: everything but what is kept beside tables."""
    kept = ("__changes", "__state")
    names = [name for name in project.lake.pointers() if not name.startswith("ops.") and not name.endswith(kept)]
    return {name: project.rows(name) for name in sorted(names)}


def actions(result: Any) -> dict[str, str]:
    assert result.status == "published", result.error
    return {outcome.table.partition(".")[2]: outcome.action for outcome in result.tables}


@pytest.fixture
def both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables are written anew, larger ones get delete files; no rebuild, however many keys change."""
    monkeypatch.setattr(update, "REBUILD_SHARE", 100.0)
    monkeypatch.setattr(replacing, "SMALL_TABLE", 5)
    monkeypatch.setattr(replacing, "_TIMES", 1)


@pytest.mark.usefixtures("both_ways")
def test_what_changed_is_replaced_and_the_rest_stays(tmp_path: Path) -> None:
    project = tiny(tmp_path / "a", SHOP)
    days = [f"2026-08-{day:02} 10:00:00" for day in range(1, 6)]
    project.land("1.csv", [order(n, f"c{n % 3}", f"{n}.00", days[n % 3]) for n in range(8)])
    assert set(actions(project.run()).values()) == {"build"}

    # An order moves to another customer and day, one gets a later amount, two are new; then one moves back.
    project.land(
        "2.csv", [order(1, "c9", "7.50", days[3]), order(2, "c2", "9.00", days[4]), order(20, "c0"), order(21)]
    )
    result = project.run()
    assert actions(result) == {
        "orders": "append", "sales": "append", "latest": "update", "by_day": "update", "by_customer": "update",
        "newest": "update", "total": "refresh",
    }  # fmt: skip

    project.land("3.csv", [order(1, "c1", "1.00", days[4]), order(22, "c9", "0.00", days[0])])
    assert actions(project.run())["by_customer"] == "update"
    whole = tables_of(twin(project, tmp_path / "b"))
    assert tables_of(project) == whole
    assert actions(project.run(full_refresh=True))["by_day"] == "rebuild"
    assert tables_of(project) == whole
    assert project.run().status == "nothing new"
