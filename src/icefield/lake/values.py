"""Values of rows as text: JSON that keeps numbers exact and times in ISO form."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


def json_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """A JSON array of objects, one row a line."""
    names = [json.dumps(column, ensure_ascii=False) for column in columns]
    lead = "[\n"
    for row in rows:
        yield (
            lead + "{" + ", ".join(f"{name}: {json_text(value)}" for name, value in zip(names, row, strict=True)) + "}"
        )
        lead = ",\n"
    yield "[]\n" if lead == "[\n" else "\n]\n"


def json_text(value: Any) -> str:
    """One value as JSON. Decimals are written digit by digit: they would lose some as a binary fraction."""
    match value:
        case Decimal():
            return format(value, "f") if value.is_finite() else "null"
        case float():
            return json.dumps(value) if math.isfinite(value) else "null"
        case dict():
            return (
                "{"
                + ", ".join(f"{json.dumps(str(k), ensure_ascii=False)}: {json_text(v)}" for k, v in value.items())
                + "}"
            )
        case list() | tuple():
            return "[" + ", ".join(json_text(item) for item in value) + "]"
        case None | bool() | int() | str():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return json.dumps(plain(value), ensure_ascii=False)


def plain(value: Any) -> str:
    """One value as a person reads it."""
    match value:
        case None:
            return ""
        case str():
            return value
        case bool():
            return str(value).lower()
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case dt.datetime() | dt.date() | dt.time():
            return _time(value)
        case Decimal():
            return format(value, "f")
        case dict() | list() | tuple():
            return json_text(value)
        case _:
            return str(value)


def _time(value: dt.datetime | dt.date | dt.time) -> str:
    return value.isoformat().replace("+00:00", "Z")
