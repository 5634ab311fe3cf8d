"""What a run records, and the states in which the one before it may have left the lake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from icefield.lake import branch as branch_module
from icefield.run import auditing, runner
from projects import ORDERS, TinyProject, order, tiny

pytestmark = pytest.mark.spark

NO_CHECKS = """
from pyspark.sql import functions as F
from icefield import append, files, full, table

ORDERS = files("landing/orders/*.csv", schema="id BIGINT, customer STRING, amount DECIMAL(10,2), at TIMESTAMP")


@table("bronze.orders", source=ORDERS, refresh=append())
def orders(rows):
    return rows
"""


def runs(project: TinyProject, status: str) -> list[str]:
    return [run for (run,) in project.ask(f"SELECT run FROM ops.runs WHERE status = '{status}'")]


def test_a_run_that_records_a_death_plans_with_what_was_published_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between looking at the lake and opening a branch someone else takes the same file in; it is not taken twice."""
    project = tiny(tmp_path, NO_CHECKS)
    project.land("a.csv", [order(1)])
    assert project.run().status == "published"
    assert project.spawn("run.opened=kill", full_refresh=True).end().killed
    project.land("b.csv", [order(2)])
    record = runner._record

    def slow_record(*arguments: Any) -> None:
        monkeypatch.setattr(runner, "_record", record)
        record(*arguments)
        assert project.run().status == "published"

    monkeypatch.setattr(runner, "_record", slow_record)
    assert project.run().status == "nothing new"
    assert sorted(project.ask("SELECT id FROM bronze.orders")) == [(1,), (2,)]
    assert len(runs(project, "died")) == 1


def test_a_death_is_recorded_once_even_if_whoever_records_it_dies(tmp_path: Path) -> None:
    project = tiny(tmp_path, NO_CHECKS)
    project.land("a.csv", [order(1)])
    assert project.spawn("run.opened=kill").end().killed
    (victim,) = project.lake.catalog.branches().values()
    assert project.spawn("ops.before=kill").end().killed
    assert project.run().status == "published"
    assert runs(project, "died") == [victim]


def test_a_run_that_ends_by_an_error_of_ours_is_recorded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tiny(tmp_path, NO_CHECKS)
    project.land("a.csv", [order(1)])

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(runner.Run, "_audit", broken)
    with pytest.raises(ZeroDivisionError):
        project.run()
    assert project.ask("SELECT status, error FROM ops.runs") == [("failed", "ZeroDivisionError: a bug")]
    monkeypatch.undo()
    assert project.run().status == "published"


def test_when_all_tables_fail_with_keep_going_no_branch_is_left_open(tmp_path: Path) -> None:
    failing = """    return rows.withColumn("x", F.expr("raise_error('no')"))"""
    project = tiny(tmp_path, NO_CHECKS.replace("    return rows", failing))
    project.land("a.csv", [order(1)])
    result = project.run(keep_going=True)
    assert result.status == "failed"
    assert not any(project.lake.alive(branch) for branch in project.lake.catalog.branches())
    assert runs(project, "failed") == [result.run]
    project.declare(NO_CHECKS)
    assert project.run().status == "published"
    assert runs(project, "died") == []


def test_with_keep_going_what_is_not_below_a_failure_is_published(tmp_path: Path) -> None:
    project = tiny(tmp_path, ORDERS.replace('checks=[unique("customer")]', 'checks=[expect("none", "orders < 0")]'))
    project.land("a.csv", [order(1)])
    result = project.run(keep_going=True)
    assert {t.table: t.status for t in result.tables} == {
        "bronze.orders": "published", "silver.sales": "published", "gold.by_customer": "failed",
    }  # fmt: skip
    assert not result.ok
    assert {t for t in project.lake.pointers() if not t.startswith("ops.")} == {"bronze.orders", "silver.sales"}


def test_a_changed_column_is_refused_and_the_way_out_that_is_named_works(tmp_path: Path) -> None:
    project = tiny(tmp_path)
    project.land("a.csv", [order(1)])
    assert project.run().status == "published"
    project.declare(ORDERS.replace('F.count("*").alias("orders")', 'F.count("*").cast("STRING").alias("orders")'))
    refused = project.run()
    assert refused.status == "failed"
    assert refused.error.startswith("ICE-306")
    assert "orders was bigint and is now string" in refused.error
    assert "--full-refresh" in refused.error
    assert project.run(select="gold.by_customer", full_refresh=True).status == "published"
    assert project.ask("SELECT orders FROM gold.by_customer") == [("1",)]


