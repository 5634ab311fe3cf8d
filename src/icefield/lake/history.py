"""The published versions of a table, from its metadata alone."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icefield.lake import metadata as meta

if TYPE_CHECKING:
    from icefield.lake.metadata import Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVersion:
    """One published version of a table: which run made it, what it changed, what it came to."""

    snapshot: int
    published_at: dt.datetime
    run: str
    operation: str
    rows_added: int
    rows_removed: int
    rows_total: int
    growth: int
    bytes_total: int
    files_total: int


def history(metadata: Metadata) -> tuple[TableVersion, ...]:
    """Every version that readers could see, oldest first; the inner steps of a run are counted into its version."""
    known = {entry["snapshot-id"]: entry for entry in metadata.get("snapshots", [])}
    versions: list[TableVersion] = []
    before: int | None = None
    for entry in metadata.get("snapshot-log", []):
        if (snapshot := known.get(entry["snapshot-id"])) is None:  # expired
            continue
        total = meta.records_in(snapshot["summary"])
        added = _added(known, snapshot, before)
        earlier = versions[-1].rows_total if versions else total - added  # what came before is not known any more
        versions.append(
            TableVersion(
                snapshot=snapshot["snapshot-id"],
                published_at=dt.datetime.fromtimestamp(entry["timestamp-ms"] / 1000, dt.UTC),
                run=snapshot["summary"].get(meta.RUN, ""),
                operation=snapshot["summary"]["operation"],
                rows_added=added,
                rows_removed=earlier + added - total,
                rows_total=total,
                growth=total - (versions[-1].rows_total if versions else 0),
                bytes_total=_count(snapshot, "total-files-size"),
                files_total=_count(snapshot, "total-data-files"),
            )
        )
        before = snapshot["snapshot-id"]
    return tuple(versions)


def _added(known: dict[int, Metadata], snapshot: Metadata, before: int | None) -> int:
    """Rows that a run added, as it counted them itself: Iceberg counts every row of a table that is written anew."""
    told = snapshot["summary"].get(meta.ROWS_ADDED)
    if told is not None:
        return int(told)
    return sum(_count(step, "added-records") for step in _steps(known, snapshot["snapshot-id"], before))


def _steps(known: dict[int, Metadata], last: int, before: int | None) -> list[Metadata]:
    """The snapshots of one publish: from its last back to the one before it."""
    steps = []
    found = known.get(last)
    while found is not None and found["snapshot-id"] != before:
        steps.append(found)
        found = known.get(found.get("parent-snapshot-id"))  # type: ignore[arg-type]  # the first one has none
    return steps


def _count(snapshot: Metadata, key: str) -> int:
    return int(snapshot["summary"].get(key, 0))
