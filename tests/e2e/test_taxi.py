"""The taxi project, whole: every table equals what DuckDB works out alone from the landed months, after each run.

On generated months always, on real ones where they are at hand (`ICEFIELD_TAXI_DATA`, or ../shared/data/taxi).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from taxi_recompute import recompute

from icefield.lake.duckdb_scan import connect, scan
from icefield.lake.history import history
from icefield.lake.metadata import load
from icefield.project import open_project
from icefield.run.batches import run_due
from icefield.run.request import RunRequest
from projects import TinyProject

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "pipelines" / "taxi"
REAL = Path(os.environ.get("ICEFIELD_TAXI_DATA", ROOT.parent / "shared/data/taxi"))
TABLES = [
    f"{schema}.{name.format(colour)}"
    for schema, name in [("raw", "{}_trips"), ("staging", "stg_{}_trips")]
    for colour in ("yellow", "green")
] + [
    f"marts.{prefix}{mart}"
    for prefix in ("fct_", "fct_green_")
    for mart in ("daily_trips", "hourly_revenue", "trip_distance_stats")
]
#: Real months of all kinds: sampled ones with other names, edited ones, the TLC's own; complete ones of green.
MONTHS = [
    "yellow/yellow_tripdata_2018-12.csv", "yellow/yellow_tripdata_2019-01.csv", "yellow/yellow_tripdata_2019-07.csv",
    "yellow/yellow_tripdata_2024-01.csv", "green/green_tripdata_2023-01.parquet",
    "green/green_tripdata_2023-02.parquet",
]  # fmt: skip


def project(root: Path) -> TinyProject:
    shutil.copytree(PROJECT, root, ignore=shutil.ignore_patterns("landing", "lake", ".icefield", "__pycache__"))
    return TinyProject(root)


def generate(project: TinyProject, *arguments: str) -> None:
    command = [sys.executable, str(project.root / "generate.py"), *arguments]
    subprocess.run(command, check=True, capture_output=True)


def run(project: TinyProject, **order: Any) -> list[Any]:
    found: list[Any] = []
    found.append(run_due(open_project(project.root), RunRequest(once=True, **order), between=found.append))
    assert all(result.ok for result in found), found[-1].error
    return found


def different_rows(oracle: duckdb.DuckDBPyConnection, query: str, actual: str) -> list[tuple[Any, ...]]:
    """Rows, as multisets, that only one of the two has; a handful, for the message."""
    with connect() as con:
        con.register("expected", oracle.execute(query).to_arrow_table())
        return con.execute(f"""
            SELECT 'missing' AS what, CAST(COLUMNS(*) AS VARCHAR) FROM (FROM expected EXCEPT ALL ({actual}))
            UNION ALL SELECT 'too many', CAST(COLUMNS(*) AS VARCHAR) FROM (({actual}) EXCEPT ALL FROM expected)
            LIMIT 10""").fetchall()


def columns_of(oracle: duckdb.DuckDBPyConnection, table: str) -> str:
    return ", ".join(f'"{row[0]}"' for row in oracle.execute(f"DESCRIBE {table}").fetchall())


def require_same(project: TinyProject, files: list[str] | None = None) -> None:
    """Every table is what DuckDB makes of the landed months, and so is what waits in quarantine, with its reasons."""
    pointers = project.lake.pointers()
    oracle = recompute(project.root / "landing", files)
    for table in TABLES:
        if table not in pointers:
            assert oracle.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
            continue
        columns = columns_of(oracle, table)
        actual = f"SELECT {columns} FROM {scan(pointers[table])}"
        assert different_rows(oracle, f"SELECT {columns} FROM {table}", actual) == [], table
    for colour in ("yellow", "green"):
        waiting, expected = f"staging.stg_{colour}_trips__quarantine", f"quarantine.stg_{colour}_trips"
        columns = columns_of(oracle, expected)
        if waiting in pointers:
            actual = f"SELECT {columns} FROM {scan(pointers[waiting])}"
            assert different_rows(oracle, f"SELECT {columns} FROM {expected}", actual) == [], waiting
        malformed = f"raw.{colour}_trips__quarantine"
        count = oracle.execute(f"SELECT count(*)::INT FROM malformed.{colour}_trips").fetchall()
        found = project.ask(f"SELECT count(*)::INT FROM {malformed}") if malformed in pointers else [(0,)]
        assert found == count, malformed
    oracle.close()


@pytest.fixture(scope="module")
def taxi(tmp_path_factory: pytest.TempPathFactory) -> TinyProject:
    """Two months around a change of the TLC's schema, taken in month by month."""
    made = project(tmp_path_factory.mktemp("taxi") / "taxi")
    generate(made, "--start", "2024-12", "--months", "2", "--rows", "400", "--dirty", "0.1")
    results = run(made)
    assert len(results) == 2
    return made


def test_every_table_equals_the_recomputation(taxi: TinyProject) -> None:
    require_same(taxi)
    assert "cbd_congestion_fee" in dict(taxi.lake.states()["raw.yellow_trips"].columns), "a column that came in 2025"


def test_each_month_is_a_run_and_a_snapshot(taxi: TinyProject) -> None:
    found = history(load(taxi.lake.pointers()["raw.yellow_trips"]))
    assert [one.batch for one in found][:2] == ["2024-12", "2025-01"]
    assert run(taxi)[0].status == "nothing new"


def test_all_months_at_once_give_the_same_lake(taxi: TinyProject, tmp_path: Path) -> None:
    other = project(tmp_path / "taxi")
    shutil.copytree(taxi.root / "landing", other.root / "landing")
    assert other.run().ok
    mine, theirs = ({t: rows for t, rows in one.everything().items() if "__changes" not in t} for one in (taxi, other))
    assert mine == theirs


def test_a_replaced_month_changes_only_what_its_trips_touch(taxi: TinyProject) -> None:
    generate(taxi, "--replace", "2024-12")
    (result,) = run(taxi)
    outcomes = {one.table: one for one in result.tables}
    assert outcomes["raw.yellow_trips"].action == "update"
    assert outcomes["marts.fct_daily_trips"].action == "update"
    days = taxi.ask("SELECT count(DISTINCT pickup_date)::INT FROM staging.stg_yellow_trips")[0][0]
    touched = outcomes["marts.fct_daily_trips"].keys_touched
    assert touched is not None
    assert touched <= 31 < days, "the days of that month"
    require_same(taxi)


if REAL.is_dir():

    def land(made: TinyProject, *months: str) -> None:
        (made.root / "landing").mkdir(exist_ok=True)
        for file in ("taxi_zone_lookup.csv", *months):
            shutil.copy(REAL / file, made.root / "landing")

    def test_real_months_equal_the_recomputation(tmp_path: Path) -> None:
        made = project(tmp_path / "taxi")
        land(made, *MONTHS)
        assert made.run().ok
        require_same(made)

    @pytest.mark.thorough
    def test_real_months_one_by_one_equal_the_recomputation(tmp_path: Path) -> None:
        made = project(tmp_path / "taxi")
        for months in (MONTHS[:3], MONTHS[3:]):
            land(made, *months)
            assert len(run(made)) == 3
        require_same(made)
        assert run(made)[0].status == "nothing new"
