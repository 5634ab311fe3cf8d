"""Tries a promise that is trusted on the user's own data: some of it is computed the incremental way and compared."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import DatetimeType, DoubleType, FloatType

from icefield.declare import Accumulate
from icefield.engine.batch import evaluate, keep
from icefield.engine.checks.split import kept
from icefield.engine.origin import visible
from icefield.engine.refresh.keys import KeySet, key_of, keys_in
from icefield.engine.refresh.measures import merged_halves
from icefield.engine.rows import plain
from icefield.engine.sql import columns_of, quoted
from icefield.errors import PromiseBroken
from icefield.lake.arrow_scan import some_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType

    from icefield.engine.refresh.renewal import Renewal
    from icefield.graph import Edge, Node

#: How many rows of each input are computed twice, and how many keys of what was built.
ROWS_TRIED, KEYS_TRIED = 1_000, 20
_SIDE = "_icefield_side"


def try_promise(renewal: Renewal, built: DataFrame, measures: StructType | None) -> bool:
    """Fails where rows that were computed from everything differ from those that the incremental way gives.

    False where there was too little data to try anything.
    """
    if isinstance(renewal.node.refresh, Accumulate):
        assert measures is not None
        samples = {edge.parameter: _Sample.of(renewal, edge) for edge in renewal.node.edges if not edge.lookup}
        whole = renewal.measured({name: sample.rows for name, sample in samples.items()}, measures)
        _try_halves(renewal, samples, whole, measures)
        return _try_rows_of_keys(renewal, samples, whole, measures)
    keyed = [edge for edge in renewal.node.edges if not edge.lookup]
    # Rows of two inputs that belong together are hardly among the first of both, so those are looked for.
    if len(keyed) == 1 and _try_some_rows(renewal, keyed[0]):
        return True
    return _try_some_keys(renewal, built)


def try_append(node: Node, function: Callable[..., DataFrame], frames: Mapping[str, DataFrame], scratch: Path) -> bool:
    """Fails where two halves of some rows give other rows than all of them; False where there were too few."""
    halves: list[dict[str, DataFrame]] = [{}, {}]
    whole, count = {}, 0
    for edge in node.edges:
        rows = frames[edge.parameter]
        if edge.lookup:
            whole[edge.parameter] = halves[0][edge.parameter] = halves[1][edge.parameter] = rows
            continue
        sample = evaluate(rows.limit(ROWS_TRIED), scratch / f"tried-{edge.parameter}").arrow()
        found = _Sample.halved(rows.sparkSession, rows.schema, sample, scratch / f"halves-{edge.parameter}")
        whole[edge.parameter], count = found.rows, count + sample.num_rows
        for half, some in zip(halves, found.halves, strict=True):
            half[edge.parameter] = some
    if count < 2:
        return False
    parts = visible(function(**halves[0])).unionByName(visible(function(**halves[1])))
    _compare(node, visible(function(**whole)), parts)
    return True


def try_touched(renewal: Renewal, touched: DataFrame, measures: StructType) -> None:
    """accumulate: the rows that the inputs have of some keys, to which rows came, merge from two halves.

    A first build may have had one row a key, which tries nothing.
    """
    chosen = evaluate(touched.limit(KEYS_TRIED), renewal.scratch / "touched-tried")
    if not (count := chosen.count()):
        return
    keys = KeySet(renewal.node.keys, chosen, count)
    samples = {edge.parameter: _Sample.of_keys(renewal, edge, keys) for edge in renewal.node.edges if not edge.lookup}
    whole = renewal.measured({name: sample.rows for name, sample in samples.items()}, measures)
    _try_halves(renewal, samples, whole, measures)


def _try_halves(renewal: Renewal, samples: Mapping[str, _Sample], whole: DataFrame, measures: StructType) -> None:
    """accumulate: the measures of two halves of some rows merge into those of all of them."""
    halves = [renewal.measured({name: s.halves[n] for name, s in samples.items()}, measures) for n in (0, 1)]
    merged = merged_halves(renewal.node, halves[0], halves[1], measures)
    _compare(renewal.node, whole, merged)


def _try_rows_of_keys(renewal: Renewal, samples: Mapping[str, _Sample], whole: DataFrame, measures: StructType) -> bool:
    """accumulate: the rows that the inputs have of some keys give the measures that all rows give for these keys."""
    node = renewal.node
    given = [(edge, samples[edge.parameter].rows) for edge in node.edges if not edge.lookup]
    halves = _halves_of(node, whole.select(*(quoted(key) for key in node.keys)), renewal.scratch / "tried")
    for keys in halves:
        some = {edge.parameter: keys.restrict(rows, key_of(node, edge, rows.columns)) for edge, rows in given}
        _compare(node, keys.restrict(whole), renewal.measured(some, measures))
    return bool(halves)


def _try_some_rows(renewal: Renewal, edge: Edge) -> bool:
    """by_key over one input: the rows of half of some rows' keys give what all of those rows give for these keys.

    False where the rows are all of one key, so that nothing was tried.
    """
    node, sample = renewal.node, _Sample.of(renewal, edge)
    key = key_of(node, edge, sample.rows.columns)
    whole = renewal.computed({edge.parameter: sample.rows})
    halves = _halves_of(node, keys_in(sample.rows, key), renewal.scratch / "tried")
    for keys in halves:
        parts = renewal.computed({edge.parameter: keys.restrict(sample.rows, key)}, carried=True)
        _compare(node, keys.restrict(whole), parts)
    return bool(halves)


def _halves_of(node: Node, keys: DataFrame, place: Path) -> list[KeySet]:
    """The keys of some rows in two halves: what the one does not show the other may; none where they are all equal."""
    known = evaluate(keys.distinct(), place / "known").arrow()
    middle = known.num_rows // 2
    parts = [known.slice(0, middle), known.slice(middle)] if middle else []
    kept = [keep(keys.sparkSession, keys.schema, [part], place / str(n)) for n, part in enumerate(parts)]
    return [KeySet(node.keys, half, half.count()) for half in kept]


def _try_some_keys(renewal: Renewal, built: DataFrame) -> bool:
    """by_key: the inputs' rows of some keys give the rows that were built of them; False if there are no other keys."""
    node = renewal.node
    known = built.select(*(quoted(key) for key in node.keys)).distinct().limit(2 * KEYS_TRIED)
    halves = _halves_of(node, known, renewal.scratch / "tried")
    for keys in halves:
        again = kept(node, visible(renewal.again(keys, carried=True)))
        _compare(node, keys.restrict(built), columns_of(again, built.columns))
    return bool(halves)


