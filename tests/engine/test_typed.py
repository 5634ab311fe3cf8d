"""Columns of Parquet files in the declared types: a value is the same in both, or its row is malformed."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from icefield.engine.intake.files.typed import NoConversion, arrow_type, converted, require_conversion, spark_type

D = Decimal
NAIVE, ZONED = pa.timestamp("us"), pa.timestamp("us", "UTC")
AT = dt.datetime(2026, 8, 1, 10, 30)
UTC = AT.replace(tzinfo=dt.UTC)

#: What a file has, its type there, the declared type, and what comes of it; "wrong" is malformed.
CASES: list[tuple[Any, pa.DataType, str, Any]] = [
    (7, pa.int64(), "INT", 7),
    (2**31, pa.int64(), "INT", "wrong"),
    (200, pa.int64(), "TINYINT", "wrong"),
    (7, pa.int32(), "BIGINT", 7),
    (7, pa.uint8(), "INT", 7),
    (2.0, pa.float64(), "INT", 2),
    (2.5, pa.float64(), "INT", "wrong"),
    (float("nan"), pa.float64(), "INT", "wrong"),
    (1e300, pa.float64(), "BIGINT", "wrong"),
    (D("3.00"), pa.decimal128(10, 2), "INT", 3),
    (D("3.10"), pa.decimal128(10, 2), "INT", "wrong"),
    (3, pa.int64(), "DECIMAL(10,2)", D("3.00")),
    (10**9, pa.int64(), "DECIMAL(10,2)", "wrong"),
    (12.3, pa.float64(), "DECIMAL(12,2)", D("12.30")),
    (0.1 + 0.2, pa.float64(), "DECIMAL(12,2)", D("0.30")),
    (-21.150000000000002, pa.float64(), "DECIMAL(12,2)", D("-21.15")),
    (1.999, pa.float64(), "DECIMAL(12,2)", "wrong"),
    (1e11, pa.float64(), "DECIMAL(12,2)", "wrong"),
    (float("inf"), pa.float64(), "DECIMAL(12,2)", "wrong"),
    (D("1.2345"), pa.decimal128(10, 4), "DECIMAL(10,2)", "wrong"),
    (D("1.2300"), pa.decimal128(10, 4), "DECIMAL(10,2)", D("1.23")),
    (7, pa.int64(), "DOUBLE", 7.0),
    (0.5, pa.float32(), "DOUBLE", 0.5),
    (1e300, pa.float64(), "FLOAT", "wrong"),
    (7, pa.int64(), "STRING", "7"),
    ("7", pa.string(), "INT", 7),
    ("7.0", pa.large_string(), "INT", 7),
    ("seven", pa.string(), "INT", "wrong"),
    ("1.25", pa.string(), "DECIMAL(10,2)", D("1.25")),
    ("2026-08-01", pa.string(), "DATE", dt.date(2026, 8, 1)),
    (AT, NAIVE, "TIMESTAMP", UTC),
    (UTC, ZONED, "TIMESTAMP", UTC),
    (AT, NAIVE, "TIMESTAMP_NTZ", AT),
    (AT, pa.timestamp("ns"), "TIMESTAMP_NTZ", AT),
    (1, pa.timestamp("ns"), "TIMESTAMP_NTZ", "wrong"),
    (AT, NAIVE, "DATE", "wrong"),
    (dt.datetime(1969, 12, 31), NAIVE, "DATE", dt.date(1969, 12, 31)),
    (dt.date(2026, 8, 1), pa.date32(), "TIMESTAMP", dt.datetime(2026, 8, 1, tzinfo=dt.UTC)),
    (None, pa.null(), "DECIMAL(12,2)", None),
    ("x", pa.dictionary(pa.int32(), pa.string()), "STRING", "x"),
    ({"a": 1}, pa.struct([("a", pa.int32())]), "STRUCT<a: BIGINT>", {"a": 1}),
    ([1, 2], pa.list_(pa.int32()), "ARRAY<BIGINT>", [1, 2]),
]


@pytest.mark.parametrize(("value", "kind", "declared", "expected"), CASES, ids=lambda value: str(value))
def test_a_value_is_the_same_or_does_not_fit(value: Any, kind: pa.DataType, declared: str, expected: Any) -> None:
    good = pa.array([None, value, None], kind)
    found = converted(good, declared, "UTC")
    assert found.column.type == arrow_type(declared)
    wrong = isinstance(expected, str) and expected == "wrong"
    assert found.wrong.tolist() == [False, wrong, False]
    assert found.column.to_pylist() == [None, None if wrong else expected, None]


def test_times_without_a_zone_are_in_that_of_the_session() -> None:
    found = converted(pa.array([AT], NAIVE), "TIMESTAMP", "America/New_York")
    assert found.column.to_pylist() == [dt.datetime(2026, 8, 1, 14, 30, tzinfo=dt.UTC)]


@pytest.mark.parametrize(
    ("kind", "declared"),
    [
        (pa.list_(pa.int32()), "INT"),
        (pa.bool_(), "INT"),
        (pa.int64(), "TIMESTAMP"),
        (ZONED, "DATE"),
        (ZONED, "TIMESTAMP_NTZ"),
        (pa.struct([("a", pa.int32())]), "STRUCT<b: BIGINT, c: INT>"),
        (pa.binary(), "BIGINT"),
    ],
    ids=str,
)
def test_a_column_of_which_no_value_could_fit_is_refused_before_it_is_read(kind: pa.DataType, declared: str) -> None:
    with pytest.raises(NoConversion):
        require_conversion(kind, declared)


def test_an_undeclared_column_has_the_type_of_the_file() -> None:
    kinds = {
        pa.int32(): "INT", pa.uint64(): "DECIMAL(20,0)", pa.decimal128(9, 3): "DECIMAL(9,3)", ZONED: "TIMESTAMP",
        pa.timestamp("ns"): "TIMESTAMP_NTZ", pa.null(): "STRING", pa.large_string(): "STRING", pa.float64(): "DOUBLE",
        pa.dictionary(pa.int8(), pa.string()): "STRING", pa.date64(): "DATE",
    }  # fmt: skip
    assert {kind: spark_type(kind) for kind in kinds} == kinds
