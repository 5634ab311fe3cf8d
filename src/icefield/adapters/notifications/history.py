"""What the lake says of the runs before one: `ops.*` is all that notifications remember."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from icefield.adapters.notifications.notices import Before, Failure
from icefield.adapters.wording import code_of
from icefield.lake.duckdb_scan import connect, literal, scan

if TYPE_CHECKING:
    import duckdb

    from icefield.lake.embedded import EmbeddedLake

#: The runs before a run, or all where that one is not recorded, with their place in the order of their ends.
_EARLIER = """
CREATE TEMP TABLE earlier AS
WITH ended AS (SELECT run, status, error, row_number() OVER (ORDER BY finished_at, run) AS place FROM {runs})
SELECT * FROM ended WHERE place < coalesce((SELECT min(place) FROM ended WHERE run = ?), 1e18)
"""
_CHECKS = """
SELECT "table", "check", arg_max(c.status, place) FROM {checks} c JOIN earlier USING (run)
WHERE c.status <> 'deferred' GROUP BY ALL
"""
_SHARES = """
SELECT "table", arg_max(rows_quarantined / rows, place) FROM (
    SELECT t.*, place, rows_quarantined + rows_dropped
        + CASE WHEN action IN ('build', 'rebuild', 'refresh') THEN rows_total ELSE rows_added END AS rows
    FROM {table_runs} t JOIN earlier USING (run) WHERE t.status = 'published'
) WHERE rows > 0 GROUP BY ALL
"""


def before(lake: EmbeddedLake, run: str) -> Before:
    """What is known of the runs that ended before this one."""
    tables = {name: f"ops.{name}" for name in ("runs", "table_runs", "checks")}
    pointers = lake.pointers()
    if tables["runs"] not in pointers:
        return Before()
    places = {name: scan(pointers[table]) for name, table in tables.items() if table in pointers}
    with connect() as db:
        db.execute(_EARLIER.format(**places), [run])
        return Before(
            recorded=bool(_rows(db, f"SELECT 1 FROM {{runs}} WHERE run = {literal(run)}", places, "runs")),
            failure=_failure(db, places),
            checks={(table, check): status for table, check, status in _rows(db, _CHECKS, places, "checks")},
            shares=dict(_rows(db, _SHARES, places, "table_runs")),
        )


def _failure(db: duckdb.DuckDBPyConnection, places: dict[str, str]) -> Failure | None:
    """Why the last run failed."""
    last = db.execute("SELECT run, status, error FROM earlier ORDER BY place DESC LIMIT 1").fetchone()
    if last is None:
        return None
    run, status, error = last
    failed = f"SELECT \"table\" FROM {{table_runs}} WHERE run = {literal(run)} AND status = 'failed'"
    tables = frozenset(table for (table,) in _rows(db, failed, places, "table_runs"))
    if status == "published" and not tables:
        return None
    return ("died" if status == "died" else code_of(error), tables)


def _rows(db: duckdb.DuckDBPyConnection, query: str, places: dict[str, str], table: str) -> list[Any]:
    return db.execute(query.format(**places)).fetchall() if table in places else []
