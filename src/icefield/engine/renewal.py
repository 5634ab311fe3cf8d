"""New rows for the keys that a change touches: computed again from the inputs, or merged into what is stored."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType, IntegralType

from icefield.declare import Accumulate
from icefield.engine.amounts import ROUNDED
from icefield.engine.changes import Change, change_of
from icefield.engine.difference import ADDED, REMOVED
from icefield.engine.keyed import KeySet, key_of, key_set, keys_in
from icefield.engine.repeats import sent
from icefield.engine.scratch import Stored, store
from icefield.engine.sql import quoted
from icefield.errors import PromiseBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType

    from icefield.engine.tables import Tables
    from icefield.graph import Edge, Node
    from icefield.plan import Range

#: More keys than this are joined with what is stored, where they can be.
MANY = 100_000
#: Where more than so many times as many rows are stored, most keys that come are new: only keys are read at first.
_MORE = 2
_SIDE, _AGAIN, _ROW, _OLD = "_icefield_side", "_icefield_again", "_icefield_row", "stored"


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
        whole = {edge.parameter: (edge, self.whole(edge)) for edge in self.node.edges if not edge.lookup}
        some = {name: keys.restrict(rows, self._key(edge, rows)) for name, (edge, rows) in whole.items()}
        return self.computed(some, carried=carried)

    def touched(self, like: StructType) -> KeySet:
        """The keys that old and new images of changed rows have, and those that carry a changed row of a lookup."""
        found = []
        for edge in self.node.edges:
            assert edge.table is not None
            change = self._change(edge.table)
            if edge.lookup:
                found += self._carrying(edge, change)
            else:
                found += [keys_in(rows, self._key(edge, rows)) for rows in change.rows]
        return key_set(found, self.node.keys, like, self.scratch / "touched")

    def _carrying(self, lookup: Edge, change: Change) -> list[DataFrame]:
        """Keys of the keyed inputs' rows that carry a value of a lookup that changed."""
        if not change.rows:
            return []
        values = [rows.select(*(quoted(column) for column in lookup.on)) for rows in change.rows]
        place = self.scratch / f"changed-{lookup.parameter}"
        changed = store(reduce(lambda a, b: a.unionByName(b), values).distinct(), place)
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

    def delta(self, like: StructType) -> Stored:
        """The function of what came and of what went: keys, measures, and which of the two it is."""
        changes = self._changes()
        sides = {ADDED: {name: change.added for name, change in changes.items()}}
        if any(change.removed is not None for change in changes.values()):
            sides[REMOVED] = {name: change.removed for name, change in changes.items()}
        measured = [self.measured(rows, like).withColumn(_SIDE, F.lit(side)) for side, rows in sides.items()]
        return store(reduce(lambda a, b: a.unionByName(b), measured), self.scratch / "delta")

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
        return output.select(*(F.col(quoted(f.name)).cast(f.dataType).alias(f.name) for f in like))

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
            frames[edge.parameter].select(*(F.col(quoted(c)).alias(_part("on", n)) for n, c in enumerate(lookup.on)))
            for edge in self.node.edges
            if not edge.lookup and set(lookup.on) <= set(frames[edge.parameter].columns)
        ]
        same = [F.col(quoted(column)).eqNullSafe(F.col(_part("on", n))) for n, column in enumerate(lookup.on)]
        found = reduce(lambda a, b: a.unionByName(b), values)
        return frames[lookup.parameter].join(found, reduce(lambda a, b: a & b, same), "left_semi")

    def merged(
        self, delta: KeySet, stored: DataFrame, total: int, like: StructType, is_sure: Callable[[], bool]
    ) -> Merged:
        """The measures of every touched key after the change; keys that cannot be merged exactly are computed again.

        `total`: how many rows are stored. `is_sure`: whether the function surely gives one row a key. Many rows that
        only came are joined with what is stored then, which takes a fraction of the time.
        """
        joined = delta.count > MANY and is_sure() and _adds_up(self.node, like) and not _removes(delta)
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

    def old_rows(self, delta: KeySet, stored: DataFrame, total: int) -> Stored:
        """The stored rows, of so many, of keys that came; those of other keys that have a hash of theirs do no harm."""
        return store(self._known(delta, stored, total), self.scratch / "old")

    def _known(self, delta: KeySet, stored: DataFrame, total: int) -> DataFrame:
        if total <= _MORE * delta.count:
            return delta.restrict(stored)
        names = [quoted(key) for key in self.node.keys]
        found = store(delta.likely(stored.select(*names)), self.scratch / "known")
        known = KeySet(self.node.keys, found, found.count())
        return known.restrict(stored) if known.count else stored.limit(0)

    def _merged(self, delta: DataFrame, stored: DataFrame, like: StructType) -> Merged:
        measures = [quoted(field.name) for field in like]
        whole = F.struct(*(quoted(column) for column in stored.columns)).alias(_ROW)
        old = stored.select(*measures, whole, F.lit(_OLD).alias(_SIDE))
        rows = delta.unionByName(old, allowMissingColumns=True)
        found = store(merge(self.node, rows, like), self.scratch / "merged")
        _refuse_several_rows(self.node, found)
        before = found.frame.where(f"{_ROW} IS NOT NULL").select(f"{_ROW}.*")
        sound = found.frame.where(f"NOT {_AGAIN}").select(*measures)
        if not pc.any(found.arrow([_AGAIN])[_AGAIN]).as_py():
            return Merged(before, sound)
        open_keys = key_set([found.frame.where(_AGAIN)], self.node.keys, like, self.scratch / "again")
        fresh = self.again(open_keys).select(*(F.col(quoted(f.name)).cast(f.dataType).alias(f.name) for f in like))
        return Merged(before, sound.unionByName(fresh))


