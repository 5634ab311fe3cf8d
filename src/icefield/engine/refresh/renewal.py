"""New rows for the keys that a change touches: computed again from the inputs, or merged into what is stored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from icefield.engine.batch import Batch, InMemory, evaluate, nullable
from icefield.engine.checks.duplicates import sent
from icefield.engine.refresh.changes import Change, change_of, rows_changed
from icefield.engine.refresh.difference import ADDED, REMOVED
from icefield.engine.refresh.keys import KeySet, held_keys, key_of, key_set, keys_in, keys_of_rows, rows_of_keys
from icefield.engine.refresh.measures import (
    AGAIN,
    OLD,
    ROW,
    SIDE,
    adds_up,
    count_name,
    merge,
    part_name,
    with_added,
)
from icefield.engine.sql import fitted, quoted
from icefield.errors import PromiseBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

    from icefield.engine.tables import Tables
    from icefield.graph import Edge, Node
    from icefield.plan import Range


#: More keys than this are joined with what is stored, where they can be.
MANY = 100_000
#: Where more than so many times as many rows are stored, most keys that come are new: only keys are read at first.
_MORE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """One keyed table, its function, and where its inputs stand now and stood when it last read them."""

    tables: Tables
    node: Node
    function: Callable[..., Any]
    ranges: Mapping[str, Range]
    scratch: Path

    def again(self, keys: KeySet, *, carried: bool = False) -> DataFrame:
        """The function over all rows that the inputs have of these keys; `carried`: see `computed`."""
        some = {edge.parameter: self._of_keys(edge, keys) for edge in self.node.edges if not edge.lookup}
        return self.computed(some, carried=carried)

    def _of_keys(self, edge: Edge, keys: KeySet) -> DataFrame:
        """The rows that an input has of some keys."""
        assert edge.table is not None
        columns = self.tables.columns(edge.table)
        if columns is not None and (own := key_of(self.node, edge, columns)) and all(own.values()):
            held = rows_of_keys(self.tables, edge.table, self.ranges[edge.table].end, keys, own)
            if held is not None:
                return held.frame
        rows = self.whole(edge)
        return keys.restrict(rows, self._key(edge, rows))

    def touched(self, like: StructType) -> KeySet:
        """The keys that old and new images of changed rows have, and those that carry a changed row of a lookup."""
        if (held := self.touched_in_memory(like)) is not None:
            return held
        found = []
        for edge in self.node.edges:
            assert edge.table is not None
            change = self._change(edge.table)
            if edge.lookup:
                found += self._carrying(edge, change)
            else:
                found += [keys_in(rows, self._key(edge, rows)) for rows in change.rows]
        return key_set(found, self.node.keys, like, self.scratch / "touched")

    def touched_in_memory(self, like: StructType) -> KeySet | None:
        """The same without a query, where all that changed is in memory and its keys can be told there."""
        zone = str(self.tables.spark.conf.get("spark.sql.session.timeZone"))
        parts = []
        for edge in self.node.edges:
            assert edge.table is not None
            if not self.ranges[edge.table].changed:
                continue
            rows = None if edge.lookup else rows_changed(self.tables, edge.table, self.ranges[edge.table])
            if rows is None:
                return None
            own = key_of(self.node, edge, rows.column_names)
            schema = from_arrow_schema(rows.schema)
            keys = keys_of_rows(rows, own, schema, zone) if all(own.values()) else None
            if keys is None:
                return None
            parts.append(keys)
        return held_keys(parts, self.node.keys, like, self.tables.spark)

    def _carrying(self, lookup: Edge, change: Change) -> list[DataFrame]:
        """Keys of the keyed inputs' rows that carry a value of a lookup that changed."""
        if not change.rows:
            return []
        values = [rows.select(*(quoted(column) for column in lookup.on)) for rows in change.rows]
        place = self.scratch / f"changed-{lookup.parameter}"
        changed = evaluate(reduce(lambda a, b: a.unionByName(b), values).distinct(), place)
        keys = KeySet(lookup.on, changed, changed.count())
        found = []
        for edge in self.node.edges:
            rows = self.whole(edge)
            if not edge.lookup and set(lookup.on) <= set(rows.columns):
                found.append(keys_in(keys.restrict(rows), self._key(edge, rows)))
        return found

    def _change(self, table: str) -> Change:
        return change_of(self.tables, table, self.ranges[table])

    def whole(self, edge: Edge) -> DataFrame:
        """All rows of an input."""
        assert edge.table is not None
        return self.tables.read(edge.table, self.ranges[edge.table].end)

    def _key(self, edge: Edge, rows: DataFrame) -> dict[str, str]:
        return key_of(self.node, edge, rows.columns)

    # -- measures that merge

    def delta(self, like: StructType) -> Batch:
        """The function of what came and of what went: keys, measures, and which of the two it is."""
        return evaluate(self._delta(like), self.scratch / "delta")

    def _delta(self, like: StructType) -> DataFrame:
        changes = self._changes()
        sides = {ADDED: {name: change.added for name, change in changes.items()}}
        if any(change.removed is not None for change in changes.values()):
            sides[REMOVED] = {name: change.removed for name, change in changes.items()}
        measured = [self.measured(rows, like).withColumn(SIDE, F.lit(side)) for side, rows in sides.items()]
        return reduce(lambda a, b: a.unionByName(b), measured)

    def added_many(self) -> bool:
        """Whether the last update had new keys alone, and many of them."""
        return self.tables.last_appended(self.node.name) > MANY

    def came(self, like: StructType) -> DataFrame | None:
        """The measures of what came; None where rows went, too."""
        changes = self._changes()
        if any(change.removed is not None for change in changes.values()):
            return None
        return self.measured({name: change.added for name, change in changes.items()}, like)

    def _changes(self) -> dict[str, Change]:
        return {
            edge.parameter: self._change(edge.table)
            for edge in self.node.edges
            if edge.table is not None and not edge.lookup
        }

    def measured(self, rows: Mapping[str, DataFrame | None], like: StructType) -> DataFrame:
        """The measures of some rows of the inputs."""
        output = self.computed(rows)
        return fitted(output, like)

    def computed(self, rows: Mapping[str, DataFrame | None], *, carried: bool = False) -> DataFrame:
        """The function over some rows of its inputs (None: no rows), lookups whole.

        `carried`: of `lookup(t, on=...)` only what these rows carry, since other rows of it are said not to matter.
        """
        frames = {}
        for edge in self.node.edges:
            given = None if edge.lookup else rows[edge.parameter]
            if given is None:
                given = self.whole(edge) if edge.lookup else self.whole(edge).limit(0)
            frames[edge.parameter] = given
        if carried:
            frames |= {edge.parameter: self._carried(edge, frames) for edge in self.node.edges if edge.on}
        output: DataFrame = self.function(**frames)
        return output

    def _carried(self, lookup: Edge, frames: Mapping[str, DataFrame]) -> DataFrame:
        """The rows of a lookup with a value that the rows of an input have."""
        values = [
            frames[edge.parameter].select(
                *(F.col(quoted(c)).alias(part_name("on", n)) for n, c in enumerate(lookup.on))
            )
            for edge in self.node.edges
            if not edge.lookup and set(lookup.on) <= set(frames[edge.parameter].columns)
        ]
        same = [F.col(quoted(column)).eqNullSafe(F.col(part_name("on", n))) for n, column in enumerate(lookup.on)]
        found = reduce(lambda a, b: a.unionByName(b), values)
        return frames[lookup.parameter].join(found, reduce(lambda a, b: a & b, same), "left_semi")

    def merged(
        self, delta: KeySet, stored: DataFrame, total: int, like: StructType, is_sure: Callable[[], bool]
    ) -> Merged:
        """The measures of every touched key after the change; keys that cannot be merged exactly are computed again.

        `total`: how many rows are stored. `is_sure`: whether the function surely gives one row a key. Many rows that
        only came are joined with what is stored then, which takes a fraction of the time.
        """
        joined = delta.count > MANY and is_sure() and adds_up(self.node, like) and not _removes(delta)
        if not joined:
            return self._merged(delta.stored.frame, delta.restrict(stored), like)
        old = self.old_rows(delta, stored, total)
        count = old.count()
        if KeySet(self.node.keys, old, count).distinct() < count:  # someone else's rows, which were accepted
            return self._merged(delta.stored.frame, old.frame, like)
        if not count:
            return Merged(old.frame, delta.stored.frame.select(*(quoted(field.name) for field in like)), known=0)
        known = sent(old.frame, count)
        return Merged(known, with_added(self.node, delta.stored.frame, known, like), known=count)

    def only_adds(self) -> bool:
        """Whether rows only came to the inputs."""
        return all(change.removed is None for change in self._changes().values())

    def added_to(self, stored: InMemory, like: StructType) -> DataFrame:
        """The measures of all keys that came or are stored, where rows only came and each key has one row."""
        measures = [quoted(field.name) for field in like]
        old = stored.frame.select(*measures, F.lit(None).cast("string").alias(ROW), F.lit(OLD).alias(SIDE))
        rows = self._delta(like).unionByName(old, allowMissingColumns=True)
        return merge(self.node, rows, like).select(*measures)

    def merged_in_memory(self, touched: KeySet, stored: InMemory, like: StructType) -> Merged | None:
        """The same by one query, where the touched keys and what is stored of them are in memory.

        None where the function gives other keys than its inputs' rows have.
        """
        merged = self._merged(self._delta(like), stored.frame, like)
        held = merged.all_keys
        return merged if held is not None and pc.all(touched.among(held)).as_py() is not False else None

    def old_rows(self, delta: KeySet, stored: DataFrame, total: int) -> Batch:
        """The stored rows, of so many, of keys that came; those of other keys that have a hash of theirs do no harm."""
        return evaluate(self._known(delta, stored, total), self.scratch / "old")

    def _known(self, delta: KeySet, stored: DataFrame, total: int) -> DataFrame:
        if total <= _MORE * delta.count:
            return delta.restrict(stored)
        names = [quoted(key) for key in self.node.keys]
        found = evaluate(delta.likely(stored.select(*names)), self.scratch / "known")
        known = KeySet(self.node.keys, found, found.count())
        return known.restrict(stored) if known.count else stored.limit(0)

    def _merged(self, delta: DataFrame, stored: DataFrame, like: StructType) -> Merged:
        measures = [quoted(field.name) for field in like]
        whole = F.struct(*(quoted(column) for column in stored.columns)).alias(ROW)
        old = stored.select(*measures, whole, F.lit(OLD).alias(SIDE))
        rows = delta.unionByName(old, allowMissingColumns=True)
        found = evaluate(merge(self.node, rows, like), self.scratch / "merged")
        _refuse_several_rows(self.node, found)
        doubtful = bool(pc.any(found.arrow([AGAIN])[AGAIN]).as_py())
        if isinstance(found, InMemory):
            merged = _held(found, like, stored.schema, self.node.keys)
            if not doubtful:
                return merged
            before, sound = merged.before, merged.measures
        else:
            before = found.frame.where(f"{ROW} IS NOT NULL").select(f"{ROW}.*")
            sound = found.frame.where(f"NOT {AGAIN}").select(*measures)
            if not doubtful:
                return Merged(before, sound)
        open_keys = key_set([found.frame.where(AGAIN)], self.node.keys, like, self.scratch / "again")
        fresh = fitted(self.again(open_keys), like)
        merged = Merged(before, sound.unionByName(fresh))
        return replace(merged, all_keys=found.arrow(list(self.node.keys))) if isinstance(found, InMemory) else merged


