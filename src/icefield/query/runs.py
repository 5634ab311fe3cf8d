"""What runs have recorded about themselves, read from `ops.*`: each run with its tables and its checks."""

from __future__ import annotations

import datetime as dt
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from icefield.lake.duckdb_scan import connect, literal, reading, scan
from icefield.lake.ops import TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import duckdb

    from icefield.lake.embedded import EmbeddedLake

Row = dict[str, Any]
_TABLES = ("ops.runs", "ops.table_runs", "ops.checks")


def recorded_runs(lake: EmbeddedLake, *, run: str = "", label: str | None = None, last: int | None = None) -> list[Row]:
    """Runs as `ops.runs` has them, oldest first, each with its `tables` and `checks`: rows of the tables of that name.

    `run` is an id or the beginning of one; `last` are so many of the newest.
    """
    pointers = {name: location for name, location in lake.pointers().items() if name in _TABLES}
    if "ops.runs" not in pointers:
        return []
    with ExitStack() as stack:
        for location in pointers.values():
            stack.enter_context(reading(location))
        db = stack.enter_context(connect())
        found = _runs(db, pointers["ops.runs"], run, label, last)
        ids = [one["run"] for one in found]
        told = {name: _of_runs(db, pointers, name, ids) for name in ("ops.table_runs", "ops.checks")}
    return [
        {
            **one,
            "tables": [row for row in told["ops.table_runs"] if row["run"] == one["run"]],
            "checks": [row for row in told["ops.checks"] if row["run"] == one["run"]],
        }
        for one in found
    ]


def _runs(db: duckdb.DuckDBPyConnection, location: str, run: str, label: str | None, last: int | None) -> list[Row]:
    conditions = [f"starts_with(run, {literal(run)})", *([] if label is None else [f"label = {literal(label)}"])]
    newest = f"ORDER BY started_at DESC, run DESC {f'LIMIT {last:d}' if last is not None else ''}"
    return _rows(db, "ops.runs", location, f"WHERE {' AND '.join(conditions)} {newest}")[::-1]


def _of_runs(db: duckdb.DuckDBPyConnection, pointers: Mapping[str, str], name: str, runs: Sequence[str]) -> list[Row]:
    if name not in pointers or not runs:
        return []
    wanted = ", ".join(map(literal, runs))
    return _rows(db, name, pointers[name], f'WHERE run IN ({wanted}) ORDER BY run, "table"')


def _rows(db: duckdb.DuckDBPyConnection, name: str, location: str, chosen: str) -> list[Row]:
    """Rows with all columns that this version knows: a lake of an earlier one may lack some until its next run.

    Values are written into the query, and times fetched as numbers: for anything else DuckDB imports pandas and pytz.
    """
    there = {row[0] for row in db.execute(f"DESCRIBE SELECT * FROM {scan(location)}").fetchall()}
    kinds = {column: kind for column, (kind, _) in TABLES[name].items()}
    columns = (f'"{column}"' if column in there else f'{_EMPTY[kind]} AS "{column}"' for column, kind in kinds.items())
    fetched = (f'epoch_us("{column}")' if kind == "timestamp" else f'"{column}"' for column, kind in kinds.items())
    source = f"SELECT {', '.join(columns)} FROM {scan(location)}"
    found = db.execute(f"SELECT {', '.join(fetched)} FROM ({source}) {chosen}").fetchall()
    return [{column: _value(kinds[column], value) for column, value in zip(kinds, row, strict=True)} for row in found]


_EMPTY = {"string": "''", "long": "NULL::BIGINT", "double": "NULL::DOUBLE", "timestamp": "NULL::TIMESTAMPTZ"}


def _value(kind: str, value: Any) -> Any:
    if kind != "timestamp" or value is None:
        return value
    return dt.datetime.fromtimestamp(value // 1_000_000, dt.UTC).replace(microsecond=value % 1_000_000)
