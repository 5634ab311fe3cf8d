"""Numbers, sizes and times as people read them."""

from __future__ import annotations

import datetime as dt
import re

_UNITS = ("B", "KB", "MB", "GB", "TB")
_LONG = (("day", 86400), ("hour", 3600), ("minute", 60))
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)?")
_LENGTHS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def number(value: int | None) -> str:
    """12345 -> 12,345."""
    return "" if value is None else f"{value:,}"


def plural(count: int, noun: str) -> str:
    """1 table, 2 tables."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size(count: float) -> str:
    """1536 -> 1.5 KB."""
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def seconds(value: float) -> str:
    """0.034 -> 34 ms; 3.25 -> 3.2 s; 95 -> 1 min 35 s; 3700 -> 1 h 1 min."""
    if value < 0.1:
        return f"{1000 * value:.0f} ms"
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def parse_duration(text: str) -> float:
    """The seconds of "500ms", "10s", "5m", "1h" or "7d"; a bare number is in seconds. ValueError for anything else."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is no duration such as 500ms, 10s, 5m, 1h or 7d")
    return float(found[1]) * _LENGTHS[found[2] or "s"]


def lasting(value: dt.timedelta) -> str:
    """2 days, 3:25:00 -> 2 days 3 hours: the two largest units."""
    told: list[str] = []
    left = int(value.total_seconds())
    for unit, length in (*_LONG, ("second", 1)):
        count, left = divmod(left, length)
        if count or (unit == "second" and not told):
            told.append(plural(count, unit))
    return " ".join(told[:2])


def moment(time: dt.datetime) -> str:
    """A time in UTC, to the second."""
    return time.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S")


def from_ms(value: int) -> dt.datetime:
    """Milliseconds since 1970 as a time."""
    return dt.datetime.fromtimestamp(value / 1000, dt.UTC)


def ago(value_ms: int, now_ms: int) -> str:
    """How long ago something was, roughly."""
    passed = max(0, (now_ms - value_ms) // 1000)
    for unit, length in _LONG:
        if passed >= length:
            return f"{plural(passed // length, unit)} ago"
    return "just now"