def test_a_clock_that_stepped_back_a_week_breaks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tiny(tmp_path)
    project.land("a.csv", [order(1)])
    real = branch_module.now_ms
    monkeypatch.setattr(branch_module, "now_ms", lambda: real() + 7 * 86_400_000)
    first = project.run()
    monkeypatch.undo()
    project.land("b.csv", [order(2)])
    second = project.run()
    assert second.status == "published", second.error
    assert second.published_ms > first.published_ms
    assert sorted(project.ask("SELECT id FROM silver.sales")) == [(1,), (2,)]
    assert project.run(full_refresh=True).status == "published"


def test_an_append_that_adds_nothing_does_not_ripple_down(tmp_path: Path) -> None:
    project = tiny(tmp_path, ORDERS.replace("return orders.select(", 'return orders.where("amount > 100").select('))
    project.land("a.csv", [order(1, amount="200.00")])
    assert project.run().status == "published"
    project.land("b.csv", [order(2)])
    result = project.run()
    assert {t.table: t.status for t in result.tables} == {
        "bronze.orders": "published", "silver.sales": "published", "gold.by_customer": "unchanged",
    }  # fmt: skip


def test_a_lost_answer_is_told_as_published_and_nothing_is_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tiny(tmp_path, NO_CHECKS)
    project.land("a.csv", [order(1)])
    monkeypatch.setenv("ICEFIELD_FAILPOINTS", "publish.before-answer=raise")
    result = project.run()
    monkeypatch.delenv("ICEFIELD_FAILPOINTS")
    assert result.status == "published"
    assert runs(project, "published") == [result.run]
    assert runs(project, "failed") == []
    assert project.run().status == "nothing new"
    assert project.ask("SELECT id FROM bronze.orders") == [(1,)]


def test_a_value_that_moves_from_one_column_to_another_is_a_change(tmp_path: Path) -> None:
    """A hash over columns passes over NULLs: the row before and the row after look alike to it."""
    source = (
        NO_CHECKS.replace('at TIMESTAMP")', 'at TIMESTAMP", changed="replace")')
        + """

@table("gold.sides", refresh=full())
def sides(orders):
    return orders.selectExpr("IF(amount < 10, id, NULL) AS small", "IF(amount >= 10, id, NULL) AS large")
"""
    )
    project = tiny(tmp_path, source)
    project.land("a.csv", [order(7, amount="5.00")])
    assert project.run().status == "published"
    assert project.ask("SELECT small, large FROM gold.sides") == [(7, None)]
    project.land("a.csv", [order(7, amount="50.00")])
    assert project.run().status == "published"
    assert project.ask("SELECT small, large FROM gold.sides") == [(None, 7)]


ACROSS = (
    NO_CHECKS
    + """
import time
from pathlib import Path
from icefield import references

CHECKED = Path(__file__).with_name("checked")


@table("silver.one", refresh=append(), checks=[references("id", to="bronze.orders")])
def one(orders):
    return orders.select("id")


@table("silver.broken", refresh=append())
def broken(orders):
    return orders.select("id", F.expr("IF(id = 13, raise_error('unlucky'), id)").alias("n"))


@table("gold.both", refresh=append(), checks=[references("id", to="silver.broken", otherwise="warn")])
def both(one):
    return one


@table("gold.slow", refresh=full())
def slow(orders):
    until = time.monotonic() + 60
    while orders.count() and not CHECKED.exists():
        if time.monotonic() > until:
            raise TimeoutError("no check began meanwhile")
        time.sleep(0.05)
    return orders.select("id")
"""
)


def test_a_check_across_tables_does_not_wait_for_tables_that_it_does_not_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tiny(tmp_path, ACROSS)
    project.land("a.csv", [order(1), order(2)])
    real = auditing.Across.result

    def result(self: auditing.Across, check: auditing.CrossCheck) -> Any:
        found = real(self, check)
        (project.root / "checked").touch()
        return found

    monkeypatch.setattr(auditing.Across, "result", result)
    found = project.run()
    assert found.status == "published", found.error
    assert [check.status for check in found.checks if check.kind == "references"] == ["passed", "passed"]


def test_with_keep_going_a_check_is_carried_out_although_a_table_that_it_names_failed(tmp_path: Path) -> None:
    project = tiny(tmp_path, ACROSS)
    (project.root / "checked").touch()
    project.land("a.csv", [order(1)])
    assert project.run().status == "published"
    project.land("b.csv", [order(13)])
    found = project.run(keep_going=True)
    status = {check.table: (check.status, check.failed_rows) for check in found.checks if check.kind == "references"}
    assert status == {"silver.one": ("passed", 0), "gold.both": ("warned", 1)}  # 13 is not in what stays published
    assert sorted(project.ask("SELECT id FROM gold.both")) == [(1,), (13,)]
    assert project.ask("SELECT id FROM silver.broken") == [(1,)]
