"""For authors' tests: a Spark session as a pytest fixture, rows compared as multisets, and proof of a refresh kind.

from icefield.testing import assert_incremental, rows, spark  # noqa: F401 - `spark` is a fixture

def test_payments_can_be_appended(spark):
    batches = [spark.createDataFrame(...), spark.createDataFrame(...)]
    assert_incremental(payment_analysis, batches)
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from icefield.engine.rows import plain
from icefield.engine.session import start_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

_SHOWN = 3


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that icefield itself would use: UTC, ANSI, no UI; one for the whole test run."""
    with tempfile.TemporaryDirectory() as folder:
        yield start_session(app="tests", conf={}, log=Path(folder) / "spark.log")


def rows(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    """The rows of a frame as a multiset, columns in the order of their names."""
    return Counter(plain(row) for row in frame.select(sorted(frame.columns)).collect())


def assert_same_rows(given: DataFrame, wanted: DataFrame) -> None:
    """Both frames hold the same rows, each as often; the order does not matter."""
    assert sorted(given.columns) == sorted(wanted.columns), f"columns {given.columns} instead of {wanted.columns}"
    have, want = rows(given), rows(wanted)
    if have != want:
        missing, extra = list((want - have).elements()), list((have - want).elements())
        raise AssertionError(
            f"{len(missing)} rows missing, such as {missing[:_SHOWN]}; {len(extra)} too many, such as {extra[:_SHOWN]}"
        )


def assert_incremental(
    function: Callable[[DataFrame], DataFrame], batches: Sequence[DataFrame], *, seed: int = 0
) -> None:
    """The function keeps the promise of `append()`: any batches, in any order, give what all at once give."""
    everything = reduce(lambda a, b: a.unionByName(b), batches)
    whole = function(everything)
    chance = random.Random(seed)
    for cut in (batches, chance.sample(list(batches), len(batches)), _halves(everything, seed)):
        parts = reduce(lambda a, b: a.unionByName(b), [function(batch) for batch in cut])
        try:
            assert_same_rows(parts, whole)
        except AssertionError as difference:
            raise AssertionError(
                f"{getattr(function, '__name__', 'the function')} does not keep the promise of append(): {difference}"
                f" (seed {seed}); its rows depend on one another, so declare it full()"
            ) from None


def _halves(frame: DataFrame, seed: int) -> list[DataFrame]:
    """Two halves that are the same whenever they are evaluated."""
    all_rows = frame.collect()
    random.Random(seed).shuffle(all_rows)
    middle = len(all_rows) // 2
    return [frame.sparkSession.createDataFrame(half, frame.schema) for half in (all_rows[:middle], all_rows[middle:])]
