"""Names of columns: those that a table may have, and how its declaration has to spell them."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from pyspark.sql.types import StringType

from icefield.declare import References, Unique
from icefield.declare.suggest import did_you_mean
from icefield.engine.definitions import stored_as
from icefield.errors import BadFunction, ContractBroken, InvalidName, SchemaChanged, UnknownColumn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.types import StructType

    from icefield.declare import Check
    from icefield.graph import Node


def require_once(node: Node, columns: Sequence[str]) -> None:
    """No two columns of what a function gives have the same name, however it is written."""
    times = Counter(name.lower() for name in columns)
    if several := [name for name in dict.fromkeys(columns) if times[name.lower()] > 1]:
        raise BadFunction(
            f"the function of {node.name} returns more than one column named {several[0]}",
            where=str(node.location),
            remedy='join on column names, join(other, ["id", ...]), or drop or rename one of the columns',
        )


def require_columns(node: Node, schema: StructType) -> None:
    """Columns that every engine can read, and every reader can name."""
    for field in schema:
        if "." in field.name or "`" in field.name:
            raise InvalidName(
                f"{node.name} has a column named `{field.name}`: dots and backticks are not allowed in column names",
                where=str(node.location),
                remedy=f'rename it: withColumnRenamed("{field.name}", "{re.sub("[.`]+", "_", field.name)}")',
            )
        if isinstance(field.dataType, StringType) and field.dataType.collation != "UTF8_BINARY":
            raise ContractBroken(
                f"the column {field.name} of {node.name} has the collation {field.dataType.collation}, which Iceberg"
                " cannot store",
                where=str(node.location),
                remedy="apply the collation where strings are compared, or store lower(...) of the column",
            )
    for column in node.volatile:
        _require_own(node, "volatile=", column, schema)


def require_same_columns(node: Node, have: StructType, given: StructType) -> None:
    """Code that is accepted without a rebuild has to fit the rows that stay."""
    former = {before: now for now, before in node.renamed.items()}
    old = {former.get(field.name, field.name): stored_as(field) for field in have}
    new = {field.name: stored_as(field) for field in given}
    if old != new:
        has = [f"{name} {kind}" for name, kind in old.items() if new.get(name) != kind]
        gives = [f"{name} {kind}" for name, kind in new.items() if old.get(name) != kind]
        raise SchemaChanged(
            f"the function of {node.name} returns {', '.join(gives) or 'nothing'}, but the table has"
            f" {', '.join(has) or 'nothing'}",
            where=str(node.location),
            remedy=f"rebuild the table: icefield run --select {node.name} --full-refresh",
        )


def require_spelling(node: Node, check: Check, schemas: Mapping[str, StructType]) -> None:
    """A check of whole tables names their columns as they do."""
    for table, column in _named(node, check):
        if table in schemas:
            _require_own(node, f"check `{check.name}`", column, schemas[table])


def _named(node: Node, check: Check) -> list[tuple[str, str]]:
    """The columns that a check of whole tables names, and of which table."""
    match check:
        case Unique():
            return [(node.name, column) for column in check.columns]
        case References():
            return [(table, check.column) for table in (check.of or node.name, check.to)]
        case _:
            return []


def _require_own(node: Node, what: str, column: str, schema: StructType) -> None:
    """Spark would find a column in any spelling, but not everyone who reads its files."""
    name = column.partition(".")[0]
    own = {known.lower(): known for known in schema.names}.get(name.lower())
    if own != name:
        told = "which the table does not have" if own is None else f"but the table spells it `{own}`"
        raise UnknownColumn(
            f"{what} of {node.name} refers to column `{column}`, {told}",
            where=str(node.location),
            remedy=did_you_mean(name, schema.names, all_of_them="columns") if own is None else f"write {own}",
        )
