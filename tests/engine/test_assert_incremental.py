"""What authors use to try a promise in a unit test says yes to promises that are kept and no to others."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as F

from icefield import accumulate, append, by_key, full, lookup, table
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
    with pytest.raises(
        AssertionError, match=r"ranked is declared by_key\('k'\), but its function uses a window over all rows"
    ):
        assert_incremental(ranked, batches, refresh=by_key("k"))


def test_how_batches_were_made_is_none_of_the_functions(batches: list[Any]) -> None:
    assert_incremental(by_k, batches[0].randomSplit([0.5, 0.5], seed=1), refresh=by_key("k"))
    assert_incremental(by_k, [batches[0].limit(2), batches[1].distinct()], refresh=by_key("k"))


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

    with pytest.raises(AssertionError, match='which cannot be merged with "sum"'):
        assert_incremental(means, given, refresh=accumulate("k", n="sum"))


def unlike(rows: Any) -> Any:
    """As long as no value comes twice, counts of distinct values add up."""
    return rows.groupBy("k").agg(F.count_distinct("g", "n").alias("n"))


def without_key(rows: Any) -> Any:
    return rows.groupBy("k").agg(F.sum("n").alias("n")).drop("k")


REFUSED = {
    "whatever the batches show": (unlike, accumulate("k", n="count"), 'cannot be merged with "sum"'),
    "a column that is no measure": (by_k, accumulate("k", n="sum"), "kinds is neither key nor measure"),
    "no key": (without_key, by_key("k"), "does not return the key k"),
    "a limit": (lambda rows: rows.orderBy("n").limit(100), by_key("k"), "keeps only some of the rows"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_run_would_refuse(batches: list[Any], case: str) -> None:
    function, refresh, told = REFUSED[case]
    with pytest.raises(AssertionError, match=told):
        assert_incremental(function, batches, refresh=refresh)


@table("gold.kinds", refresh=by_key("k"))
def declared(rows: Any) -> Any:
    return rows.groupBy("k").agg(F.count_distinct("g").alias("kinds"))


@table("gold.named", refresh=by_key("k"), inputs={"names": lookup("bronze.names", on="g")})
def named(rows: Any, names: Any) -> Any:
    return rows.select("k", "g").join(names, "g", "left")


@table("gold.b", refresh=append())
@table("gold.a", refresh=by_key("k"))
def two_tables(rows: Any) -> Any:
    return rows


def test_the_refresh_kind_and_the_inputs_come_from_the_declaration(spark: Any, batches: list[Any]) -> None:
    assert_incremental(declared, batches)
    names = [spark.createDataFrame(rows, "g STRING, name STRING") for rows in ([("a", "A")], [("b", "B"), ("c", "C")])]
    assert_incremental(named, [{"rows": rows, "names": some} for rows, some in zip(batches, names, strict=True)])
    with pytest.raises(ValueError, match=r"declares gold\.a, gold\.b with different refresh kinds"):
        assert_incremental(two_tables, batches)
    with pytest.raises(ValueError, match="by_k declares no table: pass the refresh kind"):
        assert_incremental(by_k, batches)


def counted_in_batches(rows: Any) -> Any:
    """Right as long as a key comes in one batch."""

    def count(parts: Any) -> Any:
        for part in parts:
            yield part.groupby("k", dropna=False).size().reset_index(name="n")

    return rows.coalesce(1).select("k").mapInPandas(count, "k BIGINT, n BIGINT")


def test_what_is_trusted_is_replayed_with_late_and_repeated_rows(spark: Any) -> None:
    apart = [spark.createDataFrame(rows, "k BIGINT") for rows in ([(1,), (2,)], [(3,)])]
    assert_incremental(counted_in_batches, apart, refresh=by_key("k", trusted=True))
    with pytest.raises(AssertionError, match=r"does not keep the promise of append\(\).*with late and repeated rows"):
        assert_incremental(counted_in_batches, apart, refresh=append(trusted=True))


def test_what_cannot_be_tried(batches: list[Any]) -> None:
    with pytest.raises(ValueError, match="batches is empty"):
        assert_incremental(by_k, [], refresh=by_key("k"))
    with pytest.raises(ValueError, match="makes no promise"):
        assert_incremental(by_k, batches, refresh=full())
    with pytest.raises(ValueError, match="a batch has lines, but the function's inputs are rows"):
        assert_incremental(by_k, [{"lines": batches[0]}], refresh=by_key("k"))
    with pytest.raises(TypeError, match="batches must be a list"):
        assert_incremental(by_k, batches[0], refresh=by_key("k"))
