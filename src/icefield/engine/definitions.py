"""Creates tables and lets them follow their declarations: columns, comments, partitions, names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icefield.engine.sql import quoted, text
from icefield.errors import SchemaChanged
from icefield.lake import metadata as meta
from icefield.plan.columns import is_wider, schema_changed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructField, StructType

    from icefield.engine.tables import Tables
    from icefield.graph import Node

PROPERTIES = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    **meta.MERGING,
}

_SMALL_INTEGERS = re.compile(r"\b(?:tiny|small)int\b(?!:)")


@dataclass(frozen=True, slots=True)
class Definitions:
    """Columns, comments and partitions of the tables of a run."""

    tables: Tables

    def create(
        self, table: str, schema: StructType, node: Node | None, comment: str = "", *, replace: bool = False
    ) -> None:
        """Makes a table on the branch, or makes it anew; its files go to folders of the run until it is published."""
        self.tables.branch.lake.catalog.add_namespace(self.tables.branch.name, table.split(".")[0])
        properties = {**PROPERTIES, **self.tables.branch.own_properties(table)}
        partitioned = f" PARTITIONED BY ({', '.join(node.partitioned_by)})" if node and node.partitioned_by else ""
        verb = "CREATE OR REPLACE" if replace else "CREATE"
        self.tables.sql(
            table,
            f"{verb} TABLE {self.tables.qualified(table)} ({_columns(schema, _comments(node))})"
            f" USING iceberg{partitioned}"
            f" LOCATION {text(str(self.tables.branch.lake.table_folder(table)))} COMMENT {text(comment)}"
            f" TBLPROPERTIES ({', '.join(f'{text(k)} = {text(v)}' for k, v in properties.items())})",
        )

    def ready(
        self,
        table: str,
        schema: StructType,
        node: Node | None,
        comment: str,
        *,
        remake: bool = False,
        renamed: Mapping[str, str] | None = None,
    ) -> None:
        """Makes a table, or gets it ready for rows of these columns; `remake`: made anew where it is another now."""
        if table not in self.tables.branch.base:
            self.create(table, schema, node, comment)
            return
        self.tables.branch.prepare(table)
        self.rename(table, schema, (node.renamed if node else {}) if renamed is None else renamed)
        if remake and not (self.fits(table, schema) and self.is_laid_out(table, node)):
            self.create(table, schema, node, comment, replace=True)
        else:
            self.evolve(table, schema, node)
            self.comment(table, node, comment)

    def rename(self, table: str, schema: StructType, renamed: Mapping[str, str]) -> None:
        """Gives columns their new names, new name -> old name, where they still have the old ones."""
        now = self.tables.spark_schema(table).names if renamed else []
        for new, old in renamed.items():
            if old in now and new not in now and new in schema.names:
                self.tables.sql(
                    table, f"ALTER TABLE {self.tables.qualified(table)} RENAME COLUMN {quoted(old)} TO {quoted(new)}"
                )

    def is_laid_out(self, table: str, node: Node | None) -> bool:
        declared = node.partitioned_by if node else ()
        return {part.lower() for part in self.partitioned_by(table)} == {part.lower() for part in declared}

    def partitioned_by(self, table: str) -> tuple[str, ...]:
        """What a table is partitioned by, which may be something else than is declared by now."""
        metadata = self.tables.branch.staged_metadata(table)
        return () if metadata is None else meta.partitioned_by(metadata)

    def fits(self, table: str, schema: StructType) -> bool:
        """Whether rows of these columns can be written to the table as it is, with columns added at most."""
        try:
            refuse_change(table, self.tables.spark_schema(table), schema, None)
        except SchemaChanged:
            return False
        return True

    def evolve(self, table: str, schema: StructType, node: Node | None) -> None:
        """Adds new columns and widens types; a column that went or is another is refused with the difference."""
        now = self.tables.spark_schema(table)
        refuse_change(table, now, schema, node)
        known = {field.name for field in now}
        added = [field for field in schema if field.name not in known]
        if added:
            listed = ", ".join(_column(field.name, field.dataType.simpleString(), _comments(node)) for field in added)
            self.tables.sql(table, f"ALTER TABLE {self.tables.qualified(table)} ADD COLUMNS ({listed})")
        types = {field.name: field.dataType.simpleString() for field in now}
        for field in schema:
            if is_wider(types.get(field.name, ""), stored_as(field)):
                change = f"ALTER COLUMN {quoted(field.name)} TYPE {stored_as(field)}"
                self.tables.sql(table, f"ALTER TABLE {self.tables.qualified(table)} {change}")

    def comment(self, table: str, node: Node | None, comment: str) -> None:
        """Lets the table have the comments that are declared now."""
        metadata = self.tables.branch.staged_metadata(table)
        assert metadata is not None
        if comment != metadata["properties"].get("comment", ""):
            self.tables.sql(table, f"COMMENT ON TABLE {self.tables.qualified(table)} IS {text(comment)}")
        declared = _comments(node)
        for column, told in meta.column_comments(metadata).items():
            if declared.get(column, told) != told:
                changed = f"ALTER COLUMN {quoted(column)} COMMENT {text(declared[column])}"
                self.tables.sql(table, f"ALTER TABLE {self.tables.qualified(table)} {changed}")


def refuse_change(table: str, now: StructType, wanted: StructType, node: Node | None) -> None:
    """Refuses what stored rows cannot follow."""
    types = {field.name: stored_as(field) for field in wanted}
    gone = [field.name for field in now if field.name not in types]
    told = [f"{field.name} {field.dataType.simpleString()} was removed" for field in now if field.name in gone]
    told += [
        f"{field.name} was {kind} and is now {types[field.name]}"
        for field in now
        if types.get(field.name, kind := field.dataType.simpleString()) != kind
        and not is_wider(kind, types[field.name])
    ]
    if told:
        added = {name: kind for name, kind in types.items() if name not in now.names}
        raise schema_changed(node, told, gone, added, table)


def stored_as(field: StructField) -> str:
    """The type that Iceberg keeps a column as: it knows no smaller integers than INT."""
    return _SMALL_INTEGERS.sub("int", field.dataType.simpleString())


def _columns(schema: StructType, comments: Mapping[str, str]) -> str:
    return ", ".join(_column(field.name, field.dataType.simpleString(), comments) for field in schema)


def _column(name: str, kind: str, comments: Mapping[str, str]) -> str:
    comment = f" COMMENT {text(comments[name])}" if comments.get(name) else ""
    return f"{quoted(name)} {kind}{comment}"


def _comments(node: Node | None) -> dict[str, str]:
    if node is None:
        return {}
    declared = [*(node.source.columns if node.source else ()), *(node.columns or ())]
    return {**{column.name: column.comment for column in declared}, **node.comments}