def _held(found: InMemory, like: StructType, stored: StructType, keys: Sequence[str]) -> Merged:
    """Merged rows in memory, taken apart there."""
    known = found.table.filter(pc.is_valid(found.table[ROW]))[ROW]
    columns = to_arrow_schema(nullable(stored))
    chunks = [pa.table([chunk.field(n) for n in range(len(columns))], schema=columns) for chunk in known.chunks]
    rows = pa.concat_tables([columns.empty_table(), *chunks])
    before = InMemory(found.spark, nullable(stored), rows)
    sound = found.table.filter(pc.invert(found.table[AGAIN])).select(like.names)
    measures = InMemory(found.spark, StructType([found.schema[name] for name in like.names]), sound)
    return Merged(before.frame, measures.frame, None, before, measures, found.table.select(list(keys)))


@dataclass(frozen=True, slots=True)
class Merged:
    """Touched keys: the rows that hold their measures now, and the measures they are to have.

    `known`: each key surely has one row at most before, so many in all, and one after; None: that is not sure.
    """

    before: DataFrame
    measures: DataFrame
    known: int | None = None
    #: Both in memory, if they are there, and the keys of all rows that were merged.
    rows_before: InMemory | None = None
    rows_after: InMemory | None = None
    all_keys: pa.Table | None = None


def _removes(delta: KeySet) -> bool:
    """Whether rows went, too."""
    return any(pc.any(pc.equal(part[SIDE], REMOVED)).as_py() for part in delta.stored.batches([SIDE]))


def _refuse_several_rows(node: Node, found: Batch) -> None:
    counts = found.arrow([count_name(side) for side in (OLD, ADDED, REMOVED)])
    if any((pc.max(column).as_py() or 0) > 1 for column in counts.columns):
        raise PromiseBroken(
            f"the function of {node.name} returns more than one row per key, but accumulate() needs exactly one",
            where=str(node.location),
            remedy=f"group by {', '.join(node.keys)} only, or declare it by_key({', '.join(map(repr, node.keys))})",
        )
