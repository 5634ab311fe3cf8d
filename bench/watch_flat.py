"""Does `run --watch` stay as fast and as small after hundreds of runs as it was at first?

    python bench/watch_flat.py [--runs 300] [--rows 15000] [--sensors 200] [--no-upkeep] [--output FILE.json]

One process, three tables as in the sensors project (append -> by_key by sensor and minute -> accumulate), fed from JSON
files of so many rows, 2,000 events a second by their own clock, some late, some malformed. The next file lands when the
loop waits for it, so that a run is measured and not the waiting. In the end all tables are compared with DuckDB's
answer over all files.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from icefield.lake import metadata as meta
from icefield.lake.duckdb_scan import connect, scan
from icefield.lake.embedded import EmbeddedLake
from icefield.lake.manifests import records
from icefield.project import open_project
from icefield.run.request import RunRequest
from icefield.run.watch import UPKEEP_RUNS, Failed, Happening, Maintained, Ran, Watch

EVENTS_PER_SECOND = 2_000
LATE, LATEST_SECONDS, MALFORMED = 0.01, 90, 0.001
START = dt.datetime(2026, 11, 15, 12, tzinfo=dt.UTC)
TOML = """
[project]
name = "flat"
tables = ["tables.py"]

[profile.local]
lake = "lake"

[profile.local.upkeep]
keep = "7d"
grace = "{grace}"
"""
TABLES = """
from pyspark.sql import DataFrame, Window, functions as F
from icefield import accumulate, append, between, by_key, files, not_null, table, unique


@table(
    "raw.sensor_readings",
    source=files("landing/*.jsonl", schema="sensor_id STRING, temperature DOUBLE, event_time TIMESTAMP"),
    refresh=append(),
    checks=[not_null("sensor_id", "temperature", "event_time"), between("temperature", -90, 80)],
    otherwise="quarantine",
)
def sensor_readings(rows: DataFrame) -> DataFrame:
    return rows


@table(
    "metrics.sensor_minutes",
    refresh=by_key("sensor_id", minute="date_trunc('MINUTE', event_time)"),
    checks=[unique("sensor_id", "minute")],
)
def sensor_minutes(sensor_readings: DataFrame) -> DataFrame:
    sent_again = Window.partitionBy("sensor_id", "event_time").orderBy("source_file", "source_line")
    once = sensor_readings.withColumn("nth", F.row_number().over(sent_again)).where("nth = 1")
    average = F.avg(F.col("temperature").cast("DECIMAL(9,4)")).cast("DOUBLE")
    return once.groupBy("sensor_id", F.date_trunc("MINUTE", "event_time").alias("minute")).agg(
        F.count("*").alias("readings"), average.alias("average"),
        F.min("temperature").alias("minimum"), F.max("temperature").alias("maximum"),
        F.min("event_time").alias("first"), F.max("event_time").alias("last"),
    )


@table("metrics.sensor_status", refresh=accumulate("sensor_id", readings="sum", last="max"))
def sensor_status(sensor_minutes: DataFrame) -> DataFrame:
    return sensor_minutes.groupBy("sensor_id").agg(F.sum("readings").alias("readings"), F.max("last").alias("last"))
