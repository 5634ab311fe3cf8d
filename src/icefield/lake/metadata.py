"""Reads Iceberg's metadata.json as plain JSON: its snapshots, its columns and what their summaries count.

The JSON itself is read and edited, never a model of it: going through a model drops fields it does not know.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icefield.errors import LakeDamaged

if TYPE_CHECKING:
    from collections.abc import Iterator


Metadata = dict[str, Any]
RUN = "icefield.run"
PREFIX = "icefield."
#: Digest of the columns when the table was last published.
COLUMNS = "icefield.columns"
#: How many rows a run added and removed, in the summary of its snapshot: a small table is written anew for a few.
ROWS_ADDED, ROWS_REMOVED = "icefield.rows-added", "icefield.rows-removed"
#: The batch that a run took in.
BATCH = "icefield.batch"
#: Many small manifests are merged into one: planning a read must not take longer the more runs there were.
MERGING = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "30"}
#: Where a run's own files go, so that a run that died leaves nothing that cannot be told apart.
DATA_PATH, METADATA_PATH = "write.data.path", "write.metadata.path"
#: The remedy for a missing file.
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


# -- snapshots


def current_snapshot(metadata: Metadata) -> Metadata | None:
    """The snapshot that readers see."""
    return snapshot(metadata, metadata.get("current-snapshot-id"))


def snapshot(metadata: Metadata, snapshot_id: int | None) -> Metadata | None:
    """One snapshot by its id."""
    if snapshot_id in (None, -1):
        return None
    return next((s for s in metadata.get("snapshots", []) if s["snapshot-id"] == snapshot_id), None)


def between(metadata: Metadata, start: int | None, end: int | None) -> list[Metadata]:
    """The snapshots from `end` back to, but without, `start`: newest first."""
    known = {entry["snapshot-id"]: entry for entry in metadata.get("snapshots", [])}
    found, some = known.get(end), []
    while found is not None and found["snapshot-id"] != start:
        some.append(found)
        found = known.get(found.get("parent-snapshot-id"))
    return some


def lineage(metadata: Metadata) -> Iterator[tuple[int, str]]:
    """Ids and operations of the current snapshot and its ancestors, newest first."""
    for entry in between(metadata, None, metadata.get("current-snapshot-id")):
        yield entry["snapshot-id"], entry["summary"]["operation"]


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
    """How many rows the last run appended; 0 if there was no run before it, or it did more than append."""
    last = current_snapshot(metadata)
    before = None if last is None else snapshot(metadata, last.get("parent-snapshot-id"))
    if last is None or before is None or last["summary"].get("operation") != "append":
        return 0
    folders = {one["manifest-list"].rpartition("/")[0] for one in (last, before)}  # each run has its own
    return int(last["summary"].get("added-records", 0)) if len(folders) > 1 else 0


def has_deletes(found: Metadata, kind: str = "delete-files") -> bool:
    """Whether a snapshot has delete files, or only those by value (`equality-deletes`), which PyIceberg cannot read."""
    return int(found["summary"].get(f"total-{kind}", 0)) > 0


# -- columns and partitions


def schema(metadata: Metadata) -> Metadata:
    """The current schema."""
    current = metadata["current-schema-id"]
    return next(schema for schema in metadata["schemas"] if schema["schema-id"] == current)


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
    """The comment of each column of the current schema."""
    return {field["name"]: field.get("doc", "") for field in schema(metadata)["fields"]}


def has_same_columns(one: Metadata, other: Metadata) -> bool:
    """Whether both have the same columns, apart from comments."""
    return bool(_undocumented(schema(one)["fields"]) == _undocumented(schema(other)["fields"]))


def has_current_columns(metadata: Metadata, found: Metadata) -> bool:
    """Whether a snapshot was written with the current schema, names included."""
    schemas = {schema["schema-id"]: schema["fields"] for schema in metadata["schemas"]}
    own = schemas.get(found.get("schema-id", metadata["current-schema-id"]))
    return own is None or _undocumented(own) == _undocumented(schema(metadata)["fields"])


def columns_digest(metadata: Metadata) -> str:
    """A digest of the current schema apart from comments, by which a change by another engine is noticed."""
    fields = json.dumps(_undocumented(schema(metadata)["fields"]), sort_keys=True)
    return hashlib.sha256(fields.encode()).hexdigest()[:16]


def _undocumented(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _undocumented(value) for key, value in content.items() if key != "doc"}
    return [_undocumented(value) for value in content] if isinstance(content, list) else content


def has_plain_partitions(metadata: Metadata) -> bool:
    """Whether PyIceberg can tell which partition a row belongs to; true of a table without partitions."""
    return all(_PLAIN_TRANSFORM.fullmatch(field["transform"]) for field in _partition_fields(metadata))


_PLAIN_TRANSFORM = re.compile(r"identity|year|month|day|hour|bucket\[\d+\]|truncate\[\d+\]")


def partitioned_by(metadata: Metadata) -> tuple[str, ...]:
    """The current partitioning as a declaration spells it: `day`, `months(paid_at)`, `bucket(16, id)`."""
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


def data_path(metadata: Metadata) -> str:
    """Where rows of a table on a run's branch are written."""
    return str(metadata["properties"][DATA_PATH])
