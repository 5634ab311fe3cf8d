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
from dataclasses import dataclass, field
from functools import reduce
from operator import and_, or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession as _SparkSession
from pyspark.sql import functions as F

from icefield.declare import Accumulate, ByKey, Full, Ref, Refresh, declarations_of
from icefield.declare.tables import parameters_of
from icefield.engine.keyed import key_of
from icefield.engine.promises.keys import measured, require_keys
from icefield.engine.promises.rules import Call, prove, prove_finish
from icefield.engine.promises.spark_plans import input_frame
from icefield.engine.renewal import merged_halves
from icefield.engine.rows import plain
from icefield.engine.session import start_session
from icefield.errors import DeclarationError
from icefield.graph import Edge, Node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

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
    """The function keeps the promise of the refresh kind that it is declared with (or that is given).

    A batch is what arrives for one run: a DataFrame, or for functions of several inputs a mapping of parameters to
    DataFrames. First the promise is proven from Spark's plan, as a run does. Then the batches are replayed as runs
    would take them in, in their order, and once more with late and repeated rows; after each of them the table must
    hold what the function gives for everything that has arrived.
    """
    if not isinstance(batches, Sequence):
        raise TypeError("batches is a list, [frame, ...]: what arrives first, what arrives next")
    kind, edges = _declared(function, refresh)
    parts = [_named(function, batch) for batch in batches]
    if not parts or isinstance(kind, Full):
        raise ValueError("full() promises nothing that could be tried" if parts else "there are no batches to try")
    name = getattr(function, "__name__", "the function")
    node = Node(name=name, refresh=kind.plain, edges=edges)
    _require_proof(node, function, kind, {name: frame.schema for name, frame in parts[0].items()})
    for told, history in _histories(parts, seed):
        replay = _Replay(node, function)
        for number, batch in enumerate(history, 1):
            given, wanted = replay.take(batch)
            _require_same(node, given, wanted, f"after batch {number} {told}, seed {seed}")


def _declared(function: Callable[..., DataFrame], refresh: Refresh | None) -> tuple[Refresh, tuple[Edge, ...]]:
    """The refresh kind and the inputs, from the declaration where there is one."""
    tables = declarations_of(function)
    kinds = [refresh] if refresh is not None else list({repr(one.refresh): one.refresh for one in tables}.values())
    if len(kinds) != 1:
        raise ValueError(
            f"{getattr(function, '__name__', 'the function')} declares "
            + (f"{', '.join(one.name for one in tables)} with different refresh kinds" if tables else "no table")
            + ": say which is meant, refresh=by_key(...)"
        )
    inputs = tables[0].inputs if tables else {}
    return kinds[0], tuple(_edge(parameter, inputs.get(parameter)) for parameter in parameters_of(function))


def _edge(parameter: str, given: object) -> Edge:
    if isinstance(given, Ref):
        return Edge(parameter=parameter, table=given.table, lookup=given.lookup, key=given.key, on=given.on)
    return Edge(parameter=parameter, table=parameter)


def _require_proof(
    node: Node, function: Callable[..., DataFrame], kind: Refresh, schemas: Mapping[str, StructType]
) -> None:
    """What a run would refuse of it, whatever the batches show."""
    spark = _SparkSession.active()
    inputs = {edge.parameter: input_frame(spark, n, schemas[edge.parameter]) for n, edge in enumerate(node.edges)}
    output = function(**inputs)
    tables = {str(edge.table): schemas[edge.parameter] for edge in node.edges}
    if gone := [key for key in node.keys if key not in output.columns]:
        raise AssertionError(f"{node.name} does not return the key {gone[0]}")
    try:
        if isinstance(kind, Accumulate):
            measures = measured(node, output)
            if kind.finish is not None:
                rows = input_frame(spark, 0, measures)
                prove_finish(node, rows, kind.finish(rows))
        if node.keys:
            require_keys(node, inputs, {**tables, node.name: output.schema})
        prove(Call(node=node, function=function, inputs=inputs, output=output))
    except DeclarationError as error:
        raise AssertionError(f"{error.what}; {error.remedy}") from None


def _histories(parts: Sequence[Mapping[str, DataFrame]], seed: int) -> Iterator[tuple[str, list[dict[str, DataFrame]]]]:
    """The batches as they are given, and once more in another order: some rows come late, and some come twice."""
    whole = [{name: _held(frame) for name, frame in part.items()} for part in parts]
    yield "in order", whole
    chance = random.Random(seed)
    first, late = _halves(whole[0], chance)
    shuffled = chance.sample([first, *whole[1:]], len(whole))
    yield "with late and repeated rows", [*shuffled, late, chance.choice(whole)]


def _held(frame: DataFrame) -> DataFrame:
    """The rows as they are now: what made them is none of the function's."""
    return frame.sparkSession.createDataFrame(frame.collect(), frame.schema)