@dataclass(frozen=True, slots=True)
class Merged:
    """Touched keys: the rows that hold their measures now, and the measures they are to have.

    `known`: each key surely has one row at most before, so many in all, and one after; None: that is not sure.
    """

    before: DataFrame
    measures: DataFrame
    known: int | None = None


def _removes(delta: KeySet) -> bool:
    """Whether rows went, too."""
    return any(pc.any(pc.equal(part[_SIDE], REMOVED)).as_py() for part in delta.stored.batches([_SIDE]))


def _adds_up(node: Node, like: StructType) -> bool:
    """Whether `+` gives up no digits of any sum."""
    assert isinstance(node.refresh, Accumulate)
    sums = [like[name].dataType for name, how in node.refresh.measures.items() if how == "sum"]
    return not any(ROUNDED.fullmatch(kind.simpleString()) for kind in sums)


def with_added(node: Node, delta: DataFrame, stored: DataFrame, like: StructType) -> DataFrame:
    """The measures of what came, with those that are stored; both have one row a key at most."""
    assert isinstance(node.refresh, Accumulate)
    names = [field.name for field in like]
    old = stored.select(*(F.col(quoted(name)).alias(_part(_OLD, n)) for n, name in enumerate(names)))
    place = {name: F.col(_part(_OLD, n)) for n, name in enumerate(names)}
    same = reduce(lambda a, b: a & b, [F.col(quoted(key)).eqNullSafe(place[key]) for key in node.keys])
    joined = delta.join(old, same, "left")
    return joined.select(*(_with_old(node.refresh.measures.get(f.name), place[f.name], f) for f in like))


def _with_old(how: str | None, old: Column, field: StructField) -> Column:
    new = F.col(quoted(field.name))
    value = new  # of a key
    if how == "sum":
        value = F.when(old.isNull(), new).when(new.isNull(), old).otherwise(old + new)
    elif how is not None:
        value = F.least(old, new) if how == "min" else F.greatest(old, new)
    return value.cast(field.dataType).alias(field.name)


def merged_halves(node: Node, one: DataFrame, other: DataFrame, like: StructType) -> DataFrame:
    """The measures of two halves, merged as those of new rows are into the stored ones."""
    sides = one.withColumn(_SIDE, F.lit(_OLD)).unionByName(other.withColumn(_SIDE, F.lit(ADDED)))
    merged = merge(node, sides.withColumn(_ROW, F.lit(None).cast("string")), like)
    return merged.select(*(quoted(field.name) for field in like))


