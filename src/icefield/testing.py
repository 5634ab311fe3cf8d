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
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_, or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from icefield.declare import Accumulate, ByKey, Full, Refresh, append
from icefield.declare.tables import parameters_of
from icefield.engine.frames import empty_frame
from icefield.engine.merging import measured, require_merging
from icefield.engine.promises import require_keys_alone
from icefield.engine.renewal import merged_halves
from icefield.engine.rows import plain
from icefield.engine.session import start_session
from icefield.errors import DeclarationError
from icefield.graph import Edge, Node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import Column, DataFrame, SparkSession

    Batch = DataFrame | Mapping[str, DataFrame]

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
    function: Callable[..., DataFrame],
    batches: Sequence[Batch],
    *,
    refresh: Refresh | None = None,
    seed: int = 0,
) -> None:
    """The function keeps the promise of its refresh kind (`append()` unless another is given).

    A batch is a DataFrame, or for functions of several inputs a mapping of parameters to DataFrames. `append()`: any
    batches, in any order, give what all at once give. `by_key(...)`: rows of some keys give the result's rows of those
    keys. `accumulate(...)`: the measures of two halves merge into those of the whole.
    """
    if not isinstance(batches, Sequence):
        raise TypeError("batches is a list, [frame, ...]: what arrives first, what arrives next")
    kind = refresh or append()
    parts = [_named(function, batch) for batch in batches]
    if not parts or isinstance(kind, Full):
        raise ValueError("full() promises nothing that could be tried" if parts else "there are no batches to try")
    everything = {name: reduce(_union, [part[name] for part in parts]) for name in parts[0]}
    whole = function(**everything)
    name = getattr(function, "__name__", "the function")
    node = Node(name=name, refresh=kind.plain, edges=tuple(Edge(parameter=p, table=p) for p in everything))
    _require_columns(node, whole)
    chance = random.Random(seed)
    match kind:
        case ByKey():
            cuts = [_of_some_keys(function, everything, whole, kind, chance) for _ in range(3)]
        case Accumulate():
            cuts = [(_merged(function, everything, node, seed + n), whole) for n in range(3)]
        case _:
            shuffled = chance.sample(parts, len(parts))
            cuts = [(_added_up(function, cut), whole) for cut in (parts, shuffled, _halves(everything, seed))]
    for given, wanted in cuts:
        try:
            assert_same_rows(given, wanted)
        except AssertionError as difference:
            raise AssertionError(
                f"{name} does not keep the promise of {kind.kind}(): {difference} (seed {seed}); {_WAY_OUT[kind.kind]}"
            ) from None
    _require_shape(node, everything, function)


def _require_columns(node: Node, whole: DataFrame) -> None:
    """The keys, and of a merged table nothing but keys and measures."""
    if gone := [key for key in node.keys if key not in whole.columns]:
        raise AssertionError(f"{node.name} does not return the key {gone[0]}")
    if isinstance(node.refresh, Accumulate):
        _asserted(measured, node, whole)


def _require_shape(node: Node, everything: Mapping[str, DataFrame], function: Callable[..., DataFrame]) -> None:
    """What a run would refuse of it, whatever the batches show; how these were made is none of the function's."""
    empty = {name: empty_frame(frame.sparkSession, frame.schema) for name, frame in everything.items()}
    output = function(**empty)
    if isinstance(node.refresh, Accumulate):
        _asserted(require_merging, node, output)
    elif isinstance(node.refresh, ByKey):
        _asserted(require_keys_alone, node, empty, output)


def _asserted(require: Callable[..., object], *given: object) -> None:
    try:
        require(*given)
    except DeclarationError as error:
        raise AssertionError(f"{error.what}; {error.remedy}") from None


_WAY_OUT = {
    "append": "its rows depend on one another, so declare it by_key(...), accumulate(...) or full()",
    "by_key": "its rows depend on rows of other keys, so pass those as a lookup(...), or declare it full()",
    "accumulate": "its measures do not merge, so declare it by_key(...)",
}


def _union(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.unionByName(other)


def _named(function: Callable[..., DataFrame], batch: Batch) -> dict[str, DataFrame]:
    known = parameters_of(function)
    if not isinstance(batch, Mapping):
        return {known[0]: batch}
    if set(batch) != set(known):
        raise ValueError(f"a batch has {', '.join(batch)}, and the function's inputs are {', '.join(known)}")
    return dict(batch)


def _added_up(function: Callable[..., DataFrame], parts: Sequence[Mapping[str, DataFrame]]) -> DataFrame:
    return reduce(_union, [function(**part) for part in parts])


def _of_some_keys(
    function: Callable[..., DataFrame],
    everything: Mapping[str, DataFrame],
    whole: DataFrame,
    kind: ByKey,
    chance: random.Random,
) -> tuple[DataFrame, DataFrame]:
    """The function over the inputs' rows of some keys, and the whole result's rows of them."""
    known = sorted({tuple(row) for row in whole.select(*kind.keys).collect()}, key=repr)
    chosen = chance.sample(known, (len(known) + 1) // 2)
    columns = {name: F.expr(kind.expressions.get(name, f"`{name}`")) for name in kind.keys}

    def some(rows: DataFrame, key: Mapping[str, Column]) -> DataFrame:
        each = [
            reduce(and_, [key[n].eqNullSafe(F.lit(v)) for n, v in zip(kind.keys, row, strict=True)]) for row in chosen
        ]
        return rows.where(reduce(or_, each, F.lit(False)))  # noqa: FBT003 - Spark's literal

    given = {name: some(rows, columns) for name, rows in everything.items()}
    return function(**given), some(whole, {name: F.col(name) for name in kind.keys})


def _merged(
    function: Callable[..., DataFrame], everything: Mapping[str, DataFrame], node: Node, seed: int
) -> DataFrame:
    one, other = (function(**half) for half in _halves(everything, seed))
    return merged_halves(node, one, other, one.schema)


def _halves(everything: Mapping[str, DataFrame], seed: int) -> list[dict[str, DataFrame]]:
    """Two halves that are the same whenever they are evaluated."""
    halves: list[dict[str, DataFrame]] = [{}, {}]
    for name, frame in everything.items():
        all_rows = frame.collect()
        random.Random(seed).shuffle(all_rows)
        middle = len(all_rows) // 2
        for half, rows in zip(halves, (all_rows[:middle], all_rows[middle:]), strict=True):
            half[name] = frame.sparkSession.createDataFrame(rows, frame.schema)
    return halves
