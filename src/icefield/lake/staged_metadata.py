"""The metadata of a table while a run works on it: prepared for the run's branch, and finished to be published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icefield.lake import metadata as meta

if TYPE_CHECKING:
    from icefield.lake.metadata import Metadata

#: How many earlier metadata files a published one lists.
_LOGGED = 100


def prepare(base: Metadata, run: str) -> Metadata:
    """A copy of a table's metadata for a run's branch: the files that the run writes go to folders of its own.

    Its logs are empty, and its time long ago: Iceberg refuses to add to a log whose last entry is later than the
    clock, which may have stepped back. `finish` puts the logs of the base in again.
    """
    location = base["location"]
    own = {meta.DATA_PATH: f"{location}/data/{run}", meta.METADATA_PATH: f"{location}/metadata/{run}"}
    properties = {**meta.MERGING, **base.get("properties", {}), **own}
    return {**base, "properties": properties, "snapshot-log": [], "metadata-log": [], "last-updated-ms": 0}


def finish(
    staged: Metadata,
    base: Metadata | None,
    base_location: str | None,
    *,
    timestamp_ms: int,
    properties: dict[str, str],
    summary: dict[str, str] | None = None,
) -> Metadata:
    """The metadata to publish: the staged rows as one snapshot of the run, with one timestamp for all tables.

    Only these paths may differ from what Iceberg wrote: `last-updated-ms`, `snapshot-log`, `metadata-log`,
    `properties`; of the current snapshot `timestamp-ms`, what `summary` tells of the run, and, where the run took
    several commits, `parent-snapshot-id` and `summary`, which then stand for all of them.
    """
    current = staged.get("current-snapshot-id")
    changed = current not in (None, -1) and (base is None or current != base.get("current-snapshot-id"))
    log = list(base.get("snapshot-log", [])) if base else []
    snapshots = staged.get("snapshots", [])
    if changed:
        log.append({"snapshot-id": current, "timestamp-ms": timestamp_ms})
        inner = inner_snapshots(staged, base)
        gone = {one["snapshot-id"] for one in inner}
        last = _squashed(meta.snapshot(staged, current) or {}, inner)
        last = {**last, "timestamp-ms": timestamp_ms, "summary": {**last["summary"], **(summary or {})}}
        snapshots = [last if s["snapshot-id"] == current else s for s in snapshots if s["snapshot-id"] not in gone]
    stale = {k for k in staged.get("properties", {}) if properties and k.startswith(meta.PREFIX)}
    dropped = {meta.DATA_PATH, meta.METADATA_PATH, *stale}
    kept = {k: v for k, v in staged.get("properties", {}).items() if k not in dropped}
    if properties:
        properties = {**properties, meta.COLUMNS: meta.columns_digest(staged)}
    return {
        **staged,
        "last-updated-ms": timestamp_ms,
        "snapshots": snapshots,
        "snapshot-log": log,
        "metadata-log": _metadata_log(base, base_location),
        "properties": {**kept, **properties},
    }


def inner_snapshots(staged: Metadata, base: Metadata | None) -> list[Metadata]:
    """The intermediate snapshots of a run, newest first, which its last one replaces: a delete before its append, say.

    Appends alone stay as they are: reading between two versions finds each one's files by its snapshot id.
    """
    start = (base or {}).get("current-snapshot-id")
    last, *inner = meta.between(staged, start, staged.get("current-snapshot-id")) or [{}]
    operations = {one["summary"]["operation"] for one in (last, *inner) if one}
    return inner if operations != {"append"} else []


#: Prefixes of summary entries that count the commit itself, not the whole table.
_COUNTED = ("added-", "deleted-", "removed-", "changed-")


def _squashed(last: Metadata, inner: list[Metadata]) -> Metadata:
    """Squashes the snapshots of a run into the last one, whose summary then counts all of their commits."""
    if not inner:
        return last
    counted: dict[str, int] = {}
    for one in (last, *inner):
        for key, value in one["summary"].items():
            if key.startswith(_COUNTED) and value.isdigit():
                counted[key] = counted.get(key, 0) + int(value)
    told = {key: str(value) for key, value in counted.items()}
    replaced = all(one["summary"]["operation"] == "replace" for one in (last, *inner))  # compactions alone
    operation = "replace" if replaced else "overwrite"
    found = {**last, "summary": {**last["summary"], **told, "operation": operation}}
    parent = inner[-1].get("parent-snapshot-id")
    if parent is None:
        found.pop("parent-snapshot-id", None)
        return found
    return {**found, "parent-snapshot-id": parent}


def _metadata_log(base: Metadata | None, base_location: str | None) -> list[Metadata]:
    if base is None:
        return []
    entry = {"metadata-file": base_location, "timestamp-ms": base["last-updated-ms"]}
    return [*base.get("metadata-log", []), entry][-_LOGGED:]
