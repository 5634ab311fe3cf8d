"""Tables and sources as asset specs: what Dagster shows of them before anything has run."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg

from icefield.adapters.dagster.names import path_of, source_path, tag_names
from icefield.declare import Column, Debezium, Files, Topics
from icefield.errors import IcefieldError
from icefield.lake.embedded import EmbeddedLake
from icefield.query.overview import columns
from icefield.query.pins import pin_now

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from icefield.adapters.dagster.partitions import Partitions
    from icefield.declare import Source
    from icefield.graph import Node
    from icefield.project import Project
    from icefield.query import Pin

#: Layers that have a picture of their own in Dagster.
_MEDALS = ("bronze", "silver", "gold")
_SOURCES = "sources"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The asset keys of a project's tables and sources."""

    prefix: tuple[str, ...] = ()
    tables: frozenset[str] = frozenset()

    def table(self, name: str) -> dg.AssetKey:
        """The key of a table."""
        return dg.AssetKey(list(path_of(name, self.prefix)))

    def sources(self, node: Node) -> dict[dg.AssetKey, Source]:
        """The keys of what a table takes rows from."""
        found: dict[dg.AssetKey, Source] = {}
        for edge in node.edges:
            if edge.source is not None and (path := source_path(edge.source, node.name)):
                apart = [_SOURCES] if ".".join(path) in self.tables else []  # seeds/ghosts.csv of seeds.ghosts
                found[dg.AssetKey([*self.prefix, *apart, *path])] = edge.source
        return found


def table_specs(project: Project, keys: Keys, partitions: Mapping[str, Partitions]) -> list[dg.AssetSpec]:
    """A spec for each table, in an order in which they can be made."""
    published = _published_columns(project)
    graph = project.graph
    return [
        _table_spec(graph[name], project, keys, partitions.get(name), published.get(name, ())) for name in graph.order
    ]


def source_specs(project: Project, keys: Keys, besides: Iterable[dg.AssetKey] = ()) -> list[dg.AssetSpec]:
    """A spec for each source, which somebody else fills; `besides`: those that are assets in their own right."""
    known = set(besides)
    found: dict[dg.AssetKey, dg.AssetSpec] = {}
    for name in project.graph.order:
        for key, source in keys.sources(project.graph[name]).items():
            if key not in known and key not in found:
                found[key] = _source_spec(key, source)
    return list(found.values())


def column_schema(found: Iterable[Column]) -> dg.TableSchema:
    """Columns with their types and comments."""
    return dg.TableSchema(
        [
            dg.TableColumn(
                one.name,
                one.type.lower(),
                description=one.comment or None,
                constraints=dg.TableColumnConstraints(nullable=one.nullable),
            )
            for one in found
        ]
    )


def columns_at(pin: Pin) -> tuple[Column, ...]:
    """The columns of a published table."""
    return tuple(Column(one["name"], one["type"], comment=one["comment"]) for one in columns(pin))


def _table_spec(
    node: Node,
    project: Project,
    keys: Keys,
    partitions: Partitions | None,
    published: tuple[Column, ...],
) -> dg.AssetSpec:
    layer = {node.schema} if node.schema in _MEDALS else set()
    return dg.AssetSpec(
        keys.table(node.name),
        deps=[*keys.sources(node), *map(keys.table, node.needs)],
        description=node.comment or None,
        group_name=node.schema,
        kinds={"iceberg", "spark", *layer},
        owners=list(node.owners),
        tags=tag_names(node.tags),
        code_version=node.fingerprint,
        partitions_def=partitions,
        metadata=_facts(node, project, published),
    )


def _facts(node: Node, project: Project, published: tuple[Column, ...]) -> dict[str, Any]:
    lake = EmbeddedLake(project.profile.lake)
    facts: dict[str, Any] = {
        "dagster/table_name": node.name,
        "dagster/storage_kind": "iceberg",
        "dagster/uri": lake.table_folder(node.name).as_uri(),
        "dagster/code_references": _code(node, project),
        "refresh": f"{node.refresh.kind}({', '.join(node.keys)})",
    }
    if node.partitioned_by:
        facts["partitioned by"] = ", ".join(node.partitioned_by)
    if known := node.columns or published:
        facts["dagster/column_schema"] = column_schema(known)
    return facts


def _code(node: Node, project: Project) -> dg.CodeReferencesMetadataValue:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # pinned, so it cannot change under us
        place = dg.LocalFileCodeReference(
            file_path=str(project.root / node.location.file), line_number=node.location.line, label=str(node.location)
        )
        return dg.CodeReferencesMetadataValue(code_references=[place])


def _published_columns(project: Project) -> dict[str, tuple[Column, ...]]:
    """The columns that published tables have: not every table declares its own."""
    lake = EmbeddedLake(project.profile.lake)
    if not lake.exists or all(node.columns is not None for node in project.graph.nodes.values()):
        return {}
    try:
        return {name: columns_at(pin) for name, pin in pin_now(lake).items() if name in project.graph}
    except (
        IcefieldError,
        OSError,
    ):  # a lake that cannot be read is for runs to tell; the assets are there all the same
        return {}


def _source_spec(key: dg.AssetKey, source: Source) -> dg.AssetSpec:
    return dg.AssetSpec(
        key,
        description=f"`{source.name}`",
        group_name=_SOURCES,
        kinds=_kinds(source),
        metadata={"dagster/column_schema": column_schema(source.schema)} if source.schema else {},
    )


def _kinds(source: Source) -> set[str]:
    if isinstance(source, Files):
        suffix = source.path.rpartition(".")[2].lower()
        return {source.format or (suffix if suffix.isalnum() else "file")}
    if isinstance(source, Debezium):
        return {"debezium", "kafka"}
    return {"kafka"} if isinstance(source, Topics) else {source.kind}
