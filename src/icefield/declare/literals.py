"""Python values as Spark SQL literals."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime

from icefield.declare.registry import caller
from icefield.errors import InvalidOption


def quoted(column: str) -> str:
    """A column's name in backticks; dots lead into structs."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in column.split("."))


def shown(value: object) -> str:
    """A value as a check's name says it."""
    return "null" if value is None else str(value)


def sql_literal(value: object) -> str:
    """A literal that means the same value to Spark; what has none is refused."""
    from decimal import Decimal  # noqa: PLC0415 - few checks need it, but every import would pay for it

    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return f"{value!r}D"
        case Decimal() if value.is_finite():
            return f"{value:f}"
        case str():
            escaped = value.replace("\\", "\\\\").replace("'", "\\'")
            return f"'{escaped}'"
        case datetime():
            at = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
            return f"TIMESTAMP'{at.isoformat(' ')}'"
        case date():
            return f"DATE'{value.isoformat()}'"
    raise InvalidOption(
        f"{value!r} ({type(value).__name__}) cannot be compared with a column",
        where=str(caller()),
        remedy="use text, a number, Decimal, date or datetime, or write the check with expect()",
    )
