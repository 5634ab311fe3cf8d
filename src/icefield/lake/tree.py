"""How Iceberg keeps a table: catalog entry, metadata file, snapshots, manifest lists, manifests and their files.

Everything is read from these files themselves and given as plain values; no row is read.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from icefield.errors import NoSuchTable
from icefield.lake import metadata as meta
from icefield.lake.bounds import decode, partition_value
from icefield.lake.manifests import ADDED, DELETED, EXISTING, records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from icefield.lake.embedded import EmbeddedLake
    from icefield.lake.metadata import Metadata

_STATUS = {EXISTING: "existing", ADDED: "added", DELETED: "deleted"}
_MANIFEST = {0: "data", 1: "deletes"}
_CONTENT = {0: "data", 1: "position deletes", 2: "equality deletes"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """What the catalog knows of a table: its name, and where its metadata is. A commit replaces this one line."""

    catalog: str
    database: str
    name: str
    metadata: str
    previous: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column; files name it by its id, so that it can be renamed."""

    id: int
    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataFile:
    """Everything about one state of a table, but its files: columns, partitioning, properties and snapshots."""

    path: str
    bytes: int
    format_version: int
    schema: int
    schemas: int
    columns: tuple[TableColumn, ...]
    partitioned_by: tuple[str, ...]
    properties: int
    current_snapshot: int | None
    snapshots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The least and the greatest value of a column in a file, of texts their beginnings; None where it is unknown."""

    column: str
    lower: Any
    upper: Any
    nulls: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRange:
    """The least and the greatest value of a part of the partitioning among the files of a manifest."""

    field: str
    lower: Any
    upper: Any
    nulls: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """A data file or delete file, as a manifest names it: a reader that needs none of its values does not open it."""

    status: str
    content: str
    path: str
    format: str
    rows: int
    bytes: int
    partition: Mapping[str, Any]
    bounds: tuple[Bound, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCounts:
    """How many files of a manifest have a status, and their rows."""

    files: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A list of files with their statistics; `more` of them are not among `files`."""

    path: str
    bytes: int
    content: str
    #: The snapshot that wrote it; later ones take it over as it is.
    added_by: int
    added: FileCounts
    existing: FileCounts
    deleted: FileCounts
    partitions: tuple[PartitionRange, ...]
    files: tuple[TableFile, ...]
    more: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestList:
    """The manifests that make up a snapshot."""

    path: str
    bytes: int
    manifests: tuple[Manifest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One version of the table's rows."""

    id: int
    parent: int | None
    current: bool
    published_at: dt.datetime
    run: str
    batch: str
    operation: str
    rows: int
    manifest_list: ManifestList


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTree:
    """A table from its catalog entry down to its files; the newest snapshots, and how many older ones there are."""

    entry: CatalogEntry
    metadata: MetadataFile
    snapshots: tuple[Snapshot, ...]
    older: int


def table_tree(lake: EmbeddedLake, table: str, *, snapshots: int = 3, files: int = 5) -> TableTree:
    """Reads the newest snapshots of a published table, and of each manifest the first files."""
    pointed = lake.catalog.entry(table)
    if pointed is None:
        raise NoSuchTable(f"the lake has no table `{table}`", remedy="icefield ls lists the tables")
    location, previous = pointed
    database, _, name = table.partition(".")
    metadata = meta.load(location, table)
    reading = _Reading(metadata, lake.warehouse, files)
    known = sorted(metadata.get("snapshots", []), key=_age)
    return TableTree(
        entry=CatalogEntry(
            catalog=lake.catalog.path.name,
            database=database,
            name=name,
            metadata=reading.path(location),
            previous=None if previous is None else reading.path(previous),
        ),
        metadata=reading.metadata_file(location),
        snapshots=tuple(reading.snapshot(one) for one in known[:snapshots]),
        older=max(0, len(known) - snapshots),
    )


def _age(snapshot: Metadata) -> tuple[int, int]:
    """Newest first."""
    return -snapshot.get("sequence-number", 0), -snapshot["timestamp-ms"]


class _Reading:
    """Reads the files of one table; each manifest once, though most belong to many snapshots."""

    def __init__(self, metadata: Metadata, warehouse: Path, files: int) -> None:
        self._metadata = metadata
        self._warehouse = warehouse
        self._files = files
        self._columns = {one.id: one for schema in metadata["schemas"] for one in _columns(schema["fields"])}
        self._specs = {spec["spec-id"]: spec["fields"] for spec in metadata["partition-specs"]}
        self._manifests: dict[str, Manifest] = {}

    def path(self, location: str) -> str:
        """A file as it is called within the warehouse."""
        path = meta.local_path(location)
        return path.relative_to(self._warehouse).as_posix() if path.is_relative_to(self._warehouse) else location

    def metadata_file(self, location: str) -> MetadataFile:
        metadata = self._metadata
        schema = metadata["current-schema-id"]
        fields = next(one["fields"] for one in metadata["schemas"] if one["schema-id"] == schema)
        current = metadata.get("current-snapshot-id")
        return MetadataFile(
            path=self.path(location),
            bytes=meta.local_path(location).stat().st_size,
            format_version=metadata["format-version"],
            schema=schema,
            schemas=len(metadata["schemas"]),
            columns=tuple(
                TableColumn(id=one["id"], name=one["name"], type=meta.iceberg_type(one["type"])) for one in fields
            ),
            partitioned_by=meta.partitioned_by(metadata),
            properties=len(metadata.get("properties", {})),
            current_snapshot=None if current == -1 else current,
            snapshots=len(metadata.get("snapshots", [])),
        )

    def snapshot(self, found: Metadata) -> Snapshot:
        summary = found["summary"]
        return Snapshot(
            id=found["snapshot-id"],
            parent=found.get("parent-snapshot-id"),
            current=found["snapshot-id"] == self._metadata.get("current-snapshot-id"),
            published_at=dt.datetime.fromtimestamp(found["timestamp-ms"] / 1000, dt.UTC),
            run=summary.get(meta.RUN, ""),
            batch=summary.get(meta.BATCH, ""),
            operation=summary["operation"],
            rows=meta.records_in(summary),
            manifest_list=self._list(found["manifest-list"]),
        )

    def _list(self, location: str) -> ManifestList:
        manifests = tuple(self._manifest(found) for found in records(location))
        size = meta.local_path(location).stat().st_size
        return ManifestList(path=self.path(location), bytes=size, manifests=manifests)

    def _manifest(self, found: Mapping[str, Any]) -> Manifest:
        location = found["manifest_path"]
        if location in self._manifests:
            return self._manifests[location]
        counts = {status: _counted(found, word) for status, word in _STATUS.items()}
        spec = self._specs[found["partition_spec_id"]]
        files = tuple(self._file(entry, spec) for entry in islice(records(location), self._files))
        self._manifests[location] = Manifest(
            path=self.path(location),
            bytes=found["manifest_length"],
            content=_MANIFEST[found.get("content", 0)],
            added_by=found["added_snapshot_id"],
            added=counts[ADDED],
            existing=counts[EXISTING],
            deleted=counts[DELETED],
            partitions=tuple(self._ranges(spec, found.get("partitions") or ())),
            files=files,
            more=max(0, sum(one.files for one in counts.values()) - len(files)),
        )
        return self._manifests[location]

    def _ranges(self, spec: Sequence[Metadata], found: Sequence[Mapping[str, Any]]) -> Iterator[PartitionRange]:
        for field, summary in zip(spec, found, strict=False):
            lower, upper = (self._part(field, summary[side]) for side in ("lower_bound", "upper_bound"))
            yield PartitionRange(field=field["name"], lower=lower, upper=upper, nulls=summary["contains_null"])

    def _part(self, field: Metadata, value: Any) -> Any:
        column = self._columns.get(field["source-id"])
        return None if value is None else partition_value(field["transform"], column.type if column else "", value)

    def _file(self, entry: Mapping[str, Any], spec: Sequence[Metadata]) -> TableFile:
        file = entry["data_file"]
        parts = zip(spec, file["partition"].values(), strict=False)
        return TableFile(
            status=_STATUS[entry["status"]],
            content=_CONTENT[file.get("content") or 0],
            path=self.path(file["file_path"]),
            format=file["file_format"].lower(),
            rows=file["record_count"],
            bytes=file["file_size_in_bytes"],
            partition={field["name"]: self._part(field, value) for field, value in parts},
            bounds=tuple(self._bounds(file)),
        )

    def _bounds(self, file: Mapping[str, Any]) -> Iterator[Bound]:
        lower, upper, nulls = (
            _keyed(file.get(f"{kind}s")) for kind in ("lower_bound", "upper_bound", "null_value_count")
        )
        for number in sorted({*lower, *upper} & self._columns.keys()):
            column = self._columns[number]
            least, most = (decode(column.type, raw[number]) if number in raw else None for raw in (lower, upper))
            yield Bound(column=column.name, lower=least, upper=most, nulls=nulls.get(number))


def _columns(fields: Sequence[Metadata], above: str = "") -> Iterator[TableColumn]:
    """Columns, and those inside of structs under their full names: the others have no bounds."""
    for field in fields:
        kind = field["type"]
        if isinstance(kind, str):
            yield TableColumn(id=field["id"], name=above + field["name"], type=kind)
        elif kind["type"] == "struct":
            yield from _columns(kind["fields"], f"{above}{field['name']}.")


def _counted(found: Mapping[str, Any], word: str) -> FileCounts:
    """The counts of one status; lists that older versions of Iceberg wrote call them otherwise, or have none."""
    files = found.get(f"{word}_files_count", found.get(f"{word}_data_files_count"))
    return FileCounts(files=files or 0, rows=found.get(f"{word}_rows_count") or 0)


def _keyed(pairs: Sequence[Mapping[str, Any]] | None) -> dict[int, Any]:
    """A map by column id, which Avro keeps as pairs."""
    return {pair["key"]: pair["value"] for pair in pairs or ()}
