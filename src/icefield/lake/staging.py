"""PyIceberg on a run's branch: what it commits stays in memory until Spark has to read it, or the run is published."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

    from icefield.lake.branch import Branch


def staging_catalog(branch: Branch) -> Catalog:
    """The tables of a branch for PyIceberg; no file and no database is written by its commits."""
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.exceptions import NoSuchTableError
    from pyiceberg.io import load_file_io
    from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
    from pyiceberg.table import CommitTableResponse, Table
    from pyiceberg.table.metadata import TableMetadataUtil, new_table_metadata
    from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
    from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata

    #: What was made of the metadata of tables, with that metadata: parsing takes longer the more snapshots there are.
    parsed: dict[str, tuple[dict[str, Any], TableMetadata]] = {}

    class StagingCatalog(NoopCatalog):
        def load_table(self, identifier: str | tuple[str, ...]) -> Table:
            name = _name(identifier)
            metadata, location = branch.staged_metadata(name), branch.staged_location(name)
            if metadata is None or location is None:
                raise NoSuchTableError(f"Table does not exist: {name}")
            known, model = parsed.get(name, (None, None))
            if model is None or known is not metadata:
                model = TableMetadataUtil.parse_obj(metadata)
                parsed[name] = metadata, model
            return self._table(name, model, location)

        def commit_table(
            self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
        ) -> CommitTableResponse:
            current = self.load_table(table.name())
            for requirement in requirements:
                requirement.validate(current.metadata)
            updated = update_table_metadata(
                current.metadata, updates, enforce_validation=False, metadata_location=current.metadata_location
            )
            location = current.metadata_location
            if updated != current.metadata:
                name, staged = _name(table.name()), _as_json(updated)
                location = branch.stage(name, staged)
                parsed[name] = staged, updated
            return CommitTableResponse(metadata=updated, metadata_location=location)  # type: ignore[call-arg]

        def create_table(
            self,
            identifier: str | tuple[str, ...],
            schema: Any,
            location: str | None = None,
            partition_spec: Any = UNPARTITIONED_PARTITION_SPEC,
            sort_order: Any = UNSORTED_SORT_ORDER,
            properties: Any = None,
        ) -> Table:
            assert location is not None
            made = new_table_metadata(
                self._convert_schema_if_needed(schema), partition_spec, sort_order, location, dict(properties or {})
            )
            branch.stage(_name(identifier), _as_json(made))
            return self.load_table(identifier)

        def _table(self, name: str, metadata: TableMetadata, location: str) -> Table:
            io = load_file_io({**self.properties, **metadata.properties}, location)
            return Table(tuple(name.split(".")), metadata, location, io, self)

    return StagingCatalog(branch.name)


def _name(identifier: str | tuple[str, ...]) -> str:
    return identifier if isinstance(identifier, str) else ".".join(identifier)


def _as_json(metadata: TableMetadata) -> dict[str, Any]:
    return dict(json.loads(metadata.model_dump_json()))
