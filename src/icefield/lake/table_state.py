"""A table's state as its table properties store it: cursors, consumed versions, fingerprints, what its checks know."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast, get_args

from icefield.graph.news import cursor_json, parse_cursor
from icefield.graph.state import PROMISE_RULES, Promise, TableState, Version
from icefield.lake import metadata as meta

if TYPE_CHECKING:
    from icefield.lake.metadata import Metadata


def table_state(name: str, metadata: Metadata) -> TableState:
    """Reads a table's state; a table that icefield did not write has an empty run."""
    properties = metadata.get("properties", {})
    cursor = properties.get("icefield.cursor", properties.get("icefield.files"))  # the older name
    inputs = json.loads(properties.get("icefield.inputs", "{}"))
    snapshot_id = metadata.get("current-snapshot-id")
    return TableState(
        name=name,
        version=Version(
            epoch=int(properties.get("icefield.epoch", 0)),
            number=int(properties.get("icefield.number", 0)),
            snapshot=None if snapshot_id in (None, -1) else snapshot_id,
        ),
        run=properties.get(meta.RUN, ""),
        fingerprint=properties.get("icefield.fingerprint", ""),
        checks_fingerprint=properties.get("icefield.checks-fingerprint", ""),
        rows=meta.total_records(metadata),
        columns=meta.schema_columns(metadata),
        published_ms=metadata["last-updated-ms"],
        inputs={table: Version(**version) for table, version in inputs.items()},
        cursor=parse_cursor(cursor) if cursor else None,
        repairs=int(properties.get("icefield.repairs", 0)),
        lineage=tuple(meta.lineage(metadata)),
        changes=int(properties["icefield.changes"]) if "icefield.changes" in properties else None,
        meddled=_meddled(metadata),
        amounts=json.loads(properties.get("icefield.amounts", "{}")),
        held=json.loads(properties.get("icefield.held", "{}")),
        beside="icefield.beside" in properties,
        promise=_promise(properties.get("icefield.promise", "")),
        origin="icefield.origin" in properties,
        keys=_counted(properties.get("icefield.keys", "")),
    )


def _counted(told: str) -> tuple[int, int] | None:
    keys, _, rows = told.partition(" ")
    return (int(keys), int(rows)) if keys.isdigit() and rows.isdigit() and int(rows) else None


def _promise(told: str) -> Promise:
    word, _, rules = told.partition(" ")
    known = word in get_args(Promise) and rules == str(PROMISE_RULES)
    return cast("Promise", word) if known else ""


def _meddled(metadata: Metadata) -> bool:
    """Whether another writer changed the table: after the last run only compactions may follow.

    A column that is dropped and added again has no value in any row, although no snapshot says so.
    """
    properties = metadata.get("properties", {})
    published = properties.get("icefield.snapshot")
    if published is None:
        return False
    if properties.get(meta.COLUMNS, told := meta.columns_digest(metadata)) != told:
        return True
    for snapshot_id, operation in meta.lineage(metadata):
        if str(snapshot_id) == published:
            return False
        if operation != "replace":
            return True
    return bool(published)


def state_properties(state: TableState) -> dict[str, str]:
    """The properties that store a state; the inverse of `table_state`."""
    properties = {
        meta.RUN: state.run,
        "icefield.fingerprint": state.fingerprint,
        "icefield.checks-fingerprint": state.checks_fingerprint,
        "icefield.epoch": str(state.version.epoch),
        "icefield.number": str(state.version.number),
        "icefield.repairs": str(state.repairs),
        "icefield.snapshot": "" if state.version.snapshot is None else str(state.version.snapshot),
        "icefield.inputs": json.dumps(
            {
                name: {"epoch": v.epoch, "number": v.number, "snapshot": v.snapshot}
                for name, v in sorted(state.inputs.items())
            }
        ),
    }
    if state.amounts:
        properties["icefield.amounts"] = json.dumps(dict(state.amounts))
    if state.held:
        properties["icefield.held"] = json.dumps(dict(state.held))
    if state.beside:
        properties["icefield.beside"] = "true"
    if state.promise:
        properties["icefield.promise"] = f"{state.promise} {PROMISE_RULES}"
    if state.changes is not None:
        properties["icefield.changes"] = str(state.changes)
    if state.cursor is not None:
        properties["icefield.cursor"] = cursor_json(state.cursor)
    if state.origin:
        properties["icefield.origin"] = "source_file"
    if state.keys is not None:
        properties["icefield.keys"] = f"{state.keys[0]} {state.keys[1]}"
    return properties


def version_properties(state: TableState) -> dict[str, str]:
    """The version of a table that no function makes (quarantine, changelog), by which consumers know it is new."""
    version = state.version
    return {meta.RUN: state.run, "icefield.epoch": str(version.epoch), "icefield.number": str(version.number)}


def as_ours(metadata: Metadata) -> Metadata:
    """Marks the current snapshot as icefield's own: a compaction is no foreign write."""
    if "icefield.snapshot" not in metadata.get("properties", {}):
        return metadata
    return with_property(metadata, "icefield.snapshot", str(metadata["current-snapshot-id"]))


def with_property(metadata: Metadata, key: str, value: str) -> Metadata:
    """Sets one table property."""
    return {**metadata, "properties": {**metadata.get("properties", {}), key: value}}
