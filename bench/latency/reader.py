"""Another process that reads a published table whenever it has changed, and notes what it saw when.

    python bench/latency/reader.py LAKE CATALOG OUTPUT

It asks the SQL catalog fifty times a second for the table's pointer, and reads the last minutes of the table with
PyIceberg when that has changed. A line of the output is `{"at": MICROSECONDS, "read": SECONDS, "last": {SENSOR:
MICROSECONDS}}`: when the rows were there, how long reading took, and the newest reading of each sensor among them. It
ends when its standard input does.
"""

from __future__ import annotations

import json
import select
import sqlite3
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

POLL_SECONDS = 0.02
#: Older minutes are not looked at: newest readings are not in them.
RECENT = timedelta(minutes=3)
NAMESPACE, TABLE = "metrics", "sensor_minutes"
POINTER = (
    "SELECT metadata_location FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
)


def pointer(database: Path, catalog: str) -> str | None:
    """Where the published table is now; None: there is none yet."""
    try:
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=5) as connection:
            found = connection.execute(POINTER, (catalog, NAMESPACE, TABLE)).fetchone()
    except sqlite3.OperationalError:
        return None  # the catalog is not there yet
    return str(found[0]) if found else None


def newest(at: str) -> dict[str, int]:
    """The newest reading of each sensor, as anyone with PyIceberg would ask for it."""
    import pyarrow.compute as pc
    from pyiceberg.expressions import GreaterThanOrEqual
    from pyiceberg.table import StaticTable

    since = (datetime.now(UTC) - RECENT).isoformat()
    table: Any = StaticTable.from_metadata(at)
    scan = table.scan(row_filter=GreaterThanOrEqual("minute", since), selected_fields=("sensor_id", "last_event_time"))
    rows = scan.to_arrow().group_by("sensor_id").aggregate([("last_event_time", "max")])
    times = pc.cast(rows["last_event_time_max"], "int64").to_pylist()
    return dict(zip(rows["sensor_id"].to_pylist(), times, strict=True))


def watch(lake: Path, catalog: str, output: Path) -> None:
    """Looks and reads until standard input ends."""
    seen = None
    with output.open("w", encoding="utf-8") as file:
        while not select.select([sys.stdin], [], [], POLL_SECONDS)[0]:
            at = pointer(lake / "catalog.db", catalog)
            if at is None or at == seen:
                continue
            begun = time.perf_counter()
            try:
                last = newest(at)
            except FileNotFoundError:  # superseded and removed meanwhile: the next look finds the new one
                continue
            seen = at
            now = time.time_ns() // 1000
            file.write(json.dumps({"at": now, "read": round(time.perf_counter() - begun, 4), "last": last}) + "\n")
            file.flush()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    watch(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
