"""The rows of a query are the same values in every shape."""

from __future__ import annotations

import datetime as dt
import json
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from icefield.errors import MissingPackage, UnknownFormat
from icefield.lake.duckdb_scan import connect
from icefield.query.result import Result, collect

QUERY = """
SELECT 1::BIGINT AS id, 12.50::DECIMAL(12,2) AS amount, TIMESTAMPTZ '2026-08-01 10:00:00+02' AS at,
       DATE '2026-08-01' AS day, ['a', 'b'] AS tags, encode('né') AS raw, 'x, "y"' AS word, true AS yes,
       0.5::DOUBLE AS half
UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
"""
AT = dt.datetime(2026, 8, 1, 8, tzinfo=dt.UTC)
ROW = (1, Decimal("12.50"), AT, dt.date(2026, 8, 1), ["a", "b"], "né".encode(), 'x, "y"', True, 0.5)
NAMES = ("id", "amount", "at", "day", "tags", "raw", "word", "yes", "half")


def result(query: str) -> Result:
    with connect() as db:
        return collect(db.execute(query))


def test_rows_are_plain_values_and_times_know_their_zone() -> None:
    found = result(QUERY)
    assert found.columns == NAMES
    assert sorted(found.rows(), key=lambda row: row[0] is None) == [ROW, (None,) * len(NAMES)]


def test_arrow_polars_and_pandas_agree() -> None:
    found = result(QUERY)
    assert found.to_arrow().schema.field("at").type == pa.timestamp("us", "UTC")
    assert dict(zip(NAMES, found.to_polars().row(0), strict=True)) == dict(zip(NAMES, ROW, strict=True))
    frame = found.to_pandas()
    assert str(frame["id"].dtype) == "Int64", "whole numbers stay whole where some are missing"
    assert frame["at"][0].to_pydatetime() == AT
    assert frame["amount"][0] == Decimal("12.50")


def test_a_sum_of_whole_numbers_is_a_whole_number() -> None:
    assert result("SELECT sum(x) FROM (VALUES (1::BIGINT), (2)) t(x)").to_arrow().schema.types == [pa.int64()]
    huge = result("SELECT sum(x) FROM (VALUES (9223372036854775807::BIGINT), (1)) t(x)")
    assert huge.rows() == [(Decimal(9223372036854775808),)]


def test_columns_of_one_name_are_told_apart() -> None:
    assert result("SELECT 1 AS a, 2 AS a, 3 AS a_1").columns == ("a", "a_1", "a_1_1")


def test_saved_files_hold_the_rows(tmp_path: Path) -> None:
    found = result(QUERY)
    assert pa.parquet.read_table(found.save(tmp_path / "out.parquet")).equals(found.to_arrow())
    text = json.loads(found.save(tmp_path / "out.json").read_text(), parse_float=Decimal)
    assert text[0] == {
        "id": 1,
        "amount": Decimal("12.50"),
        "at": "2026-08-01T08:00:00Z",
        "day": "2026-08-01",
        "tags": ["a", "b"],
        "raw": "né",
        "word": 'x, "y"',
        "yes": True,
        "half": Decimal("0.5"),
    }
    assert set(text[1].values()) == {None}
    table = pa.csv.read_csv(found.save(tmp_path / "out.csv"))
    assert table.column("tags").to_pylist()[0] == '["a", "b"]'
    assert table.column("raw").to_pylist()[0] == "né"


def test_no_rows_are_an_empty_array(tmp_path: Path) -> None:
    assert json.loads(result("SELECT 1 AS a WHERE false").save(tmp_path / "out.json").read_text()) == []


def test_an_unknown_kind_of_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat, match=r"\.parquet"):
        result("SELECT 1").save(tmp_path / "out.xlsx")


@pytest.mark.parametrize("package", ["polars", "pandas"])
def test_a_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackage, match=rf"pip install 'icefield\[{package}\]'"):
        getattr(result("SELECT 1"), f"to_{package}")()
