"""A project that takes in files by months, and its lake as runs would have left it; made without Spark."""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from icefield.graph.news import FilesCursor
from icefield.lake.embedded import EmbeddedLake
from icefield.lake.ops import Journal, at
from icefield.lake.table_state import state_properties, table_state
from lakes import change, new_lake, open_branch, told
from projects import TinyProject, tiny

FIRST, SECOND, THIRD = "20260201T060000-aaaaaa", "20260301T060000-bbbbbb", "20260302T060000-cccccc"

TRIPS = """
from pyspark.sql import functions as F
from icefield import by_key, files, table


@table(
    "raw.trips",
    source=files("landing/trips/{month}.csv", schema="id BIGINT, fare DECIMAL(10,2), tip DOUBLE", batch="month"),
    refresh=by_key("month"),
)
def trips(rows):
    return rows.select("id", "fare", "tip", "month")


@table("marts.months", refresh=by_key("month"))
def months(trips):
    return trips.groupBy("month").agg(F.sum("fare").alias("fare"))
"""


def rows(*given: tuple[int, str, float, str]) -> pa.Table:
    """Trips: id, fare, tip and month."""
    ids, fares, tips, months = zip(*given, strict=True)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "fare": pa.array([Decimal(fare) for fare in fares], pa.decimal128(10, 2)),
            "tip": pa.array(tips, pa.float64()),
            "month": pa.array(months, pa.string()),
        }
    )


def taxi(root: Path) -> TinyProject:
    """Three runs: January, February, and February again with one fare corrected and a trip more.

    Since then January's file was corrected, and April's arrived.
    """
    project = tiny(root, TRIPS)
    lake = new_lake(project.root / "lake")
    january = [(1, "10.00", 1.0, "2026-01"), (2, "20.50", 0.5, "2026-01")]
    february = [(3, "5.00", 0.0, "2026-02")]
    again = [(3, "6.00", 0.0, "2026-02"), (4, "7.25", 2.5, "2026-02")]
    for month in ("2026-01", "2026-02"):
        project.land(f"{month}.csv", "id,fare,tip\n", folder="trips")
    _run(project, lake, FIRST, "2026-01", january)
    _run(project, lake, SECOND, "2026-02", february)
    _run(project, lake, THIRD, "2026-02", again, replacing="month = '2026-02'")
    project.land("2026-01.csv", "id,fare,tip\n1,11.00,1.0\n", folder="trips")
    project.land("2026-04.csv", "id,fare,tip\n", folder="trips")
    return project


def _run(project: TinyProject, lake: EmbeddedLake, run: str, month: str, trips: list[Any], replacing: str = "") -> None:
    """Publishes a month as a run would have, a minute after the time in the run's id."""
    branch = open_branch(lake, run)
    change(branch, "raw.trips", rows(*trips), replacing=replacing)
    found = branch.staged_metadata("raw.trips")
    assert found is not None
    state = replace(table_state("raw.trips", found), run=run, cursor=FilesCursor(count=1, digest="earlier"))
    at_ms = int(dt.datetime.fromisoformat(f"{run[:15]}Z").timestamp() + 60) * 1000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("icefield.lake.branch.now_ms", lambda: at_ms)
        branch.publish(
            {"raw.trips": state_properties(state)},
            Journal(runs=told(run).runs, files=[_taken(project, month, run)]),
            summaries={"raw.trips": {"icefield.batch": month}},
        )


def _taken(project: TinyProject, month: str, run: str) -> dict[str, Any]:
    file = project.root / "landing" / "trips" / f"{month}.csv"
    return {
        "table": "raw.trips",
        "path": file.relative_to(project.root).as_posix(),
        "run": run,
        "status": "taken",
        "size": file.stat().st_size,
        "modified_ns": file.stat().st_mtime_ns,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "taken_at": at(0),
        "arrival": int(month[-2:]),
        "sequence": {FIRST: 1, SECOND: 2, THIRD: 3}[run],
    }
