"""Rows that repeat a key, by their order of arrival, whatever the type of the key and whatever a function did to it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from icefield.engine.checks.duplicates import late
from icefield.engine.origin import ARRIVAL, ROW
from projects import order, tiny

if TYPE_CHECKING:
    from pathlib import Path


def rows(*keys: Any, kind: pa.DataType | None = None) -> pa.Table:
    """One row for each key, in the order of arrival."""
    columns = {"k": pa.array(keys, kind), ARRIVAL: pa.array([0] * len(keys)), ROW: pa.array(range(len(keys)))}
    return pa.table(columns)


@pytest.mark.parametrize(
    ("keys", "kind", "expected"),
    [
        ([1, 2, 1, 1], pa.int64(), [2, 3]),
        ([None, None, 1], pa.int64(), []),
        (["a", "A", "a ", "a"], pa.string(), [3]),
        ([0.0, -0.0, 1.0], pa.float64(), [1]),
        ([float("nan"), float("nan")], pa.float64(), [1]),
        ([Decimal("1.00"), Decimal("1.00"), Decimal("1.01")], pa.decimal128(10, 2), [1]),
        ([b"\xff", b"\xff"], pa.binary(), [1]),
        ([True, False, True], pa.bool_(), [2]),
        ([dt.date(2026, 1, 1)] * 2, pa.date32(), [1]),
        ([[1, 2], [1, 2], [2, 1]], pa.list_(pa.int64()), [1]),
        ([], pa.int64(), []),
    ],
)
def test_the_first_arrival_of_a_key_stays(keys: list[Any], kind: pa.DataType, expected: list[int]) -> None:
    assert sorted(late(rows(*keys, kind=kind), ["k"], None)) == expected


def test_arrival_decides_and_not_the_place_in_the_table() -> None:
    table = pa.table({"k": [1, 1, 1], ARRIVAL: [1, 0, 0], ROW: [1, 9, 3]})
    assert sorted(late(table, ["k"], None)) == [0, 1]


def test_a_key_of_several_columns_repeats_only_as_a_whole() -> None:
    table = pa.table({"a": [1, 1, 2, 1], "b": ["x", "y", "x", "x"], ARRIVAL: [0] * 4, ROW: [1, 2, 3, 4]})
    assert list(late(table, ["a", "b"], None)) == [3]
    with_null = pa.table({"a": [1, 1], "b": pa.array([None, None], pa.string()), ARRIVAL: [0] * 2, ROW: [1, 2]})
    assert list(late(with_null, ["a", "b"], None)) == []


def test_rows_with_a_known_key_are_all_late() -> None:
    assert sorted(late(rows(1, 2, 2, 3), ["k"], pa.table({"k": [1, 5]}))) == [0, 2]


TABLE = """
from pyspark.sql import functions as F
from icefield import append, files, table, unique

ORDERS = files("landing/orders/*.csv", schema="id BIGINT, customer STRING, amount DECIMAL(10,2), at TIMESTAMP")


@table("bronze.orders", source=ORDERS, refresh=append(), checks=[unique("id")], otherwise="quarantine")
def orders(rows):
    return {}
"""


@pytest.mark.spark
@pytest.mark.parametrize(
    ("what", "kept"),
    [
        ("rows", [1, 2, 3, 12]),
        ("rows.where('amount > 1')", [1, 2, 12]),
        ("rows.withColumn('id', F.col('id') % 10)", [1, 2, 3]),
        ("rows.withColumn('id', F.when(F.col('id') > 10, F.lit(2)).otherwise(F.col('id')))", [1, 2, 3]),
        ("rows.unionByName(rows.withColumn('id', F.col('id') + 100))", [1, 2, 3, 12, 101, 102, 103, 112]),
        ("rows.withColumn('id', F.explode(F.expr('array(id, id + 11)')))", [1, 2, 3, 12, 13, 14, 23]),
    ],
    ids=["as it is", "fewer", "other keys", "some other keys", "twice", "several of one"],
)
def test_repeats_are_found_whatever_the_function_does(tmp_path: Path, what: str, kept: list[int]) -> None:
    project = tiny(tmp_path, TABLE.replace("{}", what))
    project.land("a.csv", [order(n, amount="1.00" if n == 3 else "2.00") for n in (1, 2, 12, 2, 3, 1)])
    result = project.run()
    assert result.status == "published", result.error
    assert sorted(n for (n,) in project.ask("SELECT id FROM bronze.orders")) == kept
    project.land("b.csv", [order(1, amount="2.00")])
    assert project.run().status == "published"
    assert sorted(n for (n,) in project.ask("SELECT id FROM bronze.orders")) == kept
    before = project.everything()
    assert project.run(full_refresh=True).status == "published"
    assert project.everything() == before


@pytest.mark.spark
def test_more_than_ten_checks_do_not_get_in_each_others_way(tmp_path: Path) -> None:
    pairs = [(a, b) for a in ("id", "customer", "amount", "at") for b in ("id", "customer", "amount", "at") if a != b]
    checks = ", ".join(["unique('id')", *(f"unique({a!r}, {b!r})" for a, b in pairs if "id" in (a, b))])
    more = ", ".join(f"unique('id', {a!r}, {b!r})" for a, b in pairs if "id" not in (a, b))
    project = tiny(tmp_path, TABLE.replace('unique("id")', f"{checks}, {more}").replace("{}", "rows"))
    project.land("a.csv", [order(1, "ann"), order(1, "bob"), order(2, "ann")])
    result = project.run()
    assert result.status == "published", result.error
    assert project.ask("SELECT id, customer FROM bronze.orders ORDER BY id") == [(1, "ann"), (2, "ann")]
    assert project.ask("SELECT reasons FROM bronze.orders__quarantine") == [(["id is unique"],)]


@pytest.mark.spark
def test_zero_and_minus_zero_are_one_key(tmp_path: Path) -> None:
    source = TABLE.replace("id BIGINT", "id DOUBLE").replace("{}", "rows")
    project = tiny(tmp_path, source)
    project.land("a.csv", [order("0.0"), order("-0.0"), order("1.5")])
    assert project.run().status == "published"
    assert sorted(project.ask("SELECT id FROM bronze.orders")) == [(0.0,), (1.5,)]
    project.declare(source.replace('otherwise="quarantine"', 'otherwise="fail"'))
    result = project.run(full_refresh=True)
    assert [(c.check, c.failed_rows) for c in result.checks if c.status == "failed"] == [("id is unique", 1)]
