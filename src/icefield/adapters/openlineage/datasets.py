"""Tables and sources as OpenLineage's datasets, by its naming conventions.

An Iceberg table is named by its location, as every engine finds it there; its name in the catalog is a symlink.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from icefield.adapters.openlineage.facets import facet
from icefield.declare import Files
from icefield.declare.topic_sources import Topics
from icefield.graph import quarantine_of
from icefield.lake import metadata as meta
from icefield.lake.catalog import LAKE
from icefield.lake.embedded import EmbeddedLake

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from icefield.adapters.openlineage.facets import Json
    from icefield.graph import Edge, Node
    from icefield.graph.column_lineage import Origin
    from icefield.lake.metadata import Metadata
    from icefield.project import Project
    from icefield.run.events import TableOutcome


def located(location: str) -> Json:
    """Namespace and name of a place: `file` and its path, or the bucket and the key in it."""
    scheme, separator, rest = location.partition("://")
    if not separator or scheme == "file":
        return {"namespace": "file", "name": (rest if separator else location).removeprefix("file:")}
    host, _, path = rest.partition("/")
    return {"namespace": f"{scheme}://{host}", "name": path}


class Datasets:
    """The datasets of one project."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._lake = EmbeddedLake(project.profile.lake)

    # -- what a table reads

    def inputs(self, node: Node, versions: Mapping[str, Any] | None = None) -> list[Json]:
        """What a table is made of; `versions` are those of tables."""
        found: dict[tuple[str, str], Json] = {}
        for edge in node.edges:
            if (given := self._input(edge, versions or {})) is not None:
                found.setdefault((given["namespace"], given["name"]), given)
        return list(found.values())

    def _input(self, edge: Edge, versions: Mapping[str, Any]) -> Json | None:
        if edge.table is not None:
            version = versions.get(edge.table)
            return self.table(edge.table, version.snapshot if version is not None else None)
        if (name := self._name(edge)) is None:
            return None
        assert edge.source is not None
        fields = [{"name": column.name, "type": column.type} for column in edge.source.schema]
        return {**name, "facets": facet("schema", fields=fields)}

    def _name(self, edge: Edge) -> Json | None:
        """Namespace and name of an input; None for rows that the project itself makes."""
        if edge.table is not None:
            return located(str(self._lake.table_folder(edge.table)))
        match edge.source:
            case Files():
                return located(self._folder(edge.source))
            case Topics():
                return self._topic(edge.source)
        return None

    def _folder(self, source: Files) -> str:
        """The folder in which all files of a source are."""
        fixed = os.path.dirname(source.glob.partition("*")[0])  # noqa: PTH120 - of a pattern, which may be an address
        return fixed if "://" in fixed else os.path.normpath(self._project.root / fixed)

    def _topic(self, source: Topics) -> Json:
        kafka = self._project.profile.kafka
        if kafka.recording is not None:
            return located(str(kafka.recording / source.topic))
        return {"namespace": f"kafka://{kafka.brokers.split(',')[0].strip()}", "name": source.topic}

    # -- tables

    def table(self, name: str, snapshot: int | None = None) -> Json:
        """A table; with a snapshot, as of that."""
        warehouse = located(str(self._lake.warehouse))
        link = {"namespace": _uri(warehouse), "name": name, "type": "TABLE"}
        catalog = {"framework": "iceberg", "type": "jdbc", "name": LAKE, "warehouseUri": _uri(warehouse)}
        version = facet("version", datasetVersion=str(snapshot)) if snapshot is not None else {}
        told = {**facet("symlinks", identifiers=[link]), **facet("catalog", **catalog), **version}
        return {**located(str(self._lake.table_folder(name))), "facets": told}

    def outputs(self, node: Node, outcome: TableOutcome) -> list[Json]:
        """What a run published of a table: the table, and its quarantine if rows were sent there."""
        snapshot = outcome.state.version.snapshot if outcome.state is not None else None
        metadata = self._metadata(node.name, snapshot)
        written = {"rowCount": outcome.rows_added, **_written(metadata, snapshot)}
        table = self.table(node.name, snapshot)
        table["facets"] |= self._schema(outcome, metadata) | self._lineage(node, outcome)
        table["outputFacets"] = facet("outputStatistics", **written)
        if not outcome.rows_quarantined:
            return [table]
        aside = self.table(quarantine_of(node.name))
        return [table, {**aside, "outputFacets": facet("outputStatistics", rowCount=outcome.rows_quarantined)}]

    def _metadata(self, name: str, snapshot: int | None) -> Metadata | None:
        """The table's metadata as published, if the snapshot is still in it."""
        location = self._lake.pointers().get(name)
        found = meta.load(location, name) if location is not None else None
        return found if found is not None and meta.snapshot(found, snapshot) is not None else None

    def _schema(self, outcome: TableOutcome, metadata: Metadata | None) -> Json:
        if metadata is None:
            columns = outcome.state.columns if outcome.state is not None else ()
            return facet("schema", fields=[{"name": name, "type": kind} for name, kind in columns])
        current = metadata["current-schema-id"]
        fields = next(schema["fields"] for schema in metadata["schemas"] if schema["schema-id"] == current)
        return facet("schema", fields=[_field(field) for field in fields])

    def _lineage(self, node: Node, outcome: TableOutcome) -> Json:
        if outcome.lineage is None:
            return {}
        edges = {edge.parameter: name for edge in node.edges if (name := self._name(edge)) is not None}
        fields = {name: {"inputFields": _fields(edges, some)} for name, some in outcome.lineage.columns.items()}
        return facet("columnLineage", fields=fields, dataset=_fields(edges, outcome.lineage.rows))


def _fields(edges: Mapping[str, Json], origins: Iterable[Origin]) -> list[Json]:
    """Columns of inputs, each once with all that is done with it."""
    found: dict[tuple[str, str], list[Json]] = {}
    for origin in origins:
        if origin.parameter in edges:
            how = {"type": "DIRECT" if origin.is_direct else "INDIRECT", "subtype": origin.use}
            found.setdefault((origin.parameter, origin.column), []).append({**how, "masking": origin.masked})
    return [{**edges[parameter], "field": column, "transformations": how} for (parameter, column), how in found.items()]


def _field(field: Metadata) -> Json:
    comment = {"description": field["doc"]} if field.get("doc") else {}
    return {"name": field["name"], "type": meta.iceberg_type(field["type"]), **comment}


def _written(metadata: Metadata | None, snapshot: int | None) -> dict[str, int]:
    """Bytes and files that a snapshot added."""
    found = meta.snapshot(metadata, snapshot) if metadata is not None else None
    summary = found["summary"] if found is not None else {}
    names = {"size": "added-files-size", "fileCount": "added-data-files"}
    return {name: int(summary[key]) for name, key in names.items() if key in summary}


def _uri(place: Json) -> str:
    """A place in one text."""
    return f"file://{place['name']}" if place["namespace"] == "file" else f"{place['namespace']}/{place['name']}"
