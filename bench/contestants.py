"""Who takes part: how each builds the shop's tables from a landing folder, and how many rows each of its tables has."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

BENCH = Path(__file__).parent
PROJECT = BENCH.parent / "pipelines" / "ecommerce"
ICEFIELD = "icefield"
HANDWRITTEN = "hand-written PySpark"
DUCKDB = "DuckDB"
POLARS = "Polars + PyIceberg"

Counts = dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """One way to build the tables; `prepare` makes a fresh place for a run, outside of the measured time."""

    name: str
    prepare: Callable[[Path, Path], None]
    command: Callable[[Path, Path], Sequence[str]]
    counts: Callable[[Path], Counts]


def contestants(jars: Sequence[Path]) -> dict[str, Contestant]:
    """All of them, by name; the jars are those of icefield, so that everyone has the same Iceberg."""
    everyone = [
        Contestant(
            name=ICEFIELD,
            prepare=copy_project,
            command=lambda landing, out: icefield("run", "-p", str(out)),
            counts=lambda out: iceberg_counts(out / "lake" / "catalog.db"),
        ),
        _script(HANDWRITTEN, "handwritten_pyspark.py", _catalog_counts, [str(jar) for jar in jars]),
        _script(DUCKDB, "duckdb_script.py", parquet_counts),
        _script(POLARS, "polars_pyiceberg.py", _catalog_counts),
    ]
    return {contestant.name: contestant for contestant in everyone}


def icefield(*arguments: str) -> list[str]:
    """The command line of icefield in this environment."""
    return [sys.executable, "-m", "icefield", *arguments]


def generate(out: Path, *arguments: str) -> list[str]:
    """The command line of the generator of landing data."""
    return [sys.executable, str(PROJECT / "generate.py"), "--out", str(out), *arguments]


def copy_project(landing: Path, out: Path) -> None:
    """A fresh copy of the reference project; landed files are linked, so they are in the page cache already."""
    made_by_runs = shutil.ignore_patterns("landing", "lake", ".icefield", "__pycache__")
    shutil.copytree(PROJECT, out, ignore=made_by_runs)
    # The generator replaces files rather than writing into them, so what --append does here is not seen elsewhere.
    shutil.copytree(landing, out / "landing", copy_function=os.link)


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


def parquet_counts(out: Path) -> Counts:
    """Rows of each Parquet file, named by its folder and itself."""
    import duckdb

    return {f"{file.parent.name}.{file.stem}": len(duckdb.read_parquet(str(file))) for file in out.glob("*/*.parquet")}


def _script(name: str, file: str, counts: Callable[[Path], Counts], more: Sequence[str] = ()) -> Contestant:
    return Contestant(
        name=name,
        prepare=lambda landing, out: None,
        command=lambda landing, out: [sys.executable, str(BENCH / file), str(landing), str(out), *more],
        counts=counts,
    )


def _catalog_counts(out: Path) -> Counts:
    return iceberg_counts(out / "catalog.db")


def _rows(location: str) -> int:
    path = "/" + unquote(location.removeprefix("file:")).lstrip("/")
    metadata = json.loads(Path(path).read_text(encoding="utf-8"))
    current = metadata.get("current-snapshot-id")
    summaries = {it["snapshot-id"]: it["summary"] for it in metadata.get("snapshots", ())}
    summary = summaries.get(current, {})
    return int(summary.get("total-records", 0)) - int(summary.get("total-position-deletes", 0))
