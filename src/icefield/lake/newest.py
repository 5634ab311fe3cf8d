"""The newest value of a column of times: from Iceberg's column bounds or, with delete files, by a scan."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from icefield.lake import metadata as meta
from icefield.lake.duckdb_scan import connect, reading, scan
from icefield.lake.manifests import DELETED, records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from icefield.lake.metadata import Metadata

#: Types whose values are counted from 1970, with the microseconds in their unit.
_MICROSECONDS = {"timestamptz": 1, "timestamp": 1, "date": 86_400_000_000}


def can_be_read(metadata: Metadata, column: str, zone: str) -> bool:
    """Whether `newest_ms` knows the type of a column and the time zone, which may be one that only Java knows."""
    kind = dict(meta.schema_columns(metadata)).get(column)
    return kind in _MICROSECONDS and (kind == "timestamptz" or _is_known(zone))


def _is_known(zone: str) -> bool:
    try:
        return bool(ZoneInfo(zone).key)
    except (ZoneInfoNotFoundError, ValueError):
        return False


def newest_ms(location: str, column: str, zone: str) -> int | None:
    """The newest value of a column in milliseconds since 1970, None where there is none.

    `zone` is the session's time zone, in which dates and timestamps without a zone are.
    """
    metadata = meta.load(location)
    snapshot = meta.current_snapshot(metadata)
    if snapshot is None:
        return None
    field = next(field for field in meta.schema(metadata)["fields"] if field["name"] == column)
    bounds = None if meta.has_deletes(snapshot) else _upper_bounds(snapshot, field["id"])
    if bounds is None:
        found = _scanned(location, metadata, column)
    else:
        counts = (int.from_bytes(raw, "little", signed=True) for raw in bounds)
        found = max((count * _MICROSECONDS[field["type"]] // 1000 for count in counts), default=None)
    return found if found is None or field["type"] == "timestamptz" else _in_zone(found, zone)


def _upper_bounds(snapshot: Metadata, field: int) -> Sequence[bytes] | None:
    """The upper bounds of a column in every data file that has a value of it; None where a file does not say."""
    found = []
    for manifest in records(snapshot["manifest-list"]):
        for entry in records(manifest["manifest_path"]):
            if entry["status"] == DELETED:
                continue
            file = entry["data_file"]
            if (bound := _of_column(file.get("upper_bounds"), field)) is not None:
                found.append(bound)
            elif _of_column(file.get("null_value_counts"), field) != file["record_count"]:
                return None
    return found


def _of_column(pairs: Sequence[Any] | None, field: int) -> Any:
    """The entry of a column in a map by column id, which Avro keeps as pairs."""
    return next((pair["value"] for pair in pairs or () if pair["key"] == field), None)


def _scanned(location: str, metadata: Metadata, column: str) -> int | None:
    name = column.replace('"', '""')
    with reading(location, metadata), connect() as db:
        found = db.execute(f'SELECT epoch_ms(max("{name}")::TIMESTAMP) FROM {scan(location)}').fetchone()
    return None if found is None or found[0] is None else int(found[0])


def _in_zone(ms: int, zone: str) -> int:
    """The moment at which clocks of a zone show what UTC's show at another."""
    shown = dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=ms)
    moment = shown.replace(tzinfo=ZoneInfo(zone))
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)
