"""What authors use to try a promise in a unit test says yes to promises that are kept and no to others."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as F

from icefield import accumulate, by_key
from icefield.testing import assert_incremental

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def batches(spark: Any) -> list[Any]:
    rows = [(1, "a", 10), (2, "b", 20), (None, "a", 5), (1, "c", 7), (2, "b", 1), (3, None, 4)]
    return [spark.createDataFrame(part, "k BIGINT, g STRING, n BIGINT") for part in (rows[:3], rows[3:])]


def by_k(rows: Any) -> Any:
    return rows.groupBy("k").agg(F.count_distinct("g").alias("kinds"), F.sum("n").alias("n"))


def ranked(rows: Any) -> Any:
    return rows.select("k", F.expr("n - (avg(n) OVER ())").alias("above"))


def test_by_key(batches: list[Any]) -> None:
    assert_incremental(by_k, batches, refresh=by_key("k"))
    with pytest.raises(AssertionError, match=r"ranked does not keep the promise of by_key\(\)"):
        assert_incremental(ranked, batches, refresh=by_key("k"))


def test_a_computed_key(batches: list[Any]) -> None:
    def halves(rows: Any) -> Any:
        return rows.groupBy(F.expr("k % 2").alias("half")).agg(F.max("n").alias("n"))

    assert_incremental(halves, batches, refresh=by_key(half="k % 2"))


def test_accumulate_of_two_inputs(batches: list[Any]) -> None:
    def totals(left: Any, right: Any) -> Any:
        both = left.select("k", "n").unionByName(right.select("k", (F.col("n") * 2).alias("n")))
        return both.groupBy("k").agg(F.sum("n").alias("n"), F.max("n").alias("most"))

    given = [{"left": batches[0], "right": batches[1]}, {"left": batches[1], "right": batches[0]}]
    assert_incremental(totals, given, refresh=accumulate("k", n="sum", most="max"))

    def means(left: Any, right: Any) -> Any:
        return left.unionByName(right).groupBy("k").agg(F.avg("n").cast("DECIMAL(20,6)").alias("n"))

    with pytest.raises(AssertionError, match=r"means does not keep the promise of accumulate\(\)"):
        assert_incremental(means, given, refresh=accumulate("k", n="sum"))
