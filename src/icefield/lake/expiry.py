"""Expires snapshots in a table's metadata: what `plan.upkeep` decides from, and what it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icefield.lake import metadata as meta
from icefield.plan.upkeep import History

if TYPE_CHECKING:
    from icefield.lake.metadata import Metadata
    from icefield.plan.upkeep import Kept

#: How many earlier metadata files are still listed after an expiry.
_LOGGED = 20


def history_of(metadata: Metadata) -> History | None:
    """The snapshots of a table, from which retention decides; None for a table without any."""
    current = meta.current_snapshot(metadata)
    if current is None:
        return None
    return History(
        current=current["snapshot-id"],
        snapshots=frozenset(entry["snapshot-id"] for entry in metadata["snapshots"]),
        log=tuple((entry["timestamp-ms"], entry["snapshot-id"]) for entry in metadata.get("snapshot-log", [])),
        lineage=tuple(snapshot_id for snapshot_id, _ in meta.lineage(metadata)),
        named=frozenset(ref["snapshot-id"] for ref in metadata.get("refs", {}).values()),
    )


def with_versions(metadata: Metadata, kept: Kept) -> Metadata:
    """Removes snapshots that retention does not keep from the metadata; data files are not touched."""
    snapshots = [entry for entry in metadata["snapshots"] if entry["snapshot-id"] in kept.snapshots]
    log = [{"snapshot-id": snapshot_id, "timestamp-ms": time} for time, snapshot_id in kept.log]
    told: Metadata = {
        key: [entry for entry in metadata[key] if entry["snapshot-id"] in kept.snapshots]
        for key in ("statistics", "partition-statistics")
        if key in metadata
    }
    files = metadata.get("metadata-log", [])[-_LOGGED:]
    return {**metadata, **told, "snapshots": snapshots, "snapshot-log": log, "metadata-log": files}
