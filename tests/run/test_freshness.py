"""`fresh_within` where nothing new arrives: that is when data gets old."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from icefield.engine.refresh import replace as replacing
from icefield.lake import metadata as meta
from icefield.run import state
from projects import SOURCES, TinyProject, order, tiny

DAY_MS = 86_400_000
TABLES = """
from datetime import timedelta
from pyspark.sql import functions as F
from icefield import append, by_key, files, fresh_within, table


@table(
    "bronze.orders",
    source=files("landing/orders/*.csv", schema="id BIGINT, customer STRING, amount DECIMAL(10,2), at TIMESTAMP"),
    refresh=append(),
)
def orders(rows):
    return rows.drop("source_file", "ingested_at")


@table("gold.latest", refresh=by_key("id"), checks=[fresh_within("at", timedelta(days=2), otherwise="{otherwise}")])
def latest(orders):
    return orders.groupBy("id").agg(F.max(F.struct("amount", "at")).alias("last")).select("id", "last.at")
"""


def declared(root: Path, otherwise: str) -> TinyProject:
    return tiny(root, TABLES.format(otherwise=otherwise))


def ago(**past: float) -> str:
    return f"{dt.datetime.now(dt.UTC) - dt.timedelta(**past):%Y-%m-%d %H:%M:%S}"


def days_later(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    real = state.now_ms
    monkeypatch.setattr(state, "now_ms", lambda: real() + days * DAY_MS)


def fresh(result: Any) -> list[tuple[str, str, str]]:
    return [(check.table, check.status, check.detail) for check in result.checks if check.kind == "fresh"]


def test_a_table_that_gets_old_fails_a_run_with_nothing_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = declared(tmp_path, "fail")
    project.land("1.csv", [order(1, at=ago(hours=1))])
    assert project.run().status == "published"
    pointers = {name: at for name, at in project.lake.pointers().items() if not name.startswith("ops.")}

    idle = project.run()
    assert (idle.status, idle.run, idle.ok) == ("nothing new", "", True)
    assert [status for _, status, _ in fresh(idle)] == ["passed"]

    days_later(monkeypatch, 3)
    old = project.run()
    assert (old.status, old.ok) == ("failed", False)
    assert fresh(old) == [("gold.latest", "failed", "the newest is 3 days 1 hour old")]
    assert "ICE-601" in old.error
    assert (
        "gold.latest: check `at is fresh within 2 days, 0:00:00` failed, the newest is 3 days 1 hour old" in old.error
    )
    assert project.ask(f"SELECT status FROM ops.runs WHERE run = '{old.run}'") == [("failed",)]
    assert project.ask(f"SELECT \"table\", status FROM ops.checks WHERE run = '{old.run}'") == [
        ("gold.latest", "failed")
    ]
    assert {name: at for name, at in project.lake.pointers().items() if not name.startswith("ops.")} == pointers


def test_a_check_that_warns_is_reported_and_nothing_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = declared(tmp_path, "warn")
    project.land("1.csv", [order(1, at=ago(hours=1))])
    assert project.run().status == "published"
    before = project.lake.pointers()
    days_later(monkeypatch, 3)
    old = project.run()
    assert (old.status, old.run, old.ok) == ("nothing new", "", True)
    assert fresh(old) == [("gold.latest", "warned", "the newest is 3 days 1 hour old")]
    assert project.run(select="bronze.orders").checks == ()
    assert project.run(dry_run=True).checks == ()
    assert project.lake.pointers() == before


def test_rows_that_delete_files_take_out_are_not_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacing, "SMALL_TABLE", 1)
    monkeypatch.setattr(replacing, "_TIMES", 1)
    project = declared(tmp_path, "warn")
    project.land("1.csv", [order(n, at=ago(days=3)) for n in range(8)] + [order(9, amount="1.00", at=ago(hours=1))])
    assert project.run().status == "published"
    project.land("2.csv", [order(9, amount="2.00", at=ago(days=1, hours=1))])
    assert project.run().status == "published"
    snapshot = meta.current_snapshot(meta.load(project.lake.pointers()["gold.latest"]))
    assert snapshot is not None
    assert meta.has_deletes(snapshot)
    assert fresh(project.run()) == [("gold.latest", "passed", "the newest is 1 day 1 hour old")]


def test_neither_spark_nor_pyiceberg_is_imported_for_it(tmp_path: Path) -> None:
    project = declared(tmp_path, "warn")
    project.land("1.csv", [order(1, at=ago(days=3))])
    assert project.run().status == "published"
    script = f"""
import sys
sys.path.insert(0, {str(SOURCES)!r})
from icefield.project import open_project
from icefield.run.runner import run_project
result = run_project(open_project({str(project.root)!r}))
assert [check.status for check in result.checks] == ["warned"], result
assert not {{"pyspark", "py4j", "pyiceberg", "duckdb"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
