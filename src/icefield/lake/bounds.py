"""Single values as Iceberg stores them in manifests, in bytes, and values of partitions, as people read them."""

from __future__ import annotations

import datetime as dt
import re
import struct
import uuid
from decimal import Context, Decimal
from typing import Any

_EPOCH = dt.datetime(1970, 1, 1)
_DECIMAL = re.compile(r"decimal\(\d+,\s*(\d+)\)")
#: Wide enough for every decimal that Iceberg has: nothing is rounded.
_EXACT = Context(prec=76)


def decode(kind: str, raw: bytes) -> Any:
    """The value that the bytes of a bound stand for, by the type of its column; what cannot be read stays bytes."""
    try:
        return _decoded(kind, raw)
    except (ValueError, OverflowError, struct.error):
        return raw


def _decoded(kind: str, raw: bytes) -> Any:
    if found := _DECIMAL.fullmatch(kind):
        return Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-int(found[1]), _EXACT)
    match kind:
        case "boolean":
            return raw != b"\0"
        case "int" | "long":
            return int.from_bytes(raw, "little", signed=True)
        case "float" | "double":
            return struct.unpack("<f" if len(raw) == 4 else "<d", raw)[0]
        case "string":
            return raw.decode()
        case "uuid":
            return str(uuid.UUID(bytes=raw))
        case "date" | "time" | "timestamp" | "timestamptz" | "timestamp_ns" | "timestamptz_ns":
            return _time(kind, int.from_bytes(raw, "little", signed=True))
        case _:
            return raw


def _time(kind: str, count: int) -> dt.date | dt.time:
    if kind == "date":
        return (_EPOCH + dt.timedelta(days=count)).date()
    moment = _EPOCH + dt.timedelta(microseconds=count // 1000 if kind.endswith("_ns") else count)
    if kind == "time":
        return moment.time()
    return moment.replace(tzinfo=dt.UTC) if kind.startswith("timestamptz") else moment


def partition_value(transform: str, kind: str, value: Any) -> Any:
    """The value of a partition, from a manifest or, in bytes, from a list of manifests; `kind` is its column's type.

    Years, months, days and hours are counted from 1970; they are given as text: `2026-08`.
    """
    counted = transform in ("year", "month", "day", "hour") or transform.startswith("bucket")
    if isinstance(value, bytes):
        value = decode("int" if counted else kind, value)
    return _period(transform, value) if isinstance(value, int) and counted else value


def _period(transform: str, count: int) -> Any:
    match transform:
        case "year":
            return f"{1970 + count:04}"
        case "month":
            return f"{1970 + count // 12:04}-{count % 12 + 1:02}"
        case "day":
            return (_EPOCH + dt.timedelta(days=count)).date()
        case "hour":
            return (_EPOCH + dt.timedelta(hours=count)).strftime("%Y-%m-%d %H:00")
        case _:
            return count
