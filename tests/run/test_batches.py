"""Sources that are taken in by batches: a month is a run, and a month again replaces that month and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from icefield.errors import IcefieldError, UnknownBatch
from icefield.lake.history import history
from icefield.lake.metadata import load
from icefield.project import open_project
from icefield.run.batch import landed_batches
from icefield.run.batches import batch_states, gaps, run_batch, run_due
from icefield.run.request import RunRequest
from projects import TinyProject, tiny

pytestmark = pytest.mark.spark

TABLES = """
from pyspark.sql import functions as F
from icefield import by_key, expect, files, table


@table(
    "raw.trips",
    source=files("landing/trips_{month}.*", schema="id BIGINT, day DATE, fare DECIMAL(10,2)", batch="month",
                 aliases={"fare": ["Fare_Amount"]}, new_columns="add"),
    refresh=by_key("month"), checks=[expect("fare is not negative", "fare >= 0", otherwise="quarantine")],
)
def trips(rows):
    return rows.drop("source_line")


@table("marts.days", refresh=by_key("day"))
def days(trips):
    return trips.groupBy("day").agg(F.count("*").alias("trips"), F.sum("fare").alias("fare"))
"""


def land(project: TinyProject, name: str, *lines: str, header: str = "id,day,fare") -> Path:
    return project.land(name, "\n".join([header, *lines]) + "\n", folder=".")


def run(project: TinyProject, **order: Any) -> list[Any]:
    found: list[Any] = []
    found.append(run_due(open_project(project.root), RunRequest(once=True, **order), between=found.append))
    return found


def begun(root: Path) -> TinyProject:
    project = tiny(root, TABLES)
    for month in (3, 1, 2):
        land(project, f"trips_2026-0{month}.csv", f"{month},2026-0{month}-01,1.00", f"{month}0,2026-0{month}-02,2.00")
    return project


def versions(project: TinyProject, table: str = "raw.trips") -> list[tuple[str, int, int]]:
    found = history(load(project.lake.pointers()[table]))
    return [(one.batch, one.rows_added, one.rows_total) for one in found]


def rebuilt(project: TinyProject) -> None:
    before = {name: rows for name, rows in project.everything().items() if "__changes" not in name}
    assert project.run(full_refresh=True).status == "published"
    assert {name: rows for name, rows in project.everything().items() if "__changes" not in name} == before


def test_each_batch_is_a_run_and_a_snapshot_in_order(tmp_path: Path) -> None:
    project = begun(tmp_path)
    results = run(project)
    assert [result.status for result in results] == ["published"] * 3
    assert versions(project) == [("2026-01", 2, 2), ("2026-02", 2, 4), ("2026-03", 2, 6)]
    assert project.ask("SELECT batch FROM ops.runs ORDER BY started_at") == [("2026-01",), ("2026-02",), ("2026-03",)]
    assert [result.status for result in run(project)] == ["nothing new"]
    rebuilt(project)


def test_all_at_once_and_one_by_one_are_the_same(tmp_path: Path) -> None:
    one, other = begun(tmp_path / "a"), begun(tmp_path / "b")
    run(one)
    assert other.run().ok
    assert one.everything() == other.everything()


def test_one_batch_is_exactly_one_run_also_where_it_was_taken_before(tmp_path: Path) -> None:
    project = begun(tmp_path)
    opened = open_project(project.root)
    assert landed_batches(opened) == {"raw.trips": ("2026-01", "2026-02", "2026-03")}
    assert run_batch(opened, RunRequest(once=True, select="raw.trips"), "2026-02").ok
    later = run_batch(
        opened, RunRequest(once=True), "2026-02"
    )  # its files are taken in; the table behind is not there yet
    assert [(one.table, one.status) for one in later.tables] == [("marts.days", "published")]
    assert versions(project) == [("2026-02", 2, 2)]
    assert run_batch(opened, RunRequest(once=True), "2026-02").status == "nothing new"
    with pytest.raises(UnknownBatch, match=r"2026-07"):
        run_batch(opened, RunRequest(once=True), "2026-07")


def test_a_month_again_replaces_that_month_alone(tmp_path: Path) -> None:
    project = begun(tmp_path)
    run(project)
    land(project, "trips_2026-02.csv", "2,2026-02-01,1.00", "21,2026-02-03,9.00", "22,2026-02-03,-1.00")
    (result,) = run(project)
    moved = {one.table: (one.action, one.rows_added, one.rows_removed) for one in result.tables}
    assert moved["raw.trips"] == ("update", 1, 1)
    assert moved["marts.days"] == ("update", 1, 1)
    assert project.ask("SELECT id, month FROM raw.trips__quarantine") == [(22, "2026-02")]
    assert versions(project)[-1] == ("2026-02", 1, 6)
    rebuilt(project)


def test_a_second_file_of_a_month_is_that_month_too(tmp_path: Path) -> None:
    project = begun(tmp_path)
    run(project)
    land(project, "trips_2026-02.json", header='{"id": 25, "day": "2026-02-20", "fare": "3.00"}')
    run(project)
    assert project.ask("SELECT count(*)::INT FROM raw.trips WHERE month = '2026-02'") == [(3,)]
    rebuilt(project)


def test_one_batch_or_some_of_them(tmp_path: Path) -> None:
    project = begun(tmp_path)
    run(project, batches=("2026-02", "2026-02"))
    assert versions(project) == [("2026-02", 2, 2)]
    assert [result.status for result in run(project, batches=("2026-02", "2026-02"))] == ["nothing new"]
    run(project, batches=("2026-02", ""))
    assert [batch for batch, *_ in versions(project)] == ["2026-02", "2026-03"]
    states = {value: told for one in batch_states(open_project(tmp_path)) for value, told in one.batches.items()}
    assert states == {"2026-01": ("new", 1), "2026-02": ("taken", 1), "2026-03": ("taken", 1)}
    run(project)
    assert [batch for batch, *_ in versions(project)] == ["2026-02", "2026-03", "2026-01"]
    rebuilt(project)


def test_it_stops_at_the_first_batch_that_fails(tmp_path: Path) -> None:
    project = begun(tmp_path)
    (tmp_path / "landing/trips_2026-02.csv").write_text("id,day\n")
    (tmp_path / "landing/trips_2026-02.csv").rename(tmp_path / "landing/trips_2026-02.parquet")
    with pytest.raises(IcefieldError, match="not a Parquet file"):
        run(project)
    assert versions(project) == [("2026-01", 2, 2)], "what came before is published"


def test_a_month_that_does_not_exist(tmp_path: Path) -> None:
    project = begun(tmp_path)
    with pytest.raises(UnknownBatch, match="no files of the batch 2026-13") as told:
        run(project, batches=("2026-13", "2026-13"))
    assert "2026-01, 2026-02, 2026-03" in told.value.remedy


def test_gaps_between_months_and_days() -> None:
    assert gaps(["2025-11", "2026-02"]) == ["2025-12", "2026-01"]
    assert gaps(["2026-02-27", "2026-03-02"]) == ["2026-02-28", "2026-03-01"]
    assert gaps(["a", "c"]) == gaps([]) == []


def test_a_new_column_is_added_and_rebuilds_nothing_that_does_not_read_it(tmp_path: Path) -> None:
    project = begun(tmp_path)
    run(project)
    land(project, "trips_2026-04.csv", "4,2026-04-01,1.00,5,x", header="ID,Day,Fare_Amount,Tip Amount,note")
    (result,) = run(project)
    assert {one.table: one.action for one in result.tables} == {"raw.trips": "update", "marts.days": "update"}
    assert project.ask("SELECT fare::INT, tip_amount, note FROM raw.trips WHERE id = 4") == [(1, "5", "x")]
    assert project.ask("SELECT count(tip_amount)::INT FROM raw.trips") == [(1,)]
    land(project, "trips_2026-05.csv", "5,2026-05-01,1.00")
    run(project)
    assert project.ask("SELECT tip_amount FROM raw.trips WHERE id = 5") == [(None,)]
    rebuilt(project)
