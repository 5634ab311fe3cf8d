"""Bounds and values of partitions read as the values that were written; PyIceberg wrote the bytes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pyiceberg import types
from pyiceberg.conversions import to_bytes
from pyiceberg.transforms import DayTransform, HourTransform, MonthTransform, YearTransform

from icefield.lake.bounds import decode, partition_value

WIDEST = f"{'9' * 34}.9999"
AT = dt.datetime(2026, 8, 1, 10, 30, 0, 123456)


@pytest.mark.parametrize(
    ("kind", "written", "read"),
    [
        (types.BooleanType(), True, True),
        (types.BooleanType(), False, False),
        (types.IntegerType(), -7, -7),
        (types.LongType(), 2**62, 2**62),
        (types.FloatType(), 0.5, 0.5),
        (types.DoubleType(), -1.25, -1.25),
        (types.StringType(), "né", "né"),
        (types.BinaryType(), b"\x00\xff", b"\x00\xff"),
        (types.UUIDType(), UUID(int=5).bytes, str(UUID(int=5))),
        (types.DateType(), (AT.date() - dt.date(1970, 1, 1)).days, AT.date()),
        (types.DateType(), -1, dt.date(1969, 12, 31)),
        (types.TimeType(), 1_500_000, dt.time(0, 0, 1, 500_000)),
        (types.TimestampType(), round(AT.replace(tzinfo=dt.UTC).timestamp() * 1e6), AT),
        (types.TimestamptzType(), round(AT.replace(tzinfo=dt.UTC).timestamp() * 1e6), AT.replace(tzinfo=dt.UTC)),
        (types.DecimalType(10, 2), Decimal("-12.50"), Decimal("-12.50")),
        (types.DecimalType(38, 4), Decimal(WIDEST), Decimal(WIDEST)),
    ],
)
def test_a_bound_reads_as_it_was_written(kind: types.PrimitiveType, written: Any, read: Any) -> None:
    found = decode(str(kind), to_bytes(kind, written))
    assert found == read
    assert type(found) is type(read)


def test_a_bound_from_before_its_column_became_wider_is_read() -> None:
    assert decode("long", to_bytes(types.IntegerType(), -7)) == -7
    assert decode("double", to_bytes(types.FloatType(), 0.5)) == 0.5


@pytest.mark.parametrize(
    ("kind", "raw"), [("double", b"\x01"), ("date", b"\x7f" * 7), ("string", b"\xff"), ("new", b"x")]
)
def test_what_cannot_be_read_stays_as_it_is(kind: str, raw: bytes) -> None:
    assert decode(kind, raw) == raw


@pytest.mark.parametrize(
    ("name", "transform", "read"),
    [
        ("year", YearTransform(), "2026"),
        ("month", MonthTransform(), "2026-08"),
        ("day", DayTransform(), dt.date(2026, 8, 1)),
        ("hour", HourTransform(), "2026-08-01 10:00"),
    ],
)
def test_partitions_by_time_read_as_times(name: str, transform: Any, read: Any) -> None:
    kind = types.TimestampType()
    count = transform.transform(kind)(round(AT.replace(tzinfo=dt.UTC).timestamp() * 1e6))
    assert partition_value(name, "timestamp", count) == read, "from a manifest"
    assert partition_value(name, "timestamp", to_bytes(types.IntegerType(), count)) == read, "from a list of manifests"


def test_months_before_1970_are_months() -> None:
    assert partition_value("month", "date", -1) == "1969-12"


@pytest.mark.parametrize(
    ("transform", "kind", "value", "read"),
    [
        ("identity", "string", b"ann", "ann"),
        ("identity", "string", "ann", "ann"),
        ("identity", "long", 5, 5),
        ("truncate[10]", "decimal(10, 2)", b"\x04\xe2", Decimal("12.50")),
        ("bucket[16]", "string", b"\x03\x00\x00\x00", 3),
        ("day", "date", dt.date(2026, 8, 1), dt.date(2026, 8, 1)),
        ("void", "string", None, None),
    ],
)
def test_other_partitions_read_as_their_values(transform: str, kind: str, value: Any, read: Any) -> None:
    assert partition_value(transform, kind, value) == read
