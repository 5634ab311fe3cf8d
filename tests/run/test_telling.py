"""What a table changed reaches everyone who follows it: in the same run, days later, or they are built again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from icefield import Lake
from icefield.engine import limits
from icefield.engine.limits import Limits
from icefield.engine.refresh import outcome, renewal, update
from icefield.lake.catalog import LAKE
from projects import TinyProject, order, tiny

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

TABLES = """
from pyspark.sql import functions as F
from icefield import accumulate, append, by_key, expect_table, files, table

ORDERS = "id BIGINT, customer STRING, amount DECIMAL(10,2), at TIMESTAMP"


@table("bronze.orders", source=files("landing/orders/*.csv", schema=ORDERS), refresh=append())
def orders(rows):
    return rows.drop("ingested_at", "source_line")


@table("silver.latest", refresh=by_key("id"))
def latest(orders):
    newest = F.max(F.struct("source_file", "amount", "customer")).alias("newest")
    return orders.groupBy("id").agg(newest).select("id", "newest.customer", "newest.amount")


@table("gold.spent", refresh=accumulate("customer", spent="sum"), checks=[expect_table("little", "max(spent) < 1000")])
def spent(latest):
    return latest.groupBy("customer").agg(F.sum("amount").alias("spent"))
"""
TOLD = "silver.latest__changes"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TinyProject:
    """Three tables in a row, built."""
    monkeypatch.setattr(update, "REBUILD_SHARE", 100.0)
    found = tiny(tmp_path, TABLES)
    found.land("1.csv", [order(1), order(2, "bob", "3.00"), order(3, "carl")])
    assert found.run().status == "published"
    return found


def action(result: Any, table: str = "gold.spent") -> tuple[str, str]:
    assert result.status == "published", result.error
    return next((one.action, one.reason) for one in result.tables if one.table == table)


def require_exact(project: TinyProject, *tables: str) -> None:
    verdicts = Lake(project.root).verify(" ".join(tables))
    assert {one.table: (one.status, one.examples) for one in verdicts} == dict.fromkeys(tables, ("exact", ()))


def test_who_is_behind_reads_what_was_kept_and_what_this_run_changes(project: TinyProject) -> None:
    project.land("2.csv", [order(1, "ann", "20.00"), order(2, "dora", "3.00")])
    project.run(select="orders latest")
    assert TOLD in project.lake.pointers()
    project.land("3.csv", [order(1, "ann", "1.00"), order(2, "eve", "3.00"), order(4, "eve")])
    assert action(project.run())[0] == "update"
    require_exact(project, "silver.latest", "gold.spent")


def test_what_a_follower_that_failed_has_not_read_is_kept_for_it(project: TinyProject) -> None:
    project.land("2.csv", [order(1, "ann", "2000.00")])
    result = project.run(keep_going=True)
    assert {one.table: one.status for one in result.tables} == {
        "bronze.orders": "published", "silver.latest": "published", "gold.spent": "failed",
    }  # fmt: skip
    project.land("3.csv", [order(1, "ann", "4.00"), order(3, "dora", "1.00")])
    assert action(project.run())[0] == "update"
    require_exact(project, "silver.latest", "gold.spent")


@pytest.mark.parametrize("select", ["orders latest", "spent", ""])
def test_where_someone_dropped_what_was_kept_who_is_behind_is_built_again(project: TinyProject, select: str) -> None:
    for number in (2, 3):
        project.land(f"{number}.csv", [order(1, "ann", f"{number}0.00")])
        project.run(select="orders latest")
    catalog = SqlCatalog(LAKE, uri=f"sqlite:///{project.lake.catalog.path}", warehouse=str(project.lake.warehouse))
    catalog.drop_table(TOLD)
    catalog.close()
    if select != "spent":
        project.land("4.csv", [order(2, "ann", "5.00")])
    first = project.run(select=select)
    if select != "orders latest":
        assert action(first) == (
            "rebuild",
            "the changelog of silver.latest no longer covers the changes since it was last read",
        )
    project.run()
    require_exact(project, "silver.latest", "gold.spent")


def test_what_cannot_be_kept_is_told_with_its_table_and_nothing_is_published(
    project: TinyProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = project.everything()

    def full(*_: Any) -> str:
        raise OSError("No space left on device")

    monkeypatch.setattr(outcome, "keep", full)
    project.land("2.csv", [order(1, "ann", "20.00")])
    result = project.run(select="orders latest")
    assert result.status == "failed"
    assert "ICE-705 the disk filled up while silver.latest was being written" in result.error
    assert project.everything() == before
    monkeypatch.undo()
    project.run()
    require_exact(project, "silver.latest", "gold.spent")


SMALL = """
@table("silver.levels", refresh=accumulate("id", level="max"))
def levels(orders):
    return orders.groupBy("id").agg(F.max(F.col("amount").cast("SMALLINT")).alias("level"))


@table("gold.power", refresh=by_key("id"))
def power(levels):
    return levels.select("id", (F.col("level") * F.col("level")).alias("power"))
"""


@pytest.mark.parametrize("held", [Limits().held_bytes, -1], ids=["in memory", "by Spark"])
@pytest.mark.parametrize("ids", [(1, 2), (8, 9)], ids=["known keys", "new keys"])
def test_who_follows_sees_the_types_that_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ids: tuple[int, ...], held: int
) -> None:
    """Iceberg has no SMALLINT, in which 300 times 300 is too much."""
    monkeypatch.setattr(update, "REBUILD_SHARE", 100.0)
    monkeypatch.setattr(renewal, "MANY", 0)
    monkeypatch.setattr(limits, "LIMITS", Limits(held_bytes=held))
    project = tiny(tmp_path, TABLES.partition('@table("silver')[0] + SMALL)
    project.land("1.csv", [order(1), order(2)])
    project.run()
    project.land("2.csv", [order(number, amount="300.00") for number in ids])
    assert action(project.run(), "gold.power")[0] == "update"
    require_exact(project, "silver.levels", "gold.power")
