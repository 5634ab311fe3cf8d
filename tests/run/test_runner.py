"""What a run records, and the states in which the one before it may have left the lake."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from icefield import Lake
from icefield.engine.intake.files import intake
from icefield.errors import FileChanged
from icefield.lake import branch as branch_module
from icefield.lake import metadata as meta
from icefield.lake.catalog import LAKE
from icefield.project import open_project
from icefield.run import auditing, cross_checks, publishing
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
    record = publishing.record

    def slow_record(*arguments: Any) -> None:
        monkeypatch.setattr(publishing, "record", record)
        record(*arguments)
        assert project.run().status == "published"

    monkeypatch.setattr(publishing, "record", slow_record)
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

    monkeypatch.setattr(auditing.Audit, "carry_out", broken)
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
    assert "`icefield run -s gold.by_customer` without --keep-going" in result.tables[2].error, "rows are not kept"
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


SIDES = """

@table("gold.sides", refresh=full())
def sides(orders):
    both = orders.selectExpr("IF(amount < 10, id, NULL) AS small", "IF(amount >= 10, id, NULL) AS large")
    return both.selectExpr({columns})
"""


@pytest.mark.parametrize(
    ("columns", "before", "after"),
    [
        ('"small", "large"', (7, None), (None, 7)),
        ('"struct(small, large) AS s"', ({"small": 7, "large": None},), ({"small": None, "large": 7},)),
        ('"array(small, large) AS a"', ([7, None],), ([None, 7],)),
        (
            "\"map('small', small, 'large', large) AS m\"",
            ({"small": 7, "large": None},),
            ({"small": None, "large": 7},),
        ),
    ],
    ids=["columns", "struct", "array", "map"],
)
def test_a_value_that_moves_from_one_place_to_another_is_a_change(
    tmp_path: Path, columns: str, before: tuple[object, ...], after: tuple[object, ...]
) -> None:
    """A hash over columns passes over NULLs: the row before and the row after look alike to it."""
    source = NO_CHECKS.replace('at TIMESTAMP")', 'at TIMESTAMP", changed="replace")')
    project = tiny(tmp_path, source + SIDES.replace("{columns}", columns))
    project.land("a.csv", [order(7, amount="5.00")])
    assert project.run().status == "published"
    assert project.ask("SELECT * FROM gold.sides") == [before]
    project.land("a.csv", [order(7, amount="50.00")])
    assert project.run().status == "published"
    assert project.ask("SELECT * FROM gold.sides") == [after]
    project.land("a.csv", [order(7, amount="60.00")])
    result = project.run()
    assert [one.rows_added for one in result.tables if one.table == "gold.sides"] == [0], "the same as before"


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
    real = cross_checks.Across.result

    def result(self: cross_checks.Across, check: cross_checks.CrossCheck) -> Any:
        found = real(self, check)
        (project.root / "checked").touch()
        return found

    monkeypatch.setattr(cross_checks.Across, "result", result)
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


TOGETHER = (
    NO_CHECKS
    + """
from icefield import references

ALLOWED = files("landing/allowed/*.csv", schema="id BIGINT")


@table("bronze.allowed", source=ALLOWED, refresh=append())
def allowed(rows):
    return rows


@table("silver.known", refresh=append(), checks=[references("id", to="bronze.allowed")])
def known(orders):
    return orders.select("id")


@table("silver.sold", refresh=append(), checks=[references("id", to="silver.known")])
def sold(orders):
    return orders.select("id")


@table("gold.below", refresh=append())
def below(sold):
    return sold


@table("gold.apart", refresh=append())
def apart(orders):
    return orders.select("id")
