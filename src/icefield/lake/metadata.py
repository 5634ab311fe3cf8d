"""Iceberg's metadata.json as plain JSON: reading a table's state from it, and finishing what a run staged.

The JSON itself is edited, never a model of it: going through a model drops fields it does not know.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from icefield.errors import LakeDamaged
from icefield.graph.news import cursor_json, parse_cursor
from icefield.graph.state import PROMISE_RULES, Promise, TableState, Version
from icefield.plan.upkeep import History, Kept

if TYPE_CHECKING:
    from collections.abc import Iterator


Metadata = dict[str, Any]

RUN = "icefield.run"
PREFIX = "icefield."
#: What the columns were when a table was last published.
COLUMNS = "icefield.columns"
#: How many rows a run added and removed, in the summary of its snapshot: a small table is written anew for a few.
ROWS_ADDED, ROWS_REMOVED = "icefield.rows-added", "icefield.rows-removed"
#: The batch that a run took in.
BATCH = "icefield.batch"
#: Many small manifests are merged into one: planning a read must not take longer the more runs there were.
MERGING = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "30"}
#: Where a run's own files go, so that a run that died leaves nothing that cannot be told apart.
DATA_PATH, METADATA_PATH = "write.data.path", "write.metadata.path"
_KEEP_METADATA_LOG, _KEEP_AFTER_UPKEEP = 100, 20
#: What to do about a file that is gone.
RESTORE = "restore the file from a backup (icefield never removes files in use); check for more with icefield doctor"


def local_path(location: str) -> Path:
    """The file behind a location, however an engine spelled it (`/x`, `file:/x`, `file:///x`)."""
    if location.startswith("file:"):
        return Path("/" + location.removeprefix("file:").lstrip("/"))
    return Path(location)


def load(location: str, table: str = "a table") -> Metadata:
    """Reads a metadata file; one that the catalog names and that is not there is damage."""
    try:
        return dict(json.loads(local_path(location).read_bytes()))
    except (OSError, ValueError) as error:
        raise LakeDamaged(
            f"the metadata of {table} cannot be read: {getattr(error, 'strerror', None) or error}",
            where=location,
            remedy=RESTORE,
        ) from error


def current_snapshot(metadata: Metadata) -> Metadata | None:
    """The snapshot that readers see."""
    return snapshot(metadata, metadata.get("current-snapshot-id"))


def snapshot(metadata: Metadata, snapshot_id: int | None) -> Metadata | None:
    """One snapshot by its id."""
    if snapshot_id in (None, -1):
        return None
    return next((s for s in metadata.get("snapshots", []) if s["snapshot-id"] == snapshot_id), None)


def schema_columns(metadata: Metadata) -> tuple[tuple[str, str], ...]:
    """Names and Iceberg types of the current schema."""
    fields = schema(metadata)["fields"]
    return tuple((f["name"], f["type"] if isinstance(f["type"], str) else f["type"]["type"]) for f in fields)


def iceberg_type(kind: Any) -> str:
    """An Iceberg type as text, nested ones in full."""
    if isinstance(kind, str):
        return kind
    match kind["type"]:
        case "struct":
            fields = (f"{field['name']}: {iceberg_type(field['type'])}" for field in kind["fields"])
            return f"struct<{', '.join(fields)}>"
        case "list":
            return f"list<{iceberg_type(kind['element'])}>"
        case _:
            return f"map<{iceberg_type(kind['key'])}, {iceberg_type(kind['value'])}>"


def column_comments(metadata: Metadata) -> dict[str, str]:
    """What is said of each column of the current schema."""
    return {field["name"]: field.get("doc", "") for field in schema(metadata)["fields"]}


def has_same_columns(one: Metadata, other: Metadata) -> bool:
    """Whether both have the same columns, whatever is said of them."""
    return bool(_undocumented(schema(one)["fields"]) == _undocumented(schema(other)["fields"]))


def _columns_digest(metadata: Metadata) -> str:
    fields = json.dumps(_undocumented(schema(metadata)["fields"]), sort_keys=True)
    return hashlib.sha256(fields.encode()).hexdigest()[:16]


def _undocumented(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _undocumented(value) for key, value in content.items() if key != "doc"}
    return [_undocumented(value) for value in content] if isinstance(content, list) else content


def schema(metadata: Metadata) -> Metadata:
    """The columns that a table has now."""
    current = metadata["current-schema-id"]
    return next(schema for schema in metadata["schemas"] if schema["schema-id"] == current)


def has_current_columns(metadata: Metadata, found: Metadata) -> bool:
    """Whether a snapshot was written with the columns that the table has now, names included."""
    schemas = {schema["schema-id"]: schema["fields"] for schema in metadata["schemas"]}
    own = schemas.get(found.get("schema-id", metadata["current-schema-id"]))
    return own is None or _undocumented(own) == _undocumented(schema(metadata)["fields"])


def is_partitioned(metadata: Metadata) -> bool:
    """Whether new rows go into partitions."""
    return bool(_partition_fields(metadata))


def partitioned_by(metadata: Metadata) -> tuple[str, ...]:
    """What new rows are laid out by, in the words of a declaration: `day`, `months(paid_at)`, `bucket(16, id)`."""
    names = dict(_field_names(schema(metadata)["fields"]))
    return tuple(_spelled(field["transform"], names[field["source-id"]]) for field in _partition_fields(metadata))


def _partition_fields(metadata: Metadata) -> list[Metadata]:
    specs = {spec["spec-id"]: spec["fields"] for spec in metadata["partition-specs"]}
    return [field for field in specs[metadata["default-spec-id"]] if field["transform"] != "void"]


def _field_names(fields: list[Metadata], above: str = "") -> Iterator[tuple[int, str]]:
    for field in fields:
        yield field["id"], above + field["name"]
        if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            yield from _field_names(field["type"]["fields"], f"{above}{field['name']}.")


def _spelled(transform: str, column: str) -> str:
    word, _, count = transform.rstrip("]").partition("[")
    if count:
        return f"{word}({count}, {column})"
    return column if word == "identity" else f"{word}s({column})"


def total_records(metadata: Metadata) -> int:
    """Rows in the current snapshot, from its summary."""
    found = current_snapshot(metadata)
    return 0 if found is None else records_in(found["summary"])


def records_at(metadata: Metadata, snapshot_id: int) -> int:
    """Rows in a snapshot, from its summary."""
    found = snapshot(metadata, snapshot_id)
    return 0 if found is None else records_in(found["summary"])


def total_files(metadata: Metadata) -> int:
    """Data files in the current snapshot, from its summary."""
    found = current_snapshot(metadata)
    return 0 if found is None else int(found["summary"].get("total-data-files", 0))


def records_in(summary: Metadata) -> int:
    """Rows of a snapshot: those in its data files, without those that its delete files take out."""
    return int(summary.get("total-records", 0)) - int(summary.get("total-position-deletes", 0))


def appended_last(metadata: Metadata) -> int:
    """How many rows the last run added to those of the one before; 0 where there is none, or it did more than that."""
    last = current_snapshot(metadata)
    before = None if last is None else snapshot(metadata, last.get("parent-snapshot-id"))
    if last is None or before is None or last["summary"].get("operation") != "append":
        return 0
    folders = {one["manifest-list"].rpartition("/")[0] for one in (last, before)}  # each run has its own
    return int(last["summary"].get("added-records", 0)) if len(folders) > 1 else 0


def has_deletes(found: Metadata, kind: str = "delete-files") -> bool:
    """Whether a snapshot has delete files, or only those by value (`equality-deletes`), which PyIceberg cannot read."""
    return int(found["summary"].get(f"total-{kind}", 0)) > 0


def table_state(name: str, metadata: Metadata) -> TableState:
    """A table's state as its metadata tells it; a table that icefield did not write has an empty run."""
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
        run=properties.get(RUN, ""),
        fingerprint=properties.get("icefield.fingerprint", ""),
        checks_fingerprint=properties.get("icefield.checks-fingerprint", ""),
        rows=total_records(metadata),
        columns=schema_columns(metadata),
        published_ms=metadata["last-updated-ms"],
        inputs={table: Version(**version) for table, version in inputs.items()},
        cursor=parse_cursor(cursor) if cursor else None,
        repairs=int(properties.get("icefield.repairs", 0)),
        lineage=tuple(_lineage(metadata)),
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
    """Whether the current rows are not those of the last run: only compactions may come after it.

    A column that is dropped and added again has no value in any row, although no snapshot says so.
    """
    properties = metadata.get("properties", {})
    published = properties.get("icefield.snapshot")
    if published is None:
        return False
    if properties.get(COLUMNS, told := _columns_digest(metadata)) != told:
        return True
    for snapshot_id, operation in _lineage(metadata):
        if str(snapshot_id) == published:
            return False
        if operation != "replace":
            return True
    return bool(published)