@dataclass(frozen=True, slots=True)
class _Sample:
    """Some rows of an input, in two halves."""

    rows: DataFrame
    halves: Sequence[DataFrame]

    @classmethod
    def of(cls, renewal: Renewal, edge: Edge) -> _Sample:
        table, tables = str(edge.table), renewal.tables
        snapshot = renewal.ranges[table].end
        if tables.can_read(table, snapshot):
            return cls._of(renewal, edge, some_rows(tables.branch, table, snapshot, ROWS_TRIED))
        return cls._stored(renewal, edge, renewal.whole(edge))

    @classmethod
    def of_keys(cls, renewal: Renewal, edge: Edge, keys: KeySet) -> _Sample:
        """Rows of some keys."""
        rows = renewal.whole(edge)
        return cls._stored(renewal, edge, keys.restrict(rows, key_of(renewal.node, edge, rows.columns)))

    @classmethod
    def _stored(cls, renewal: Renewal, edge: Edge, rows: DataFrame) -> _Sample:
        stored = evaluate(rows.limit(ROWS_TRIED), renewal.scratch / f"rows-of-{edge.parameter}")
        return cls._of(renewal, edge, stored.arrow())

    @classmethod
    def _of(cls, renewal: Renewal, edge: Edge, found: pa.Table) -> _Sample:
        place = renewal.scratch / f"sample-{edge.parameter}"
        return cls.halved(renewal.tables.spark, renewal.whole(edge).schema, found, place)

    @classmethod
    def halved(cls, spark: SparkSession, schema: StructType, found: pa.Table, place: Path) -> _Sample:
        """Rows in memory as a sample: every other row goes into the same half."""
        halves = [found.take(pa.array(range(half, found.num_rows, 2), pa.int64())) for half in (0, 1)]
        frames = [keep(spark, schema, [half], place / str(n)).frame for n, half in enumerate(halves)]
        return cls(frames[0].unionByName(frames[1]), frames)


