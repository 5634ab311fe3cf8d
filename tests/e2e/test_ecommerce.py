"""The reference project, whole: every table equals what DuckDB works out alone from the landed files, after each run.

ICEFIELD_E2E_ROWS says how much is landed: 1,900 by default, 3,800,000 for the full size.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from readers import by_duckdb, by_polars, by_pyiceberg, by_spark, differing
from recompute import FEEDS, recompute

from icefield.engine import limits
from icefield.engine.limits import Limits
from icefield.lake import metadata as meta
from icefield.lake.duckdb_scan import connect, scan
from projects import TinyProject

pytestmark = pytest.mark.spark

PROJECT = Path(__file__).parents[2] / "pipelines" / "ecommerce"
ROWS = int(os.environ.get("ICEFIELD_E2E_ROWS", "1900"))
DAYS = 90 if ROWS > 1_000_000 else 3
DIRTY = "0.002" if ROWS > 1_000_000 else "0.05"
SEED = os.environ.get("ICEFIELD_E2E_SEED", "7")
PHASES = ("the first run", "two days more", "a full refresh")
DERIVED = [
    "silver.customer_sessions", "silver.payment_analysis", "silver.inventory_health", "silver.support_metrics",
    "gold.customer_summary", "gold.daily_metrics", "gold.product_summary",
]  # fmt: skip
BRONZE = [f"bronze.{feed.name}" for feed in FEEDS]


@dataclass(frozen=True)
class Phase:
    """The lake as one run left it; metadata files stay, so that each can still be looked at."""

    result: Any
    pointers: dict[str, str]
    batches: list[list[str]]


@dataclass(frozen=True)
class Shop:
    project: TinyProject
    phases: dict[str, Phase]

    @property
    def landing(self) -> Path:
        return self.project.root / "landing"


def generate(root: Path, *arguments: str) -> None:
    command = [sys.executable, str(root / "generate.py"), "--seed", SEED, "--dirty", DIRTY, *arguments]
    subprocess.run(command, check=True, capture_output=True)


def landed(root: Path) -> set[str]:
    return {path.relative_to(root / "landing").as_posix() for path in (root / "landing").glob("*/*.csv")}


#: Files are read by threads of the driver, by Spark's tasks, and by both: first build, more days, full refresh. Rows of
#: the last one never go through the driver's memory.
READ_BY = {
    PHASES[0]: Limits(),
    PHASES[1]: Limits(driver_bytes=-1),
    PHASES[2]: Limits(driver_bytes=60_000, held_bytes=-1),
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    root = tmp_path_factory.mktemp("shop") / "ecommerce"
    shutil.copytree(PROJECT, root, ignore=shutil.ignore_patterns("landing", "lake", ".icefield", "__pycache__"))
    project, phases, batches = TinyProject(root), {}, []
    print(f"{ROWS} rows, seed {SEED}")
    for name in PHASES:
        before = landed(root)
        if name == PHASES[0]:
            generate(root, "--rows", str(ROWS), "--days", str(DAYS))
        elif name == PHASES[1]:
            generate(root, "--append", "--days", "2", "--rows", str(max(380, 2 * ROWS // DAYS)))
        if new := sorted(landed(root) - before):
            batches.append(new)
        with pytest.MonkeyPatch.context() as patch:
            if ROWS <= 1_000_000:
                patch.setattr(limits, "LIMITS", READ_BY[name])
            result = project.run(full_refresh=name == PHASES[2])
        assert result.status == "published", result.error
        phases[name] = Phase(result=result, pointers=project.lake.pointers(), batches=list(batches))
    yield Shop(project=project, phases=phases)
    if ROWS > 1_000_000:
        shutil.rmtree(root)


@pytest.fixture(scope="module")
def oracles(shop: Shop) -> dict[str, duckdb.DuckDBPyConnection]:
    """What each phase must have, as Arrow tables can be asked for from its connection."""
    return {name: recompute(shop.landing, phase.batches) for name, phase in shop.phases.items()}


def different_rows(expected: duckdb.DuckDBPyConnection, query: str, actual: str) -> list[tuple[Any, ...]]:
    """Rows, as multisets, that only one of the two has; a handful, for the message."""
    con = connect()
    con.register("expected", expected.execute(query).to_arrow_table())
    found = con.execute(f"""
        SELECT 'missing' AS what, CAST(COLUMNS(*) AS VARCHAR) FROM (FROM expected EXCEPT ALL ({actual}))
        UNION ALL SELECT 'too many', CAST(COLUMNS(*) AS VARCHAR) FROM (({actual}) EXCEPT ALL FROM expected)
        LIMIT 10""").fetchall()
    con.close()
    return found


def columns_of(oracle: duckdb.DuckDBPyConnection, table: str) -> str:
    return ", ".join(f'"{row[0]}"' for row in oracle.execute(f"DESCRIBE {table}").fetchall())


@pytest.mark.parametrize("table", [*BRONZE, *DERIVED])
@pytest.mark.parametrize("phase", PHASES)
def test_a_table_equals_the_recomputation_row_for_row(
    shop: Shop, oracles: dict[str, duckdb.DuckDBPyConnection], phase: str, table: str
) -> None:
    columns = columns_of(oracles[phase], table)
    actual = f"SELECT {columns} FROM {scan(shop.phases[phase].pointers[table])}"
    assert different_rows(oracles[phase], f"SELECT {columns} FROM {table}", actual) == []
    assert oracles[phase].execute(f"SELECT count(*) FROM {table}").fetchone() != (0,)


@pytest.mark.parametrize("feed", FEEDS, ids=lambda feed: feed.name)
@pytest.mark.parametrize("phase", PHASES)
def test_quarantine_has_the_same_lines_with_the_same_reasons_and_bytes(
    shop: Shop, oracles: dict[str, duckdb.DuckDBPyConnection], phase: str, feed: Any
) -> None:
    location = shop.phases[phase].pointers.get(f"bronze.{feed.name}__quarantine")
    expected = f"SELECT source_file, line, reasons, raw FROM quarantine.{feed.name}"
    if location is None:
        assert oracles[phase].execute(f"SELECT count(*) FROM quarantine.{feed.name}").fetchone() == (0,)
        return
    reasons = "list_transform(reasons, lambda r: CASE WHEN r LIKE 'malformed%' THEN 'malformed' ELSE r END)"
    actual = f"SELECT source_file, line, {reasons} AS reasons, raw FROM {scan(location)}"
    assert different_rows(oracles[phase], expected, actual) == []


@pytest.mark.parametrize("feed", FEEDS, ids=lambda feed: feed.name)
@pytest.mark.parametrize("phase", PHASES)
def test_rows_landed_are_rows_in_bronze_and_in_quarantine_by_day(shop: Shop, phase: str, feed: Any) -> None:
    manifest = json.loads((shop.landing / "manifest.json").read_text())["feeds"][feed.name]
    days = {Path(name).stem for batch in shop.phases[phase].batches for name in batch if name.startswith(feed.name)}
    pointers = shop.phases[phase].pointers
    places = [pointers[name] for name in (f"bronze.{feed.name}", f"bronze.{feed.name}__quarantine") if name in pointers]
    union = " UNION ALL ".join(f"SELECT source_file FROM {scan(place)}" for place in places)
    with connect() as db:
        counted = dict(db.execute(f"SELECT source_file[-14:-5], count(*) FROM ({union}) GROUP BY 1").fetchall())
    assert counted == {day: manifest[day]["rows"] for day in days}


@pytest.mark.parametrize("feed", FEEDS, ids=lambda feed: feed.name)
def test_quarantine_has_as_many_rows_of_each_kind_as_the_generator_made_dirty(shop: Shop, feed: Any) -> None:
    manifest = json.loads((shop.landing / "manifest.json").read_text())["feeds"][feed.name]
    made = {kind: sum(day["dirty"][kind] for day in manifest.values()) for kind in ("duplicate", "malformed")}
    location = shop.phases[PHASES[1]].pointers[f"bronze.{feed.name}__quarantine"]
    with connect() as db:
        found = db.execute(f"""
            SELECT count(*) FILTER (reasons = ['{feed.key} is unique']), count(*) FILTER (reasons[1] LIKE 'malformed%')
            FROM {scan(location)}""").fetchone()
    assert found == (made["duplicate"], made["malformed"])


def test_when_a_row_was_taken_in_survives_a_full_refresh(shop: Shop) -> None:
    before, after = (shop.phases[phase].pointers["bronze.customer_events"] for phase in PHASES[1:])
    with connect() as db:
        query = "SELECT event_id, ingested_at FROM {}"
        one, two = query.format(scan(before)), query.format(scan(after))
        assert db.execute(f"SELECT count(*) FROM (({one}) EXCEPT ALL ({two}))").fetchone() == (0,)
        assert db.execute(f"SELECT count(DISTINCT ingested_at) FROM {scan(after)}").fetchone() == (2,)


def test_four_readers_agree_on_every_table(shop: Shop, tmp_path: Path) -> None:
    from icefield.engine.session.spark import start_session

    conf = {"spark.driver.memory": "3g"}
    spark = by_spark(start_session(app="readers", conf=conf, log=tmp_path / "spark.log"), shop.project.lake)
    pointers = shop.project.lake.pointers()
    for table, location in pointers.items():
        frames = {
            "duckdb": by_duckdb(location),
            "pyiceberg": by_pyiceberg(location),
            "polars": by_polars(location),
            "spark": spark(table),
        }
        assert differing(frames) == {"pyiceberg": 0, "polars": 0, "spark": 0}, table


def test_the_lake_as_of_a_run_is_the_lake_as_that_run_left_it(shop: Shop) -> None:
    now = shop.project.lake.pointers()
    history = meta.load(now["ops.runs"])
    for phase in shop.phases.values():
        moment = meta.run_published_at(history, phase.result.run)
        assert moment == phase.result.published_ms
        for table, then in phase.pointers.items():
            snapshot = meta.as_of(meta.load(now[table]), moment)
            assert snapshot == meta.load(then)["current-snapshot-id"], table
            with connect() as db:
                one, two = f"FROM {scan(now[table], snapshot)}", f"FROM {scan(then)}"
                assert db.execute(f"SELECT count(*) FROM ({one} EXCEPT ALL {two})").fetchone() == (0,), table
                assert db.execute(f"SELECT count(*) FROM ({two} EXCEPT ALL {one})").fetchone() == (0,), table


def test_every_table_of_a_run_has_one_time_and_names_the_run(shop: Shop) -> None:
    for phase in shop.phases.values():
        touched = {table for table, at in phase.pointers.items() if phase.result.run in at}
        assert touched >= {"ops.runs", "ops.table_runs", "ops.checks"}
        assert {meta.load(phase.pointers[table])["last-updated-ms"] for table in touched} == {phase.result.published_ms}


def test_every_promise_is_proven(shop: Shop) -> None:
    location = shop.project.lake.pointers()["ops.table_runs"]
    with connect() as db:
        found = db.execute(
            f'SELECT DISTINCT "table", promise FROM {scan(location)} WHERE promise IS NOT NULL'
        ).fetchall()
    assert {table for table, _ in found} == {*BRONZE, *DERIVED, "silver.stock_levels"}
    assert {promise for _, promise in found} == {"proven"}


def test_run_again_nothing_is_new(shop: Shop) -> None:
    before = shop.project.lake.pointers()
    assert shop.project.run().status == "nothing new"
    assert shop.project.lake.pointers() == before