def _lineage(metadata: Metadata) -> Iterator[tuple[int, str]]:
    """The current snapshot and its ancestors, newest first, with what each of them did."""
    for entry in between(metadata, None, metadata.get("current-snapshot-id")):
        yield entry["snapshot-id"], entry["summary"]["operation"]


def between(metadata: Metadata, start: int | None, end: int | None) -> list[Metadata]:
    """The snapshots after one, back from another, newest first."""
    known = {entry["snapshot-id"]: entry for entry in metadata.get("snapshots", [])}
    found, some = known.get(end), []
    while found is not None and found["snapshot-id"] != start:
        some.append(found)
        found = known.get(found.get("parent-snapshot-id"))
    return some


def state_properties(state: TableState) -> dict[str, str]:
    """The inverse of `table_state`: what a table carries in its properties."""
    properties = {
        RUN: state.run,
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
    """What a table that no function makes carries, so that others can tell whether they have read it."""
    version = state.version
    return {RUN: state.run, "icefield.epoch": str(version.epoch), "icefield.number": str(version.number)}


def prepare(base: Metadata, run: str) -> Metadata:
    """A copy of a table's metadata for a run's branch: the files that the run writes go to folders of its own.

    Its logs are empty, and its time long ago: Iceberg refuses to add to a log whose last entry is later than the
    clock, which may have stepped back. `finish` puts the logs of the base in again.
    """
    location = base["location"]
    own = {DATA_PATH: f"{location}/data/{run}", METADATA_PATH: f"{location}/metadata/{run}"}
    properties = {**MERGING, **base.get("properties", {}), **own}
    return {**base, "properties": properties, "snapshot-log": [], "metadata-log": [], "last-updated-ms": 0}


def data_path(metadata: Metadata) -> str:
    """Where rows of a table on a run's branch are written."""
    return str(metadata["properties"][DATA_PATH])


def finish(
    staged: Metadata,
    base: Metadata | None,
    base_location: str | None,
    *,
    timestamp_ms: int,
    properties: dict[str, str],
    summary: dict[str, str] | None = None,
) -> Metadata:
    """What is published: the staged rows as one snapshot of the run, and one time for all tables.

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
        last = _squashed(snapshot(staged, current) or {}, inner)
        last = {**last, "timestamp-ms": timestamp_ms, "summary": {**last["summary"], **(summary or {})}}
        snapshots = [last if s["snapshot-id"] == current else s for s in snapshots if s["snapshot-id"] not in gone]
    stale = {k for k in staged.get("properties", {}) if properties and k.startswith(PREFIX)}
    dropped = {DATA_PATH, METADATA_PATH, *stale}
    kept = {k: v for k, v in staged.get("properties", {}).items() if k not in dropped}
    if properties:
        properties = {**properties, COLUMNS: _columns_digest(staged)}
    return {
        **staged,
        "last-updated-ms": timestamp_ms,
        "snapshots": snapshots,
        "snapshot-log": log,
        "metadata-log": _metadata_log(base, base_location),
        "properties": {**kept, **properties},
    }


def inner_snapshots(staged: Metadata, base: Metadata | None) -> list[Metadata]:
    """Snapshots of a run that its last one stands for, newest first: a delete that comes before its append, say.

    Appends alone stay as they are: who reads between two versions finds each one's files by its own id.
    """
    start = (base or {}).get("current-snapshot-id")
    last, *inner = between(staged, start, staged.get("current-snapshot-id")) or [{}]
    operations = {one["summary"]["operation"] for one in (last, *inner) if one}
    return inner if operations != {"append"} else []


#: What a snapshot's summary counts of its own commit, not of the table.
_COUNTED = ("added-", "deleted-", "removed-", "changed-")


def _squashed(last: Metadata, inner: list[Metadata]) -> Metadata:
    """The last snapshot of a run in place of all of them."""
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


def may_be_compacted(metadata: Metadata) -> bool:
    """Whether small files of a table can be written together by PyIceberg, as far as its metadata tells."""
    found = current_snapshot(metadata)
    if found is None:
        return False
    return metadata.get("format-version") == 2 and not has_deletes(found, "equality-deletes")


def history_of(metadata: Metadata) -> History | None:
    """The snapshots of a table, for whoever decides which of them stay; None where it has none."""
    current = current_snapshot(metadata)
    if current is None:
        return None
    return History(
        current=current["snapshot-id"],
        snapshots=frozenset(entry["snapshot-id"] for entry in metadata["snapshots"]),
        log=tuple((entry["timestamp-ms"], entry["snapshot-id"]) for entry in metadata.get("snapshot-log", [])),
        lineage=tuple(snapshot_id for snapshot_id, _ in _lineage(metadata)),
        named=frozenset(ref["snapshot-id"] for ref in metadata.get("refs", {}).values()),
    )


def with_versions(metadata: Metadata, kept: Kept) -> Metadata:
    """A table without the snapshots that do not stay; its files are not touched."""
    snapshots = [entry for entry in metadata["snapshots"] if entry["snapshot-id"] in kept.snapshots]
    log = [{"snapshot-id": snapshot_id, "timestamp-ms": time} for time, snapshot_id in kept.log]
    told: Metadata = {
        key: [entry for entry in metadata[key] if entry["snapshot-id"] in kept.snapshots]
        for key in ("statistics", "partition-statistics")
        if key in metadata
    }
    files = metadata.get("metadata-log", [])[-_KEEP_AFTER_UPKEEP:]
    return {**metadata, **told, "snapshots": snapshots, "snapshot-log": log, "metadata-log": files}


def as_ours(metadata: Metadata) -> Metadata:
    """A table whose current snapshot has the rows of its last run: a compaction of them is no change by others."""
    if "icefield.snapshot" not in metadata.get("properties", {}):
        return metadata
    return with_property(metadata, "icefield.snapshot", str(metadata["current-snapshot-id"]))


def with_property(metadata: Metadata, key: str, value: str) -> Metadata:
    """A table with another value of one of its properties."""
    return {**metadata, "properties": {**metadata.get("properties", {}), key: value}}


def _metadata_log(base: Metadata | None, base_location: str | None) -> list[Metadata]:
    if base is None:
        return []
    entry = {"metadata-file": base_location, "timestamp-ms": base["last-updated-ms"]}
    return [*base.get("metadata-log", []), entry][-_KEEP_METADATA_LOG:]


def as_of(metadata: Metadata, timestamp_ms: int) -> int | None:
    """The snapshot that was current at a time, None if the table had none yet."""
    found = None
    for entry in metadata.get("snapshot-log", []):
        if entry["timestamp-ms"] <= timestamp_ms:
            found = entry["snapshot-id"]
    return found


def run_published_at(metadata: Metadata, run: str) -> int | None:
    """When a run appended to this table, from its snapshots' summaries; None if it never did."""
    for entry in metadata.get("snapshots", []):
        if entry["summary"].get(RUN) == run:
            return int(entry["timestamp-ms"])
    return None
