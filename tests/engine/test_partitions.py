"""Few rows of partitioned tables are written without a query: into the partitions that Spark would choose."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from icefield.engine.batch import InMemory
from icefield.engine.session.spark import add_catalog
from icefield.engine.tables import Tables
from lakes import new_lake, open_branch

pytestmark = pytest.mark.spark

COLUMNS = "id INT, big BIGINT, name STRING, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, amount DECIMAL(9,2)"
MOMENT = dt.datetime(2026, 3, 31, 23, 59, 59, 999_999)
AGES = dt.timedelta(days=30_000)
ROWS: list[dict[str, Any]] = [
    {"id": 1, "big": 7, "name": "ann", "day": dt.date(2026, 3, 31), "at": MOMENT, "local": MOMENT, "amount": "1.50"},
    {"id": -17, "big": -(2**40), "name": "Zoë ☃", "day": dt.date(1969, 12, 31), "at": MOMENT - AGES,
     "local": MOMENT - AGES, "amount": "-0.01"},
    {"id": 2, "big": 8, "name": "", "day": dt.date(1970, 1, 1), "at": dt.datetime(1970, 1, 1),
     "local": dt.datetime(1969, 12, 31, 23, 30), "amount": "0.00"},
    {"id": None, "big": None, "name": None, "day": None, "at": None, "local": None, "amount": None},
    {"id": 2, "big": 8, "name": "a/b=c d", "day": dt.date(2026, 2, 28), "at": MOMENT, "local": MOMENT, "amount": "9"},
]  # fmt: skip
PARTITIONS = [
    ("day",),
    ("name",),
    ("years(day)", "bucket(4, id)"),
    ("months(at)",),
    ("days(at)",),
    ("hours(local)",),
    ("days(local)", "name"),
    ("bucket(8, name)", "truncate(10, id)"),
    ("bucket(5, day)", "bucket(3, at)"),
    ("truncate(2, name)", "bucket(4, amount)"),
    ("truncate(100, big)", "truncate(50, amount)"),
]


@pytest.mark.parametrize("partitions", PARTITIONS, ids=" ".join)
def test_rows_are_in_the_partitions_that_spark_chooses(spark: Any, tmp_path: Path, partitions: tuple[str, ...]) -> None:
    lake = new_lake(tmp_path / "lake")
    branch = open_branch(lake)
    add_catalog(spark, branch.name, uri=str(lake.catalog.path), warehouse=str(lake.warehouse))
    tables, schema = Tables(spark, branch), StructType.fromDDL(COLUMNS)
    assert isinstance(schema, StructType)
    kinds = to_arrow_schema(schema)
    arrow = pa.table({one.name: pa.array([row[one.name] for row in ROWS]).cast(one.type) for one in kinds}, kinds)
    rows = InMemory(spark, schema, arrow)
    node: Any = SimpleNamespace(partitioned_by=partitions, source=None, columns=None, comments={})
    for table in ("a.ours", "a.sparks"):
        tables.definitions.create(table, schema, node)
    assert tables.takes_few("a.ours", rows)
    tables.append_few("a.ours", arrow)
    tables.append("a.sparks", rows.frame)
    for table in ("a.ours", "a.sparks"):
        branch.flush(table)

    def found(table: str, what: str) -> Counter[tuple[Any, ...]]:
        told = spark.table(f"{branch.name}.{table}{what}")
        wanted = ["partition", "record_count"] if what else told.columns
        return Counter(tuple(map(str, row)) for row in told.select(*wanted).collect())

    assert found("a.ours", "") == found("a.sparks", "")
    assert found("a.ours", ".partitions") == found("a.sparks", ".partitions")
    branch.abandon()