def _halves(batch: Mapping[str, DataFrame], chance: random.Random) -> tuple[dict[str, DataFrame], dict[str, DataFrame]]:
    halves: tuple[dict[str, DataFrame], dict[str, DataFrame]] = ({}, {})
    for name, frame in batch.items():
        found = frame.collect()
        chance.shuffle(found)
        middle = (len(found) + 1) // 2
        for half, some in zip(halves, (found[:middle], found[middle:]), strict=True):
            half[name] = frame.sparkSession.createDataFrame(some, frame.schema)
    return halves


@dataclass(slots=True)
class _Replay:
    """A table as runs keep it, and everything that has arrived."""

    node: Node
    function: Callable[..., DataFrame]
    arrived: dict[str, DataFrame] = field(default_factory=dict)
    table: DataFrame | None = None

    def take(self, batch: Mapping[str, DataFrame]) -> tuple[DataFrame, DataFrame]:
        """One run: the table as it is kept then, and as it has to be."""
        before = dict(self.arrived)
        self.arrived = {name: _union(before[name], rows) if before else rows for name, rows in batch.items()}
        wanted = self.function(**self.arrived)
        rebuilt = any(
            e.lookup and not self._is_followed(e) and not batch[e.parameter].isEmpty() for e in self.node.edges
        )
        if self.table is None or rebuilt:
            self.table = _held(wanted)
        else:
            self.table = _held(self._advanced(self.table, batch))
        return self.table, wanted

    def _is_followed(self, edge: Edge) -> bool:
        return bool(edge.on) and isinstance(self.node.refresh, ByKey)

    def _advanced(self, table: DataFrame, batch: Mapping[str, DataFrame]) -> DataFrame:
        new = {e.parameter: self.arrived[e.parameter] if e.lookup else batch[e.parameter] for e in self.node.edges}
        if isinstance(self.node.refresh, ByKey):
            return self._replaced(table, self._touched(batch))
        if isinstance(self.node.refresh, Accumulate):
            return merged_halves(self.node, table, self.function(**new).select(*table.columns), table.schema)
        return _union(table, self.function(**new))

    def _touched(self, batch: Mapping[str, DataFrame]) -> list[tuple[Any, ...]]:
        """The keys of what arrived, and those of rows that carry a changed value of a lookup."""
        found: set[tuple[Any, ...]] = set()
        for edge in self.node.edges:
            rows = batch[edge.parameter]
            if not edge.lookup:
                found |= _values(rows.select(*self._key(edge, rows).values()))
            elif self._is_followed(edge):
                changed = _values(rows.select(*edge.on))
                for other in self.node.edges:
                    carrier = self.arrived[other.parameter]
                    if not other.lookup and set(edge.on) <= set(carrier.columns):
                        some = _among(carrier, [F.col(name) for name in edge.on], changed)
                        found |= _values(some.select(*self._key(other, carrier).values()))
        return sorted(found, key=repr)

    def _replaced(self, table: DataFrame, touched: Sequence[tuple[Any, ...]]) -> DataFrame:
        given = {}
        for edge in self.node.edges:
            rows = self.arrived[edge.parameter]
            given[edge.parameter] = rows if edge.lookup else _among(rows, list(self._key(edge, rows).values()), touched)
        own = [F.col(f"`{key}`") for key in self.node.keys]
        stay = table.where(~_is_among(own, touched))
        return _union(stay, self.function(**given).select(*table.columns))

    def _key(self, edge: Edge, rows: DataFrame) -> dict[str, Column]:
        return {key: F.expr(text) for key, text in key_of(self.node, edge, rows.columns).items()}


def _values(rows: DataFrame) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in rows.collect()}


def _among(rows: DataFrame, columns: Sequence[Column], values: Iterable[tuple[Any, ...]]) -> DataFrame:
    return rows.where(_is_among(columns, values))


def _is_among(columns: Sequence[Column], values: Iterable[tuple[Any, ...]]) -> Column:
    each = [reduce(and_, [c.eqNullSafe(F.lit(v)) for c, v in zip(columns, row, strict=True)]) for row in values]
    return reduce(or_, each, F.lit(False))  # noqa: FBT003 - Spark's literal


def _require_same(node: Node, given: DataFrame, wanted: DataFrame, when: str) -> None:
    try:
        assert_same_rows(given, wanted)
    except AssertionError as difference:
        raise AssertionError(
            f"{node.name} does not keep the promise of {node.refresh.kind}(): {difference} ({when});"
            f" {_WAY_OUT[node.refresh.kind]}"
        ) from None


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
        if len(known) > 1:
            raise ValueError(f"the function has the inputs {', '.join(known)}: a batch is a mapping of them to frames")
        return {known[0]: batch}
    if set(batch) != set(known):
        raise ValueError(f"a batch has {', '.join(batch)}, and the function's inputs are {', '.join(known)}")
    return dict(batch)