"""


class Sensors:
    """Writes the files, one after the other."""

    def __init__(self, root: Path, rows: int, sensors: int) -> None:
        self.folder = root / "landing"
        self.folder.mkdir()
        self.rows = rows
        self.sensors = sensors
        self.files = 0
        self.chance = random.Random(7)

    def land(self) -> None:
        begun = START + dt.timedelta(seconds=self.files * self.rows / EVENTS_PER_SECOND)
        draft = self.folder / f".{self.files:05}"
        with draft.open("w") as file:
            file.writelines(self._line(begun, number) for number in range(self.rows))
        draft.rename(self.folder / f"{self.files:05}.jsonl")
        self.files += 1

    def _line(self, begun: dt.datetime, number: int) -> str:
        chance = self.chance.random()
        at = begun + dt.timedelta(seconds=number / EVENTS_PER_SECOND)
        if chance < LATE:
            at -= dt.timedelta(seconds=self.chance.random() * LATEST_SECONDS)
        reading = {"sensor_id": f"s-{self.chance.randrange(self.sensors)}", "event_time": at.isoformat()}
        text = json.dumps({**reading, "temperature": round(self.chance.uniform(10, 30), 2)})
        return (text[:-1] if chance > 1 - MALFORMED else text) + "\n"


class LandingClock:
    """Time passes as it does; while the loop waits for news, they come."""

    def __init__(self, sensors: Sensors) -> None:
        self.sensors = sensors

    def now(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        self.sensors.land()


def look(lake: EmbeddedLake) -> dict[str, Any]:
    """What the lake consists of now."""
    tables = {}
    for table, at in sorted(lake.pointers().items()):
        metadata = meta.load(at)
        current = meta.current_snapshot(metadata)
        summary = current["summary"] if current else {}
        tables[table] = {
            "files": int(summary.get("total-data-files", 0)) + int(summary.get("total-delete-files", 0)),
            "manifests": sum(1 for _ in records(current["manifest-list"])) if current else 0,
            "snapshots": len(metadata["snapshots"]),
            "metadata_bytes": meta.local_path(at).stat().st_size,
        }
    stored = [path.stat().st_size for path in lake.warehouse.rglob("*") if path.is_file()]
    runs = sum(1 for path in lake.runs.iterdir() if path.is_dir())
    return {"tables": tables, "stored_files": len(stored), "stored_bytes": sum(stored), "run_folders": runs}


class Bench:
    """Hears of every run and notes what it took and what it left."""

    def __init__(self, lake: EmbeddedLake) -> None:
        self.lake = lake
        self.runs: list[dict[str, Any]] = []
        self.upkeep: list[float] = []

    def tell(self, happening: Happening) -> None:
        if isinstance(happening, Failed):
            sys.exit(happening.error)
        if isinstance(happening, Maintained):
            self.upkeep.append(happening.done.seconds)
            print(f"  upkeep {happening.done.seconds:.1f} s {happening.done.put_off}", flush=True)
        if isinstance(happening, Ran):
            result = happening.result
            spent = {one.table: round(one.seconds, 3) for one in result.tables}
            actions = {one.table: one.action for one in result.tables}
            self.runs.append(
                {"seconds": result.seconds, "phases": result.phases, "spent": spent, "actions": actions}
                | look(self.lake)
            )
            if happening.number % 10 == 0:
                print(f"run {happening.number}  {result.seconds:.2f} s  {told(self.runs[-1])}", flush=True)


def told(run: dict[str, Any]) -> str:
    most = {
        key: max(one[key] for one in run["tables"].values())
        for key in ("files", "manifests", "snapshots", "metadata_bytes")
    }
    return f"most of a table: {most}; stored {run['stored_files']} files, {run['run_folders']} run folders"


def expected(landing: Path) -> str:
    """The minutes, by DuckDB over all files; a malformed line is no reading."""
    return f"""
        WITH readings AS (
            SELECT DISTINCT ON (sensor_id, event_time) sensor_id, temperature, event_time::TIMESTAMPTZ AS event_time
            FROM read_json('{landing}/*.jsonl', format = 'newline_delimited', ignore_errors = true, filename = true,
                           columns = {{sensor_id: 'VARCHAR', temperature: 'DOUBLE', event_time: 'VARCHAR'}})
            WHERE sensor_id IS NOT NULL AND temperature IS NOT NULL AND event_time IS NOT NULL
            ORDER BY sensor_id, event_time, filename)
        SELECT sensor_id, date_trunc('minute', event_time)::VARCHAR, count(*), min(event_time)::VARCHAR,
               max(event_time)::VARCHAR
        FROM readings GROUP BY ALL"""


def compare(lake: EmbeddedLake, landing: Path) -> dict[str, bool]:
    """Whether tables are what all files give; temperatures of readings sent again are told by order, so not here."""
    minutes, status = (scan(lake.pointers()[f"metrics.{name}"]) for name in ("sensor_minutes", "sensor_status"))
    mine = f"SELECT sensor_id, minute::VARCHAR, readings, first::VARCHAR, last::VARCHAR FROM {minutes}"
    sums = "SELECT sensor_id, sum(readings), max(last)::VARCHAR FROM {} GROUP BY ALL"
    with connect() as db:
        rows = [Counter(db.execute(query).fetchall()) for query in (expected(landing), mine)]
        totals = [Counter(db.execute(sums.format(table)).fetchall()) for table in (minutes, status)]
    return {"metrics.sensor_minutes": rows[0] == rows[1], "metrics.sensor_status": totals[0] == totals[1]}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--rows", type=int, default=15_000)
    parser.add_argument("--sensors", type=int, default=200)
    parser.add_argument("--grace", default="1m")
    parser.add_argument("--no-upkeep", action="store_true")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="icefield-flat-") as folder:
        root = Path(folder)
        (root / "icefield.toml").write_text(TOML.format(grace=given.grace))
        (root / "tables.py").write_text(TABLES)
        sensors, bench = Sensors(root, given.rows, given.sensors), Bench(EmbeddedLake(root / "lake"))
        sensors.land()
        Watch(
            open_again=lambda: open_project(root),
            order=RunRequest(),
            tell=bench.tell,
            runs=given.runs,
            upkeep_runs=None if given.no_upkeep else UPKEEP_RUNS,
            clock=LandingClock(sensors),
        ).carry_out()
        right = compare(bench.lake, sensors.folder)
    report(bench, right, given.output)
    return 0 if all(right.values()) else 1


def report(bench: Bench, right: dict[str, bool], output: Path | None) -> None:
    """The curve, in parts of 30 runs; the first five runs warm up."""
    seconds = [run["seconds"] for run in bench.runs[5:]]
    parts = [seconds[start : start + 30] for start in range(0, len(seconds), 30)]
    print("seconds a run, median of each 30:", [round(statistics.median(part), 2) for part in parts])
    ratio = statistics.median(seconds[-30:]) / statistics.median(seconds[:30])
    print(f"last 30 against first 30: {ratio:.2f}; upkeep: {len(bench.upkeep)} times, {sum(bench.upkeep):.1f} s in all")
    print(f"right: {right}")
    if output is not None:
        output.write_text(json.dumps({"runs": bench.runs, "upkeep": bench.upkeep, "ratio": ratio, "right": right}))


if __name__ == "__main__":
    sys.exit(main())
