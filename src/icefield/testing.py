"""Helpers for tests: a Spark session as a pytest fixture, row comparison, and a test of refresh kinds.

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
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession as _SparkSession
from pyspark.sql import functions as F

from icefield.declare import Accumulate, ByKey, Full, Ref, Refresh, declarations_of
from icefield.declare.tables import parameters_of
from icefield.engine.promises.call import Call
from icefield.engine.promises.finish import prove_finish
from icefield.engine.promises.keys import measured, require_keys
from icefield.engine.promises.rules import prove
from icefield.engine.promises.spark_plans import input_frame
from icefield.engine.refresh.keys import key_of
from icefield.engine.refresh.measures import merged_halves
from icefield.engine.rows import plain
from icefield.engine.session.spark import start_session
from icefield.errors import DeclarationError
from icefield.graph import Edge, Node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    Batch = DataFrame | Mapping[str, DataFrame]

_SHOWN = 3


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The Spark session that icefield itself uses (UTC, ANSI, no UI), shared by the whole test run."""
    with tempfile.TemporaryDirectory() as folder:
        yield start_session(app="tests", conf={}, log=Path(folder) / "spark.log")


def rows(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    """The rows of a DataFrame as a multiset, with columns sorted by name."""
    return Counter(plain(row) for row in frame.select(sorted(frame.columns)).collect())


def assert_same_rows(given: DataFrame, wanted: DataFrame) -> None:
    """Asserts that both DataFrames contain the same rows, duplicates included, in any order."""
    assert sorted(given.columns) == sorted(wanted.columns), f"columns are {given.columns}, expected {wanted.columns}"
    have, want = rows(given), rows(wanted)
    if have != want:
        raise AssertionError(_apart(list((want - have).elements()), list((have - want).elements())))


def _apart(missing: Sequence[Any], extra: Sequence[Any]) -> str:
    return f"{len(missing)} rows missing, such as {missing[:_SHOWN]}; {len(extra)} too many, such as {extra[:_SHOWN]}"


def assert_incremental(
    function: Callable[..., DataFrame],
    batches: Sequence[Batch],
    *,
    refresh: Refresh | None = None,
    seed: int = 0,
) -> None:
    """Asserts that the function keeps the promise of its declared refresh kind (or of `refresh`).

    A batch is the data of one run: a DataFrame, or, for functions with several inputs, a mapping of parameters to
    DataFrames. First the promise is proven from Spark's plan, as in a run. Then the batches are replayed the way runs
    would process them, first in order, then with late and repeated rows; after each batch the table must equal the
    result of the function over everything that has arrived.
    """
    if not isinstance(batches, Sequence):
        raise TypeError("batches must be a list of DataFrames in the order of arrival, [frame, ...]")
    kind, edges = _declared(function, refresh)
    parts = [_named(function, batch) for batch in batches]
    if not parts or isinstance(kind, Full):
        raise ValueError("full() makes no promise that could be tested" if parts else "batches is empty")
    name = getattr(function, "__name__", "the function")
    node = Node(name=name, refresh=kind.plain, edges=edges)
    schemas = {name: frame.schema for name, frame in parts[0].items()}
    _require_proof(node, function, kind, schemas)
    arrived = [{name: frame.toArrow() for name, frame in part.items()} for part in parts]
    for told, history in _histories(arrived, seed):
        replay = _Replay(node, function, schemas)
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
            + ": pass the refresh kind, such as refresh=by_key(...)"
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


#: What arrives for one run, by parameter.
Arrived = dict[str, pa.Table]


def _histories(parts: Sequence[Arrived], seed: int) -> Iterator[tuple[str, list[Arrived]]]:
    """The batches as they are given, and once more in another order: some rows come late, and some come twice."""
    yield "in order", list(parts)
    chance = random.Random(seed)
    first, late = _halves(parts[0], chance)
    shuffled = chance.sample([first, *parts[1:]], len(parts))
    yield "with late and repeated rows", [*shuffled, late, chance.choice(parts)]


def _halves(batch: Arrived, chance: random.Random) -> tuple[Arrived, Arrived]:
    halves: tuple[Arrived, Arrived] = ({}, {})
    for name, rows in batch.items():
        places = chance.sample(range(rows.num_rows), rows.num_rows)
        middle = (len(places) + 1) // 2
        for half, some in zip(halves, (places[:middle], places[middle:]), strict=True):
            half[name] = rows.take(pa.array(some, pa.int64()))
    return halves


@dataclass(slots=True)
class _Replay:
    """A table as runs keep it, and everything that has arrived."""

    node: Node
    function: Callable[..., DataFrame]
    schemas: Mapping[str, StructType]
    arrived: Arrived = field(default_factory=dict)
    table: pa.Table | None = None

    def take(self, batch: Arrived) -> tuple[pa.Table, pa.Table]:
        """One run: the table as it is kept then, and as it has to be."""
        before = self.arrived
        self.arrived = {
            name: pa.concat_tables([before[name], rows]) if before else rows for name, rows in batch.items()
        }
        wanted = self._computed(self.arrived)
        whole = [edge.parameter for edge in self.node.edges if edge.lookup and not self._is_followed(edge)]
        if self.table is None or any(batch[name].num_rows for name in whole):  # what is passed whole rebuilds it
            self.table = wanted
        else:
            self.table = self._advanced(self.table, batch)
        return self.table, wanted

    def _is_followed(self, edge: Edge) -> bool:
        return bool(edge.on) and isinstance(self.node.refresh, ByKey)

    def _frame(self, name: str, rows: pa.Table) -> DataFrame:
        # In one piece: Spark stops reading at an empty one, and what comes after it would be lost.
        return _SparkSession.active().createDataFrame(rows.combine_chunks(), self.schemas[name])

    def _computed(self, given: Arrived) -> pa.Table:
        return self.function(**{name: self._frame(name, rows) for name, rows in given.items()}).toArrow()

    def _advanced(self, table: pa.Table, batch: Arrived) -> pa.Table:
        if isinstance(self.node.refresh, ByKey):
            return self._replaced(table, self._touched(batch))
        new = {e.parameter: self.arrived[e.parameter] if e.lookup else batch[e.parameter] for e in self.node.edges}
        if isinstance(self.node.refresh, Accumulate):
            return self._merged(table, new)
        return pa.concat_tables([table, self._computed(new).select(table.column_names)])

    def _merged(self, table: pa.Table, new: Arrived) -> pa.Table:
        came = self.function(**{name: self._frame(name, rows) for name, rows in new.items()})
        stored = came.sparkSession.createDataFrame(table.combine_chunks(), came.select(*table.column_names).schema)
        return merged_halves(self.node, stored, came.select(*table.column_names), stored.schema).toArrow()

    def _touched(self, batch: Arrived) -> set[tuple[Any, ...]]:
        """The keys of what arrived, and those of rows that carry a changed value of a lookup."""
        found: set[tuple[Any, ...]] = set()
        for edge in self.node.edges:
            rows = batch[edge.parameter]
            if not edge.lookup:
                found |= set(self._keys(edge, rows))
            elif self._is_followed(edge):
                changed = set(_tuples(rows.select(list(edge.on))))
                for other in self.node.edges:
                    carrier = self.arrived[other.parameter]
                    if not other.lookup and set(edge.on) <= set(carrier.column_names):
                        carried = _tuples(carrier.select(list(edge.on)))
                        some = pa.array([values in changed for values in carried], pa.bool_())
                        found |= set(self._keys(other, carrier.filter(some)))
        return found

    def _replaced(self, table: pa.Table, touched: set[tuple[Any, ...]]) -> pa.Table:
        given = {}
        for edge in self.node.edges:
            rows = self.arrived[edge.parameter]
            some = rows if edge.lookup else rows.filter(_flags(self._keys(edge, rows), touched))
            given[edge.parameter] = some
        own = _tuples(table.select(list(self.node.keys)))
        stay = table.filter(pc.invert(_flags(own, touched)))
        return pa.concat_tables([stay, self._computed(given).select(table.column_names)])

    def _keys(self, edge: Edge, rows: pa.Table) -> list[tuple[Any, ...]]:
        """The key of each row; a column as it is, an expression by Spark."""
        texts = key_of(self.node, edge, rows.column_names).values()
        own = {f"`{name}`": name for name in rows.column_names}
        if all(text in own for text in texts):
            return _tuples(rows.select([own[text] for text in texts]))
        return _tuples(self._frame(edge.parameter, rows).select(*map(F.expr, texts)).toArrow())


def _tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    return [
        tuple(map(plain, row.values()))
        for row in rows.rename_columns([str(n) for n in range(rows.num_columns)]).to_pylist()
    ]


def _flags(rows: Sequence[tuple[Any, ...]], wanted: set[tuple[Any, ...]]) -> pa.Array:
    return pa.array([row in wanted for row in rows], pa.bool_())


def _require_same(node: Node, given: pa.Table, wanted: pa.Table, when: str) -> None:
    columns = sorted(wanted.column_names)
    have, want = (Counter(_tuples(rows.select(columns))) for rows in (given, wanted))
    if have == want:
        return
    missing, extra = list((want - have).elements()), list((have - want).elements())
    raise AssertionError(
        f"{node.name} does not keep the promise of {node.refresh.kind}(): {_apart(missing, extra)} ({when});"
        f" {_WAY_OUT[node.refresh.kind]}"
    )


_WAY_OUT = {
    "append": "its rows depend on each other, so declare it by_key(...), accumulate(...) or full()",
    "by_key": "its rows depend on rows of other keys, so pass those as a lookup(...), or declare it full()",
    "accumulate": "its measures do not merge, so declare it by_key(...)",
}


def _named(function: Callable[..., DataFrame], batch: Batch) -> dict[str, DataFrame]:
    known = parameters_of(function)
    if not isinstance(batch, Mapping):
        if len(known) > 1:
            raise ValueError(
                f"the function has several inputs: pass each batch as a mapping of {', '.join(known)} to DataFrames"
            )
        return {known[0]: batch}
    if set(batch) != set(known):
        raise ValueError(f"a batch has {', '.join(batch)}, but the function's inputs are {', '.join(known)}")
    return dict(batch)