def merge(node: Node, rows: DataFrame, like: StructType) -> DataFrame:
    """One row a key: its measures after the change, whether that is in doubt, and how many rows each side gave."""
    assert isinstance(node.refresh, Accumulate)

    def of(side: str, measure: str) -> Column:
        return F.first(F.when(F.col(_SIDE) == side, F.col(quoted(measure))), ignorenulls=True)

    measures = list(node.refresh.measures)
    sides = [of(s, m).alias(_part(s, n)) for n, m in enumerate(measures) for s in (_OLD, ADDED, REMOVED)]
    counts = [F.count_if(F.col(_SIDE) == side).alias(f"_icefield_{side}") for side in (_OLD, ADDED, REMOVED)]
    keys = [F.col(quoted(key)) for key in node.keys]
    totals = [_total(m).alias(_part("total", n)) for n, m in enumerate(measures) if node.refresh.measures[m] == "sum"]
    joined = rows.groupBy(*keys).agg(*counts, *sides, *totals, F.first(_ROW, ignorenulls=True).alias(_ROW))
    merges = [_merged(node.refresh.measures[m], n, like[m]) for n, m in enumerate(measures)]
    values = [
        value.cast(like[measure].dataType).alias(measure) for measure, (value, _) in zip(measures, merges, strict=True)
    ]
    # A key that lost rows surely has some left where rows came for it, too, or where something is left to be summed.
    lost = F.col(f"_icefield_{REMOVED}") > 0
    sums = [_is_left(n, like[m]) for n, m in enumerate(measures) if node.refresh.measures[m] == "sum"]
    left = reduce(lambda a, b: a | b, sums, F.col(f"_icefield_{ADDED}") > 0)
    uncertain = lost & (~left | (F.col(f"_icefield_{_OLD}") == 0))
    doubtful = reduce(lambda a, b: a | b, [uncertain, *(doubt for _, doubt in merges)])
    names = [F.col(f"_icefield_{side}") for side in (_OLD, ADDED, REMOVED)]
    again = F.coalesce(doubtful, F.lit(True)).alias(_AGAIN)  # noqa: FBT003 - Spark's literal
    return joined.select(*keys, *values, again, *names, _ROW)


def _is_left(number: int, field: StructField) -> Column:
    """Whether a sum after the change is surely one of some values: they do not add up to 0."""
    exact = isinstance(field.dataType, IntegralType | DecimalType)
    return F.coalesce(F.col(_part("total", number)) != 0, F.lit(False)) if exact else F.lit(False)  # noqa: FBT003


def _merged(how: str, number: int, field: StructField) -> tuple[Column, Column]:
    """The new value of a measure, and whether it is in doubt."""
    old, added, removed = (F.col(_part(side, number)) for side in (_OLD, ADDED, REMOVED))
    if how == "sum":
        # A sum without any value is NULL, unless the function says otherwise: values must be left where it may be.
        empty = added.isNull() & ~_is_left(number, field) if field.nullable else F.lit(False)  # noqa: FBT003
        return F.col(_part("total", number)), removed.isNotNull() & (old.isNull() | empty)
    pick, reaches = (F.least, old >= added) if how == "min" else (F.greatest, old <= added)
    beyond = (removed <= old) if how == "min" else (removed >= old)
    was_extreme = removed.isNotNull() & F.coalesce(beyond, F.lit(True))  # noqa: FBT003 - Spark's literal
    return pick(old, added), was_extreme & ~F.coalesce(reaches, F.lit(False))  # noqa: FBT003 - Spark's literal


def _total(measure: str) -> Column:
    """What is stored and came, less what went: by an aggregate, since `+` of long DECIMALs gives up digits."""
    value = F.col(quoted(measure))
    return F.sum(F.when(F.col(_SIDE) == REMOVED, -value).otherwise(value))


def _part(side: str, number: int) -> str:
    return f"_icefield_{side}_{number}"


def _refuse_several_rows(node: Node, found: Stored) -> None:
    counts = found.arrow([f"_icefield_{side}" for side in (_OLD, ADDED, REMOVED)])
    if any((pc.max(column).as_py() or 0) > 1 for column in counts.columns):
        raise PromiseBroken(
            f"the function of {node.name} returns more than one row per key, but accumulate() needs exactly one",
            where=str(node.location),
            remedy=f"group by {', '.join(node.keys)} only, or declare it by_key({', '.join(map(repr, node.keys))})",
        )
