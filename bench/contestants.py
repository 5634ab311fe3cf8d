"""Who takes part: how each builds the shop's tables in a place of its own, and how many rows each of its tables has.

A place is a folder with the landed files in `landing`; scripts write to `tables` in it, projects where they say.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from measure import CommandFailed

BENCH = Path(__file__).parent
PROJECT = BENCH.parent / "pipelines" / "ecommerce"
DBT_PROJECT = BENCH / "dbt_duckdb"
DBT_PINS = DBT_PROJECT / "requirements.txt"
DBT_HOME = BENCH.parent / ".bench-venv"
ICEFIELD = "icefield"
HANDWRITTEN = "hand-written PySpark"
DUCKDB = "DuckDB"
DBT = "dbt-duckdb"
POLARS = "Polars + PyIceberg"
NICKNAMES = {"icefield": ICEFIELD, "pyspark": HANDWRITTEN, "duckdb": DUCKDB, "dbt": DBT, "polars": POLARS}
MADE_BY_RUNS = ("landing", "lake", ".icefield", "__pycache__", "target", "logs", "*.duckdb")

Counts = dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """One way to build the tables; one that is not incremental builds all of them anew whatever has landed."""

    name: str
    command: Callable[[Path], Sequence[str]]
    counts: Callable[[Path], Counts]
    project: Path | None = None
    incremental: bool = False
    set_up: Callable[[Path], None] = lambda place: None
    python: str = sys.executable

    @property
    def nickname(self) -> str:
        """The name for command lines and folders."""
        return next(short for short, name in NICKNAMES.items() if name == self.name)

    def prepare(self, landing: Path, place: Path) -> None:
        """A fresh place with the landed files, outside of the measured time."""
        shutil.rmtree(place, ignore_errors=True)
        if self.project is not None:
            shutil.copytree(self.project, place, ignore=shutil.ignore_patterns(*MADE_BY_RUNS))
        land(landing, place)
        self.set_up(place)

    def clear(self, place: Path) -> None:
        """Make room for tables that are built anew, outside of the measured time."""
        if not self.incremental:
            shutil.rmtree(place / "tables", ignore_errors=True)


def contestants(names: Iterable[str], jars: Sequence[Path]) -> dict[str, Contestant]:
    """Those asked for, by name; the jars are those of icefield, so that everyone has the same Iceberg."""
    everyone = [
        Contestant(
            name=ICEFIELD,
            command=lambda place: icefield("run", "-p", str(place)),
            counts=lambda place: iceberg_counts(place / "lake" / "catalog.db"),
            project=PROJECT,
            incremental=True,
        ),
        _script(HANDWRITTEN, "handwritten_pyspark.py", _catalog_counts, [str(jar) for jar in jars]),
        _script(DUCKDB, "duckdb_script.py", parquet_counts),
        Contestant(
            name=DBT,
            command=lambda place: dbt(place, "run"),
            counts=duckdb_counts,
            project=DBT_PROJECT,
            incremental=True,
            # A project in use has been parsed before.
            set_up=lambda place: _run_quietly(dbt(place, "parse")),
            python=str(DBT_HOME / "bin" / "python"),
        ),
        _script(POLARS, "polars_pyiceberg.py", _catalog_counts),
    ]
    chosen = set(names)
    return {contestant.name: contestant for contestant in everyone if contestant.name in chosen}


def icefield(*arguments: str) -> list[str]:
    """The command line of icefield in this environment."""
    return [sys.executable, "-m", "icefield", *arguments]


def dbt(place: Path, *arguments: str) -> list[str]:
    """The command line of dbt in its own environment, called in the project's folder as its user does."""
    return ["/bin/sh", "-c", 'cd "$0" && exec "$@"', str(place), str(DBT_HOME / "bin" / "dbt"), *arguments]


def generate(out: Path, *arguments: str) -> list[str]:
    """The command line of the generator of landing data."""
    return [sys.executable, str(PROJECT / "generate.py"), "--out", str(out), *arguments]


def land(landing: Path, place: Path) -> None:
    """Let the place have every landed file that it has not; linked, so they are in the page cache already."""
    for file in landing.glob("*/*.csv"):
        landed = place / "landing" / file.parent.name / file.name
        if not landed.exists():
            landed.parent.mkdir(parents=True, exist_ok=True)
            os.link(file, landed)


def install_dbt() -> None:
    """Make dbt's environment, once for each version of its requirements."""
    stamp = DBT_HOME / "requirements.txt"
    if stamp.exists() and stamp.read_bytes() == DBT_PINS.read_bytes():
        return
    venv.create(DBT_HOME, clear=True)
    pip = [sys.executable, "-m", "pip", "--python", str(DBT_HOME / "bin" / "python")]
    _run_quietly([*pip, "install", "--requirement", str(DBT_PINS)])
    shutil.copy(DBT_PINS, stamp)


def dbt_versions() -> dict[str, str]:
    """The pinned versions of dbt."""
    pins = [line.split("==") for line in DBT_PINS.read_text(encoding="utf-8").splitlines() if line.startswith("dbt")]
    return {name: number for name, number in pins}


def iceberg_counts(catalog: Path) -> Counts:
    """Rows of each table of a SQLite catalog, as the newest snapshot's summary tells them."""
    connection = sqlite3.connect(catalog)
    try:
        rows = connection.execute(
            "SELECT table_namespace || '.' || table_name, metadata_location FROM iceberg_tables"
            " WHERE catalog_name = 'lake'"
        ).fetchall()
    finally:
        connection.close()
    return {table: _rows(location) for table, location in rows}


def parquet_counts(place: Path) -> Counts:
    """Rows of each Parquet file, named by its folder and itself."""
    import duckdb

    files = (place / "tables").glob("*/*.parquet")
    return {f"{file.parent.name}.{file.stem}": len(duckdb.read_parquet(str(file))) for file in files}


def duckdb_counts(place: Path) -> Counts:
    """Rows of each table of a DuckDB file."""
    import duckdb

    with duckdb.connect(str(place / "shop.duckdb"), read_only=True) as db:
        tables = db.execute("SELECT schema_name || '.' || table_name FROM duckdb_tables()").fetchall()
        return {table: len(db.table(table)) for (table,) in tables}


def _script(name: str, file: str, counts: Callable[[Path], Counts], more: Sequence[str] = ()) -> Contestant:
    def command(place: Path) -> list[str]:
        return [sys.executable, str(BENCH / file), str(place / "landing"), str(place / "tables"), *more]

    return Contestant(name=name, command=command, counts=counts)


def _catalog_counts(place: Path) -> Counts:
    return iceberg_counts(place / "tables" / "catalog.db")


def _run_quietly(command: Sequence[str]) -> None:
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    if ended.returncode:
        raise CommandFailed(f"exit code {ended.returncode} of: {' '.join(command)}\n{ended.stdout}{ended.stderr}")


def _rows(location: str) -> int:
    path = "/" + unquote(location.removeprefix("file:")).lstrip("/")
    metadata = json.loads(Path(path).read_text(encoding="utf-8"))
    current = metadata.get("current-snapshot-id")
    summaries = {it["snapshot-id"]: it["summary"] for it in metadata.get("snapshots", ())}
    summary = summaries.get(current, {})
    return int(summary.get("total-records", 0)) - int(summary.get("total-position-deletes", 0))
