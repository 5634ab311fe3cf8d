"""The columns of a seed as Spark DDL: dbt's types, and those that people write in `column_types`, in Spark's words."""

from __future__ import annotations

import re
from collections.abc import Mapping

from icefield.declare import format_columns, parse_columns
from icefield.errors import DeclarationError

#: Types of other databases that authors of portable projects use, in Spark's words.
_SPARKS = {
    "text": "STRING",
    "varchar": "STRING",
    "char": "STRING",
    "character varying": "STRING",
    "float8": "DOUBLE",
    "float4": "FLOAT",
    "double precision": "DOUBLE",
    "int8": "BIGINT",
    "int4": "INT",
    "int2": "SMALLINT",
    "bool": "BOOLEAN",
    "datetime": "TIMESTAMP",
    "timestamp without time zone": "TIMESTAMP",
    "timestamp with time zone": "TIMESTAMP",
    "timestamptz": "TIMESTAMP",
}
_SIZED = re.compile(r"((?:var)?char|character varying)\s*\(\s*\d+\s*\)", re.IGNORECASE)


def seed_schema(columns: Mapping[str, str], comments: Mapping[str, str]) -> tuple[str, str]:
    """The columns as DDL, or why there is none."""
    if not columns:
        return "", "the types of its columns are not known: declare all of them in column_types"
    found = []
    for name, kind in columns.items():
        comment = comments.get(name, "").replace("\\", "\\\\").replace("'", "\\'")
        quoted = "`" + name.replace("`", "``") + "`"
        found.append(f"{quoted} {_spark(kind)}" + (f" COMMENT '{comment}'" if comment else ""))
    try:
        return format_columns(parse_columns(", ".join(found))), ""
    except DeclarationError as problem:
        return "", f"its columns cannot be taken: {problem.what}"


def _spark(kind: str) -> str:
    return _SPARKS.get(kind.strip().lower(), "STRING" if _SIZED.fullmatch(kind.strip()) else kind)
