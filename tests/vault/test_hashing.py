"""Hash keys and hashdiffs: what they are made of, and that different keys stay different."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from icefield.errors import InvalidVault
from icefield.vault import UNKNOWN, hash_key, hashdiff

pytestmark = pytest.mark.spark


def md5(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


def digests(spark: Any, rows: list[tuple[Any, ...]], text: str) -> list[str]:
    """The digest of each row of columns a and b."""
    numbered = [(number, *row) for number, row in enumerate(rows)]
    frame = spark.createDataFrame(numbered, "n INT, a STRING, b STRING")
    return [row[1] for row in frame.selectExpr("n", text).orderBy("n").collect()]


def test_a_hash_key_is_md5_of_the_upper_case_trimmed_parts(spark: Any) -> None:
    rows = [("abc", "1"), (" aBc ", "1"), ("abc", None), (None, "1"), ("", "1")]
    assert digests(spark, rows, hash_key("a", "b")) == [
        md5("ABC||1"),
        md5("ABC||1"),
        md5("ABC||^^"),
        md5("^^||1"),
        md5("||1"),
    ]
    assert digests(spark, [("éß", None)], hash_key("a")) == [md5("ÉSS")]


def test_numbers_dates_and_decimals_are_hashed_as_spark_casts_them(spark: Any) -> None:
    frame = spark.sql("SELECT BIGINT(42) AS n, DATE '2026-01-02' AS d, CAST('1.5' AS DECIMAL(12,2)) AS m, true AS f")
    found = frame.selectExpr(*(hash_key(column) for column in "ndmf")).collect()[0]
    assert list(found) == [md5("42"), md5("2026-01-02"), md5("1.50"), md5("TRUE")]


def test_a_key_that_is_null_in_all_parts_is_the_unknown_one(spark: Any) -> None:
    assert digests(spark, [(None, None)], hash_key("a", "b")) == [UNKNOWN]
    assert digests(spark, [(None, None)], hash_key("a")) == [UNKNOWN] == ["0" * 32]


def test_separators_inside_of_values_are_escaped(spark: Any) -> None:
    rows = [("x||y", "z"), ("x", "y||z"), ("^^", "z"), (None, "z"), ("x\\|", "|z"), ("x\\", "||z"), ("\\^^", "z")]
    for text in (hash_key("a", "b"), hashdiff("a", "b")):
        assert len(set(digests(spark, rows, text))) == len(rows)
    assert digests(spark, rows[:1], hash_key("a", "b")) == [md5("X\\|\\|Y||Z")]
    assert digests(spark, [("\\^", "|")], hash_key("a", "b")) == [md5("\\\\\\^||\\|")]


def test_a_hashdiff_goes_by_the_names_of_its_columns_and_sees_every_change(spark: Any) -> None:
    assert digests(spark, [("x", "y")], hashdiff("b", "a")) == [md5("x||y")]
    assert hashdiff("b", "a") == hashdiff("a", "b")
    rows = [("Ann", None), ("ANN", None), ("Ann ", None), ("Ann", ""), (None, "Ann")]
    assert len(set(digests(spark, rows, hashdiff("a", "b")))) == len(rows)


@pytest.mark.parametrize("columns", [(), ("",), ("a`b",), (1,)])
def test_what_names_no_columns_is_refused(columns: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidVault, match="does not name columns"):
        hash_key(*columns)