def _compare(node: Node, whole: DataFrame, parts: DataFrame) -> None:
    sides = {"whole": whole, "parts": parts.select(*map(quoted, whole.columns))}
    tagged = [_fixed(rows, node).withColumn(_SIDE, F.lit(side)) for side, rows in sides.items()]
    found: dict[str, list[Row]] = {"whole": [], "parts": []}
    for row in tagged[0].unionByName(tagged[1]).collect():
        found[row[_SIDE]].append(row)
    wanted, given = (Counter(plain(row[:-1]) for row in found[side]) for side in ("whole", "parts"))
    if wanted != given:
        raise _broken(node, found)


def _fixed(rows: DataFrame, node: Node) -> DataFrame:
    fixed = comparable(rows.select(*(quoted(column) for column in rows.columns if column not in node.volatile)))
    times = {field.name for field in fixed.schema if isinstance(field.dataType, DatetimeType)}
    # Python has no year after 9999, Spark has.
    told = [F.col(quoted(n)).cast("string").alias(n) if n in times else F.col(quoted(n)) for n in fixed.columns]
    return fixed.select(*told)


def comparable(rows: DataFrame) -> DataFrame:
    """The rows with DOUBLEs cut to the digits that do not depend on the order of a sum."""
    inexact = {field.name for field in rows.schema if isinstance(field.dataType, DoubleType | FloatType)}
    cut = {name: F.col(quoted(name)).cast("float").alias(name) for name in inexact}
    return rows.select(*(cut.get(name, F.col(quoted(name))) for name in rows.columns))


def _broken(node: Node, found: Mapping[str, list[Row]]) -> PromiseBroken:
    told = {side: {plain(row[:-1]): row for row in rows} for side, rows in found.items()}
    odd = next(
        (row for side in told for known, row in told[side].items() if known not in told[_OTHER[side]]),
        found["whole"][0] if found["whole"] else None,
    )
    shown = {side: _row_of(node, rows, odd) for side, rows in found.items()}
    keys = ", ".join(map(repr, node.keys))
    first = next((e for e in node.edges[1:] if not e.lookup), node.edges[0])
    if not node.keys:
        remedy = "its rows depend on each other: declare it by_key(...), accumulate(...) or full()"
    elif isinstance(node.refresh, Accumulate):
        remedy = (
            f"use measures that merge as declared, or declare the table by_key({keys}); if the function derives the key"
            f' from another column, declare it: ref("{first.table}", {node.keys[0]}="...")'
        )
    else:
        remedy = (
            "the rows of a key must depend only on input rows of that key: if an input has the key under a different"
            f' name, write inputs={{"{first.parameter}": ref("{first.table}", {node.keys[0]}="...")}}; if rows of other'
            f' keys are needed, pass lookup("{first.table}"), or declare the table full()'
        )
        if carried := next((edge for edge in node.edges if edge.on), None):
            remedy = f'omit `on` in lookup("{carried.table}", on=...) if it is joined on other columns; {remedy}'
    return PromiseBroken(
        f"{node.name} does not keep the promise of {node.refresh.kind}({keys}): computed from all rows at once:"
        f" {shown['whole']}; computed incrementally: {shown['parts']}",
        where=str(node.location),
        remedy=remedy,
    )


_OTHER = {"whole": "parts", "parts": "whole"}


def _row_of(node: Node, rows: list[Row], odd: Row | None) -> str:
    """The row of the same key, as an author would like to see it."""
    if not node.keys:
        return f"{len(rows)} rows"
    same = [row for row in rows if odd is not None and [row[k] for k in node.keys] == [odd[k] for k in node.keys]]
    if not same:
        return "no row"
    return str({name: value for name, value in same[0].asDict().items() if name != _SIDE})
