"""Values of a cursor column: a database writes them as text, and they are compared as what they are."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal, InvalidOperation
from typing import Any
from zoneinfo import ZoneInfo

from icefield.errors import WrongCursor

Value = int | Decimal | dt.date | dt.datetime


def typed(text: str, kind: str, zone: str = "UTC") -> Value:
    """The value of a declared type that a text stands for; ValueError where it is none. Times without a zone are in
    the given one.
    """
    if kind == "DATE":
        return dt.date.fromisoformat(text)
    if kind in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        found = dt.datetime.fromisoformat(text)
        if kind == "TIMESTAMP_NTZ":
            if found.tzinfo is not None:
                raise ValueError(f"{text!r} has a time zone")
            return found
        return (found if found.tzinfo is not None else found.replace(tzinfo=ZoneInfo(zone))).astimezone(dt.UTC)
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text!r} is no number") from None
    if not number.is_finite():
        raise ValueError(f"{text!r} is not finite")
    if kind.startswith("DECIMAL"):
        return number
    if number != int(number):
        raise ValueError(f"{text!r} is no whole number")
    return int(number)


def is_above(one: Any, other: Any) -> bool:
    """Compares two values of the same type."""
    return bool(one > other)


def require_typed(text: str, kind: str, zone: str, column: str, relation: str, where: str) -> Value:
    """The highest value of a cursor column; refused where it is none of the declared type."""
    try:
        return typed(text, kind, zone)
    except (ValueError, OverflowError):
        raise WrongCursor(
            f"the highest value of the cursor column {column} of {relation} is {text!r}, which is not a valid {kind}",
            where=where,
            remedy="correct that row, read a view without it, or declare the column's true type",
        ) from None


def refuse_nulls(count: int, column: str, relation: str, where: str) -> None:
    """Refuses rows that no cursor could ever reach."""
    if count:
        raise WrongCursor(
            f"{count:,} {'row' if count == 1 else 'rows'} of {relation} {'has' if count == 1 else 'have'} NULL in the"
            f" cursor column {column}, so that they would never be taken in",
            where=where,
            remedy=f"read a view that gives them a value, such as coalesce({column}, created_at), or one without them",
        )
