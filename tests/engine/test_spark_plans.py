"""What Spark's plan tells of a column's way through a function."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as F

from icefield.engine.frames import empty_frame
from icefield.engine.promises.spark_plans import hands_through

pytestmark = pytest.mark.spark


HANDED = {
    "as it is": lambda rows: rows.select("v", "k"),
    "under a filter": lambda rows: rows.where("v > 1").withColumn("v", F.col("v") + 1),
    "cast to its own type": lambda rows: rows.select(F.col("k").cast("BIGINT"), "v"),
    "renamed and back": lambda rows: rows.select(F.col("k").alias("x")).select(F.col("x").alias("k")),
}
CHANGED = {
    "another type": lambda rows: rows.select(F.col("k").cast("STRING"), "v"),
    "another value": lambda rows: rows.withColumn("k", F.col("k") + 1),
    "another column": lambda rows: rows.select(F.col("n").alias("k")),
    "grouped": lambda rows: rows.groupBy("k").count(),
    "joined": lambda rows: rows.join(rows.select(F.col("k").alias("other")), F.expr("k = other")),
    "gone": lambda rows: rows.drop("k"),
}


@pytest.mark.parametrize("case", [*HANDED, *CHANGED])
def test_a_column_is_handed_through_only_as_it_was(spark: Any, case: str) -> None:
    rows = empty_frame(spark, "k BIGINT, n BIGINT, v INT")
    output = {**HANDED, **CHANGED}[case](rows)
    assert hands_through(rows, output, "k") == (case in HANDED)
