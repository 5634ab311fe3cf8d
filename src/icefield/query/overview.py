"""`ops.tables`: what the pinned metadata says of every table, as a table, so that one query can compare all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from icefield.lake import metadata as meta

if TYPE_CHECKING:
    from collections.abc import Iterable

    import duckdb

    from icefield.query.pins import Pin

NAME = "ops.tables"
_COLUMNS = {
    "table": "VARCHAR",
    "run": "VARCHAR",
    "epoch": "BIGINT",
    "number": "BIGINT",
    "snapshot": "BIGINT",
    "rows": "BIGINT",
    "bytes": "BIGINT",
    "files": "BIGINT",
    "published_at": "TIMESTAMPTZ",
    "columns": "STRUCT(name VARCHAR, type VARCHAR, comment VARCHAR)[]",
    "comment": "VARCHAR",
    "metadata": "VARCHAR",
}


def create_overview(db: duckdb.DuckDBPyConnection, pins: Iterable[Pin]) -> None:
    """Makes `ops.tables` in DuckDB's memory."""
    columns = ", ".join(f'"{name}" {kind}' for name, kind in _COLUMNS.items())
    db.execute("CREATE SCHEMA IF NOT EXISTS ops")
    db.execute(f"CREATE TABLE {NAME} ({columns})")
    values = ", ".join("make_timestamptz(?)" if name == "published_at" else "?" for name in _COLUMNS)
    rows = [overview(pin) for pin in pins]
    if rows:
        placed = ", ".join(f"({values})" for _ in rows)
        db.execute(f"INSERT INTO {NAME} VALUES {placed}", [row[name] for row in rows for name in _COLUMNS])


def overview(pin: Pin) -> dict[str, Any]:
    """One table's row; `published_at` is in microseconds."""
    properties = pin.metadata.get("properties", {})
    found = meta.snapshot(pin.metadata, pin.snapshot)
    summary = found["summary"] if found is not None else {}
    logged = [e["timestamp-ms"] for e in pin.metadata.get("snapshot-log", []) if e["snapshot-id"] == pin.snapshot]
    own = properties if pin.is_current else {}  # an older snapshot's properties are gone with its metadata file
    return {
        "table": pin.table,
        "run": own.get(meta.RUN) or summary.get(meta.RUN, ""),
        "epoch": _number(own.get("icefield.epoch")),
        "number": _number(own.get("icefield.number")),
        "snapshot": pin.snapshot,
        "rows": meta.records_in(summary),
        "bytes": int(summary.get("total-files-size", 0)),
        "files": int(summary.get("total-data-files", 0)),
        "published_at": 1000 * (pin.metadata["last-updated-ms"] if pin.is_current else logged[-1]),
        "columns": columns(pin),
        "comment": properties.get("comment", ""),
        "metadata": pin.location,
    }


def columns(pin: Pin) -> list[dict[str, str]]:
    """Names, Iceberg types and comments of the columns at the pinned version."""
    found = meta.snapshot(pin.metadata, pin.snapshot)
    schema = pin.metadata["current-schema-id"]
    if found is not None and not pin.is_current:
        schema = found.get("schema-id", schema)
    fields = next(s["fields"] for s in pin.metadata["schemas"] if s["schema-id"] == schema)
    return [{"name": f["name"], "type": meta.iceberg_type(f["type"]), "comment": f.get("doc", "")} for f in fields]


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