"""
)


def test_with_keep_going_what_was_checked_against_rows_that_were_taken_back_is_checked_again(tmp_path: Path) -> None:
    project = tiny(tmp_path, TOGETHER)
    project.land("a.csv", [order(1)])
    project.land("a.csv", "id\n1\n", folder="allowed")
    assert project.run().status == "published"
    project.land("b.csv", [order(13)])
    found = project.run(keep_going=True)
    assert found.status == "published"
    assert not found.ok
    assert {table.table: table.status for table in found.tables} == {
        "bronze.orders": "published", "silver.known": "failed", "silver.sold": "failed",
        "gold.below": "skipped", "gold.apart": "published",
    }  # fmt: skip
    assert [check.status for check in found.checks if check.kind == "references"] == ["failed", "failed"]
    assert project.ask("SELECT id FROM silver.sold") == [(1,)]
    assert sorted(project.ask("SELECT id FROM gold.apart")) == [(1,), (13,)]
    project.land("b.csv", "id\n13\n", folder="allowed")
    assert project.run().status == "published"
    assert sorted(project.ask("SELECT id FROM gold.below")) == [(1,), (13,)]


def test_with_keep_going_a_table_that_breaks_a_check_of_another_is_taken_back(tmp_path: Path) -> None:
    project = tiny(tmp_path, TOGETHER)
    project.land("a.csv", [order(1), order(2)])
    project.land("a.csv", "id\n1\n2\n", folder="allowed")
    assert project.run().status == "published"
    project.declare(TOGETHER.replace("def known(orders):", 'def known(orders):\n    orders = orders.where("id = 1")'))
    found = project.run(select="silver.known", keep_going=True)
    assert (found.status, found.ok) == ("failed", False)
    assert "silver.sold was not published: check `id is in silver.known` failed for 1 row" in found.error
    assert sorted(project.ask("SELECT id FROM silver.known")) == [(1,), (2,)]


def test_with_keep_going_a_check_against_a_table_that_could_not_be_made_is_an_error(tmp_path: Path) -> None:
    project = tiny(tmp_path, TOGETHER)
    project.land("a.csv", [order(1), order(13)])
    project.land("a.csv", "id\n1\n", folder="allowed")
    found = project.run(keep_going=True)
    assert {check.table: check.status for check in found.checks if check.kind == "references"} == {
        "silver.known": "failed", "silver.sold": "error",
    }  # fmt: skip
    assert {t for t in project.lake.pointers() if t.startswith(("silver", "gold"))} == {"gold.apart"}


def test_small_integers_are_appended_again_and_again(tmp_path: Path) -> None:
    project = tiny(
        tmp_path, NO_CHECKS.replace("id BIGINT", "id SMALLINT").replace("customer STRING", "customer TINYINT")
    )
    for number in (1, 2):
        project.land(f"{number}.csv", [order(number, customer=str(number))])
        found = project.run()
        assert found.status == "published", found.error
    assert project.run(full_refresh=True).status == "published"
    assert sorted(project.ask("SELECT id, customer FROM bronze.orders")) == [(1, 1), (2, 2)]


def test_changed_comments_reach_the_catalog_and_partitions_come_with_a_full_refresh(tmp_path: Path) -> None:
    declared = NO_CHECKS.replace("def orders(rows):", 'def orders(rows):\n    """{comment}"""').replace(
        "customer STRING,", "customer STRING COMMENT '{column}',"
    )
    project = tiny(tmp_path, declared.format(comment="Orders.", column="who"))
    project.land("a.csv", [order(1)])
    project.run()
    changed = declared.format(comment="All orders.", column="who bought it")
    project.declare(changed.replace("refresh=append()", 'refresh=append(), partitioned_by=["days(at)", "customer"]'))
    project.land("b.csv", [order(2)])
    assert project.run().status == "published"
    metadata = meta.load(project.lake.pointers()["bronze.orders"])
    assert metadata["properties"]["comment"] == "All orders."
    assert meta.column_comments(metadata)["customer"] == "who bought it"
    assert meta.partitioned_by(metadata) == ()
    assert project.run(full_refresh=True).status == "published"
    metadata = meta.load(project.lake.pointers()["bronze.orders"])
    assert meta.partitioned_by(metadata) == ("days(at)", "customer")
    again = declared.format(comment="Every order.", column="customer").replace(
        "return rows", "return rows.where('true')"
    )
    project.declare(again.replace("refresh=append()", 'refresh=append(), partitioned_by=["days(at)", "customer"]'))
    before = metadata["current-snapshot-id"]
    assert project.run().status == "published"
    metadata = meta.load(project.lake.pointers()["bronze.orders"])
    assert (metadata["current-snapshot-id"], metadata["properties"]["comment"]) == (before, "Every order.")
    assert meta.column_comments(metadata)["customer"] == "customer"
    project.land("c.csv", [order(3)])
    assert project.run().status == "published"
    assert sorted(project.ask("SELECT id FROM bronze.orders")) == [(1,), (2,), (3,)]


def test_a_table_that_was_dropped_does_not_begin_with_a_version_that_is_known(tmp_path: Path) -> None:
    project = tiny(
        tmp_path, NO_CHECKS + "\n\n@table('gold.twice', refresh=append())\ndef twice(orders):\n    return orders\n"
    )
    project.land("a.csv", [order(1)])
    gone = project.land("b.csv", [order(2)])
    assert project.run().status == "published"
    lake = project.lake
    catalog = SqlCatalog(LAKE, uri=f"sqlite:///{lake.catalog.path}", warehouse=str(lake.warehouse))
    catalog.drop_table("bronze.orders")
    catalog.close()
    project.land("a.csv", [order(7)])
    gone.unlink()
    assert project.run().status == "published"
    assert project.ask("SELECT id FROM gold.twice") == [(7,)]
    project.land("c.csv", [order(8)])
    assert project.run().status == "published"
    assert project.run(full_refresh=True).status == "published", "the file that is gone was never in this table"
    assert [verdict.status for verdict in Lake(project.root).verify(deep=True)] == ["exact", "exact"]
    assert sorted(project.ask("SELECT id FROM gold.twice")) == [(7,), (8,)]


def test_a_file_that_changes_while_it_is_noted_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its new content would be remembered as that of the rows that are there."""
    project = tiny(tmp_path, NO_CHECKS)
    file = project.land("a.csv", [order(1)])
    assert project.run().status == "published"
    os.utime(file, ns=(0, 0))
    real = intake.noted_files

    def corrected(*args: Any) -> Any:
        project.land("a.csv", [order(2)])
        return real(*args)

    monkeypatch.setattr(intake, "noted_files", corrected)
    result = project.run()
    assert result.status == "failed"
    assert "a.csv changed while it was being read" in result.error
    monkeypatch.undo()
    with pytest.raises(FileChanged, match=r"the content of .*a\.csv has changed since ingestion"):
        project.run()


def test_a_deep_verification_does_not_read_files_that_wait(tmp_path: Path) -> None:
    project = tiny(tmp_path, NO_CHECKS)
    project.land("a.csv", [order(1)])
    assert project.run().status == "published"
    project.land("b.csv", [order(2)])
    assert [verdict.status for verdict in Lake(project.root).verify(deep=True)] == ["exact"]


def test_a_setting_of_sparks_that_changes_what_a_query_means_is_changed_code(tmp_path: Path) -> None:
    project = tiny(tmp_path, NO_CHECKS)
    marks = []
    zone = "spark.sql.session.timeZone"
    for spark in ({}, {"spark.sql.shuffle.partitions": "3"}, {zone: "UTC"}, {zone: "Europe/Berlin"}):
        project.declare(NO_CHECKS, spark=spark)
        marks.append(open_project(project.root).graph["bronze.orders"].fingerprint)
    assert marks[0] == marks[1] == marks[2] != marks[3]
