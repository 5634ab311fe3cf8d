"""Columns that a contract changes in a way that stored rows cannot follow: known before Spark starts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from icefield.errors import SchemaChanged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from icefield.graph import Node
    from icefield.graph.state import TableState

#: Types of Spark SQL, as declarations spell them, and what Iceberg keeps them as.
_STORED = {
    "BOOLEAN": "boolean",
    "TINYINT": "int",
    "SMALLINT": "int",
    "INT": "int",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "STRING": "string",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamptz",
    "TIMESTAMP_NTZ": "timestamp",
}
_NESTED = {"STRUCT": "struct", "ARRAY": "list", "MAP": "map"}
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
#: Types that Iceberg lets a column change to, as Iceberg and as Spark spell them; decimals may have more digits.
_WIDER = {("int", "long"), ("int", "bigint"), ("float", "double")}
_DIGITS = re.compile(r"decimal\((\d+), ?(\d+)\)")


def refuse_changed_columns(node: Node, state: TableState) -> None:
    """Refuses a contract that takes away or changes a column that the table has."""
    if node.columns is None:
        return
    declared = {column.name: _stored_as(column.type) for column in node.columns}
    former = {old: new for new, old in node.renamed.items()}
    stored = {former.get(name, name): kind for name, kind in state.columns}
    gone = [name for name in stored if name not in declared]
    other = [
        f"{name} was {kind} and is now {declared[name]}"
        for name, kind in stored.items()
        if declared.get(name) not in (None, kind) and name not in gone and not is_wider(kind, declared[name] or "")
    ]
    if gone or other:
        raise schema_changed(node, [*(f"{name} {stored[name]} was removed" for name in gone), *other], gone, declared)


def is_wider(before: str, after: str) -> bool:
    """Whether a type has every value that the one before it has, so that stored rows can follow."""
    old, new = _DIGITS.fullmatch(before), _DIGITS.fullmatch(after)
    if old and new:
        return int(old[1]) < int(new[1]) and old[2] == new[2]
    return (before, after) in _WIDER


def schema_changed(
    node: Node | None, told: Sequence[str], gone: Sequence[str], declared: Mapping[str, object], table: str = ""
) -> SchemaChanged:
    """The refusal of columns that stored rows cannot follow, with the ways out."""
    name = node.name if node else table
    renamed = ""
    if len(gone) == 1 and node is not None:
        (old,) = gone
        new = next(iter(declared), "new_name")
        renamed = f'; if a column was only renamed, declare table(..., renamed={{"{new}": "{old}"}})'
    return SchemaChanged(
        f"the columns of {name} are incompatible with the stored rows: {'; '.join(told)}",
        where=str(node.location) if node else table,
        remedy=f"restore the old columns, or rebuild the table and everything downstream: icefield run --select {name}+"
        f" --full-refresh{renamed}",
    )


def _stored_as(kind: str) -> str | None:
    """The type that Iceberg keeps a column as; None where that is not known here."""
    text = kind.replace(" ", "")
    if found := _DECIMAL.fullmatch(text):
        return f"decimal({found[1]}, {found[2]})"
    return _STORED.get(text) or _NESTED.get(text.partition("<")[0])
