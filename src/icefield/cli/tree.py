"""`icefield table tree`: a table as Iceberg keeps it, from the catalog down to its files."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from icefield.cli import output
from icefield.cli.one_table import TableName, pin_at
from icefield.cli.opening import lake_at
from icefield.cli.options import HERE, Json, ProfileName, ProjectDir
from icefield.cli.output import TreeNode
from icefield.lake.tree import table_tree
from icefield.lake.values import plain
from icefield.words import moment, plural, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from icefield.lake.tree import (
        Bound,
        CatalogEntry,
        Manifest,
        MetadataFile,
        PartitionRange,
        Snapshot,
        TableFile,
        TableTree,
    )

#: Of so many columns the bounds are shown; JSON has all of them.
_BOUNDS = 4


def show_tree(
    name: TableName,
    *,
    snapshots: Annotated[
        int, typer.Option("--snapshots", metavar="N", min=1, help="How many snapshots, newest first.")
    ] = 3,
    files: Annotated[int, typer.Option("--files", metavar="N", min=0, help="How many files of each manifest.")] = 5,
    as_json: Json = False,
    project: ProjectDir = HERE,
    profile: ProfileName = None,
) -> None:
    """Show how Iceberg stores a table: catalog entry, metadata file, snapshots, manifests and data files.

    Paths are relative to the lake's warehouse folder. No rows are read.
    """
    table = pin_at(name, project, profile).table
    found = table_tree(lake_at(project, profile), table, snapshots=snapshots, files=files)
    if as_json:
        output.json(asdict(found))
    else:
        output.tree(_drawn(found))


def _drawn(found: TableTree) -> TreeNode:
    seen: set[str] = set()
    below = [_snapshot(snapshot, seen) for snapshot in found.snapshots]
    if found.older:
        below.append(TreeNode(title=f"{plural(found.older, 'older snapshot')}: --snapshots N shows more"))
    return _entry(found.entry, _metadata(found.metadata, below))


def _entry(entry: CatalogEntry, below: TreeNode) -> TreeNode:
    facts = [
        ("in", entry.catalog),
        ("database", entry.database),
        ("name", entry.name),
        ("metadata", entry.metadata),
        *([("previous", entry.previous)] if entry.previous else []),
    ]
    return TreeNode(title="catalog entry", facts=facts, below=[below])


def _metadata(file: MetadataFile, below: list[TreeNode]) -> TreeNode:
    columns = ", ".join(f"{column.name} {column.type}" for column in file.columns)
    schemas = f" (of {file.schemas} schemas)" if file.schemas > 1 else ""
    current = "none" if file.current_snapshot is None else str(file.current_snapshot)
    facts = [
        ("size", size(file.bytes)),
        ("format", f"version {file.format_version}"),
        ("schema", f"{file.schema}{schemas}: {columns}"),
        ("partitions", ", ".join(file.partitioned_by) or "none"),
        ("properties", f"{file.properties:,}"),
        ("snapshots", f"{file.snapshots:,}, current: {current}"),
    ]
    return TreeNode(title="metadata file", name=file.path, facts=facts, below=below)


def _snapshot(snapshot: Snapshot, seen: set[str]) -> TreeNode:
    facts = [
        ("published", f"{moment(snapshot.published_at)} UTC"),
        ("run", snapshot.run),
        ("batch", snapshot.batch),
        ("operation", snapshot.operation),
        ("rows", f"{snapshot.rows:,}"),
        ("parent", str(snapshot.parent or "")),
    ]
    found = snapshot.manifest_list
    listed = TreeNode(
        title="manifest list",
        name=found.path,
        facts=[("size", size(found.bytes)), ("holds", plural(len(found.manifests), "manifest"))],
        below=[_manifest(manifest, seen) for manifest in found.manifests],
    )
    name = f"{snapshot.id}{' (current)' if snapshot.current else ''}"
    return TreeNode(title="snapshot", name=name, facts=[fact for fact in facts if fact[1]], below=[listed])


def _manifest(manifest: Manifest, seen: set[str]) -> TreeNode:
    """A manifest; one that a newer snapshot has as well is only named."""
    if manifest.path in seen:
        return TreeNode(title="manifest", name=f"{manifest.path}: the same as above")
    seen.add(manifest.path)
    facts = [("size", size(manifest.bytes)), _counts(manifest)]
    if manifest.partitions:
        facts.append(("partitions", ", ".join(f"{one.field} {_range(one)}" for one in manifest.partitions)))
    below = [_file(file) for file in manifest.files]
    if manifest.more:
        below.append(TreeNode(title=f"{plural(manifest.more, 'more file')}: --files N shows more"))
    return TreeNode(title="manifest", name=manifest.path, facts=facts, below=below)


def _counts(manifest: Manifest) -> tuple[str, str]:
    """How many files of a manifest have which status, and how many rows they have."""
    counts = {"added": manifest.added, "existing": manifest.existing, "deleted": manifest.deleted}
    told = [
        f"{count.files:,} {status}" + (f" ({plural(count.rows, 'row')})" if count.files else "")
        for status, count in counts.items()
    ]
    return ("data files" if manifest.content == "data" else "delete files"), ", ".join(told)


def _file(file: TableFile) -> TreeNode:
    facts = [
        ("holds", f"{plural(file.rows, 'row')}, {size(file.bytes)}, {file.status}"),
        ("partition", ", ".join(f"{name}={_text(value)}" for name, value in file.partition.items())),
        ("bounds", ", ".join(_bounds(file))),
    ]
    kind = "data file" if file.content == "data" else f"delete file ({file.content})"
    return TreeNode(title=kind, name=file.path, facts=[fact for fact in facts if fact[1]])


def _bounds(file: TableFile) -> Iterator[str]:
    for bound in file.bounds[:_BOUNDS]:
        nulls = f" ({bound.nulls:,} null)" if bound.nulls else ""
        yield f"{bound.column} {_range(bound)}{nulls}"
    if len(file.bounds) > _BOUNDS:
        yield plural(len(file.bounds) - _BOUNDS, "more column")


def _range(one: Bound | PartitionRange) -> str:
    lower, upper = _text(one.lower), _text(one.upper)
    return lower if lower == upper else f"{lower} to {upper}"


def _text(value: Any) -> str:
    """A value in one line; signs that would not be seen are spelled."""
    told = "null" if value is None else plain(value)
    return told if told.isprintable() else repr(told)[1:-1]
