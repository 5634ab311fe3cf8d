"""What icefield writes and reads without Spark means the same to Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import _parse_datatype_string

from icefield.declare import RowCheck, between, format_columns, not_null, one_of, parse_columns, sql
from icefield.declare.literals import sql_literal

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    running = SparkSession.getActiveSession()
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    yield session
    if running is None:
        session.stop()


@pytest.mark.parametrize(
    "value",
    ["it's", 'say "x"', "a\\b", "a\\'b", "", "line\nbreak", "ü", 7, -3, 0.1, Decimal("1.50"), True, date(2026, 8, 1)],
)
def test_a_literal_is_the_value_it_was_made_from(spark: SparkSession, value: object) -> None:
    assert spark.sql(f"SELECT {sql_literal(value)} AS v").first()["v"] == value


def test_a_time_is_a_literal_in_utc(spark: SparkSession) -> None:
    at = datetime(2026, 8, 1, 12, 30, 5, 250000, tzinfo=UTC)
    assert spark.sql(f"SELECT unix_micros({sql_literal(at)}) AS v").first()["v"] == int(at.timestamp() * 1_000_000)


@pytest.mark.parametrize(
    ("check", "failing"),
    [
        (not_null("a"), [None]),
        (one_of("a", "x", "it's"), ["y", None]),
        (one_of("a", "x", None), ["it's", "y"]),
        (one_of("a", None), ["it's", "x", "y"]),
        (between("a", "x", "z"), ["it's"]),
    ],
)
def test_a_row_fails_only_where_the_predicate_is_false(spark: SparkSession, check: Any, failing: list[Any]) -> None:
    assert isinstance(check, RowCheck)
    frame = spark.createDataFrame([("x",), ("y",), ("it's",), (None,)], "a STRING")
    found = [row.a for row in frame.where(f"NOT coalesce({check.predicate}, true)").collect()]
    assert sorted(found, key=str) == sorted(failing, key=str)


def test_ddl_is_read_as_spark_reads_it(spark: SparkSession) -> None:
    text = (
        "id BIGINT NOT NULL COMMENT 'it''s', amount DECIMAL(12,2), n INTEGER, l LONG, ts TIMESTAMP, nt TIMESTAMP_NTZ, "
        "tags ARRAY<STRING>, m MAP<STRING, DECIMAL(5)>, s STRUCT<firstName: STRING, `odd one`: ARRAY<INT>>, `a b` DATE"
    )
    ours = parse_columns(text)
    theirs = _parse_datatype_string(text)
    again = _parse_datatype_string(format_columns(ours))
    assert [(f.name, f.dataType, f.nullable, f.metadata) for f in again.fields] == [
        (f.name, f.dataType, f.nullable, f.metadata) for f in theirs.fields
    ]
    assert ours[0].comment == theirs.fields[0].metadata["comment"]


def test_a_query_runs_on_the_frames_own_session_and_leaves_no_view_behind(spark: SparkSession) -> None:
    query = sql(
        "SELECT l.i, count(*) AS n FROM {l} AS l JOIN {r} USING (i) WHERE '2026' RLIKE '[0-9]{{4}}' GROUP BY l.i"
    )
    left, right = spark.createDataFrame([(1,), (2,)], "i INT"), spark.createDataFrame([(1,), (1,)], "i INT")
    before = spark.catalog.listTables()
    assert [tuple(row) for row in query(left, r=right).collect()] == [(1, 2)]
    assert spark.catalog.listTables() == before
