"""Refreshes a keyed table by its keys: only what changed is read, computed and written."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
from pyspark.sql import functions as F

from icefield.declare import Accumulate
from icefield.engine.arrow_rows import can_be_compared, distinct_rows
from icefield.engine.batch import Batch, InMemory, evaluate
from icefield.engine.checks.rejects import to_quarantine
from icefield.engine.checks.split import Split, failing_counts, splitting, with_flags
from icefield.engine.checks.view import Moves, TableView
from icefield.engine.clock import spent
from icefield.engine.frames import small_frame
from icefield.engine.limits import compared_rows
from icefield.engine.origin import visible
from icefield.engine.promises.naming import require_same_columns
from icefield.engine.promises.trial import try_touched
from icefield.engine.refresh.changes import held_difference, numbered
from icefield.engine.refresh.difference import ADDED, CHANGE, difference, difference_of_pairs
from icefield.engine.refresh.keys import KeySet, key_set, rows_of_keys
from icefield.engine.refresh.replace import Came, Given, Went, put, replace_keys, require_own_keys
from icefield.engine.sql import fitted, quoted
from icefield.failpoint import failpoint
from icefield.graph import measures_of, quarantine_of
from icefield.graph.news import FilesNews
from icefield.lake import metadata as meta

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from icefield.engine.intake.port import Landed
    from icefield.engine.refresh.renewal import Merged, Renewal
    from icefield.engine.refresh.stage import Stage
    from icefield.engine.tables import Appended
    from icefield.graph import Node
    from icefield.graph.state import TableState
    from icefield.plan import Step

    Finish = Callable[[DataFrame], DataFrame]

#: When more than this share of a by_key table's keys changed, computing everything is cheaper than telling them apart.
REBUILD_SHARE = 0.5
#: Up to so many rows the keys of a table are counted without Spark, and up to so many at every update.
_IN_MEMORY, _COUNTED = 2_000_000, 50_000
#: Up to so many rows of its inputs a merge that is not proven is tried at every update.
_TRIED = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Updated:
    """What an update did."""

    added: int
    removed: int
    split: Split
    tables: tuple[str, ...]
    keys: int | None
    #: All rows that came, or that the table now has of the keys that were touched, and the rows that went.
    moves: Moves
    #: Rows among those that came that had waited in quarantine.
    freed: int = 0
    #: How many keys the table had, and rows, when they were last counted.
    counted: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MostChanged:
    """Why nothing was done: a rebuild is cheaper."""

    touched: int
    keys: int

    @property
    def told(self) -> str:
        """The reason, in words."""
        return f"{self.touched:,} of {self.keys:,} keys changed" if self.keys else "the table was empty"


def update(
    stage: Stage, node: Node, step: Step, state: TableState, landed: Landed | None = None
) -> Updated | MostChanged | str:
    """Finds the keys that the inputs' changes touch, and puts their new rows in place of the old ones."""
    work = _Update(stage, node, step, state, landed)
    with spent("compute"):
        if landed is not None:
            found: _Found | MostChanged | str = work.compute_landed(landed)
        elif not isinstance(node.refresh, Accumulate):
            found = work.compute()
        elif (added := work.add_new()) is not None:
            return added
        else:
            found = work.merge()
    return found if isinstance(found, MostChanged | str) else work.write(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The touched keys, their rows as they are, what the function makes of them now, and the measures behind that."""

    touched: KeySet
    before: DataFrame
    output: DataFrame
    measures: Batch | None = None
    #: Each key surely has one row at most before, so many in all, and one in the output; None: that is not sure.
    known: int | None = None
    counted: tuple[int, int] | None = None
    #: The rows as they are, in memory, where they are small.
    rows_before: InMemory | None = None
    #: What the function makes of them now, in memory, with the checks that each row fails.
    fresh: InMemory | None = None


@dataclass(frozen=True, slots=True)
class _Compared:
    """All new rows of the touched keys, unless a key has one; what goes and comes; how many fail each check of rows."""

    several: Batch | None
    change: Batch
    failing: Mapping[str, int] | None = None


def _are_unique(rows: InMemory, keys: Sequence[str]) -> bool:
    """Whether each key has one row; someone else may have written more, which was accepted."""
    return int(distinct_rows(rows.table.select(list(keys))).num_rows) == rows.count()


@dataclass(frozen=True, slots=True)
class _Update:
    stage: Stage
    node: Node
    step: Step
    state: TableState
    landed: Landed | None = None

    @property
    def scratch(self) -> Path:
        return self.stage.scratch(self.node)

    @property
    def renewal(self) -> Renewal:
        return self.stage.renewal(self.node, self.step)

    def compute(self) -> _Found | MostChanged:
        """by_key: the function over the inputs' rows of the touched keys."""
        touched = self.renewal.touched(self.stage.schemas[self.node.name])
        counted = self._counted() if touched.count and self.state.rows else self.state.keys
        if touched.count and (most := self._most(touched, counted)):
            return most
        return _Found(touched=touched, output=self.renewal.again(touched), counted=counted, **self._before(touched))

    def _before(self, touched: KeySet) -> dict[str, Any]:
        """The rows that the table has of the touched keys, in memory where they are small."""
        held = rows_of_keys(self.stage.tables, self.node.name, self.state.version.snapshot, touched)
        before = touched.restrict(self._published) if held is None else held.frame
        return {"before": before, "rows_before": held}

    def compute_landed(self, landed: Landed) -> _Found | str:
        """by_key over a source: the function over all files of the keys that the names of new or changed ones tell."""
        assert isinstance(self.step.news, FilesNews)
        keys, schema = self.node.keys, self.stage.schemas[self.node.name]
        self.stage.tables.grow(self.node.name, schema, self.node)
        rows = sorted(self.step.news.of_keys(keys))
        told = small_frame(self.stage.tables.spark, dict.fromkeys(keys, "STRING"), rows)
        touched = key_set([told], keys, schema, self.scratch / "touched")
        output = self.stage.functions[self.node.name](**self.stage.frames(self.node, self.step, landed))
        if why := self.stage.mixed(self.step, landed, output):
            return why
        return _Found(touched=touched, output=output, **self._before(touched))

    def add_new(self) -> Updated | None:
        """accumulate: what came, written at once where the last update had new keys alone, and many of them.

        If one was known after all, that is taken back: None.
        """
        name, tables = self.node.name, self.stage.tables
        if name in self.stage.apart or not self.renewal.added_many() or not self.stage.is_proven(self.node):
            return None
        came = self.renewal.came(self.stage.measures[name])
        if came is None:
            return None
        tables.branch.prepare(name)
        output = self._finish(came)
        split = self.stage.split(self.node, self.step, self.state, output, None)
        added = self._append(self._as_stored(self._published.schema, visible(split.good)))
        touched = KeySet(self.node.keys, added, added.count())
        if not touched.count or self.renewal.old_rows(touched, self._published, self.state.rows).count():
            tables.branch.prepare(name)
            return None
        return self._added(touched, split, added)

    def merge(self) -> _Found | MostChanged:
        """accumulate: measures of what came and went, merged into the stored ones; its cost is that of the change.

        A table without rows is built instead: its promise could not be tried before.
        """
        name, like = self.node.name, self.stage.measures[self.node.name]
        if (held := self._merge_in_memory(like)) is not None:
            return held
        delta = self.renewal.delta(like)
        touched = KeySet(self.node.keys, delta, delta.count())
        if touched.count and not self.state.rows:
            return MostChanged(touched=touched.count, keys=0)
        if name not in self.stage.apart:
            proven = partial(self.stage.is_proven, self.node)
            found = self.renewal.merged(touched, self._published, self.state.rows, like, proven)
            self._try(found, like)
            return _Found(touched=touched, before=found.before, output=self._finish(found.measures), known=found.known)
        beside = self.stage.tables.before(measures_of(name))
        # never joined: both tables are written by key
        found = self.renewal.merged(touched, beside, self.state.rows, like, lambda: False)
        self._try(found, like)
        measures = evaluate(found.measures, self.scratch / "measures")
        before = touched.restrict(self._published)
        return _Found(touched=touched, before=before, output=self._finish(measures.frame), measures=measures)

    def _merge_in_memory(self, like: StructType) -> _Found | None:
        """The same by one query, where the changes and what is stored of their keys are small."""
        name, tables, renewal = self.node.name, self.stage.tables, self.renewal
        touched = renewal.touched_in_memory(like)
        if touched is None or not touched.count or not self.state.rows:
            return None
        apart = name in self.stage.apart
        table = measures_of(name) if apart else name
        stored = rows_of_keys(tables, table, tables.snapshot_before(table), touched)
        plain = not apart and not any(splitting(self.node)) and self.stage.is_proven(self.node)
        if stored is not None and plain and renewal.only_adds() and _are_unique(stored, self.node.keys):
            return self._add_in_memory(touched, stored, like)
        merged = None if stored is None else renewal.merged_in_memory(touched, stored, like)
        if merged is None:
            return None
        self._try(merged, like)
        if not apart:
            output = self._finish(merged.measures)
            return _Found(touched=touched, before=merged.before, output=output, rows_before=merged.rows_before)
        measures = merged.rows_after or evaluate(merged.measures, self.scratch / "measures")
        return _Found(touched=touched, output=self._finish(measures.frame), measures=measures, **self._before(touched))

    def _add_in_memory(self, touched: KeySet, stored: InMemory, like: StructType) -> _Found | None:
        """Rows only came: merged, finished and checked by one query; None where the function makes keys of its own."""
        output = self._finish(self.renewal.added_to(stored, like))
        fresh = with_flags(self.node, self._as_stored(stored.schema, visible(output)))
        keys = None if fresh is None else fresh.table.select(list(self.node.keys))
        if keys is None or pc.all(touched.among(keys)).as_py() is False:
            return None
        return _Found(touched=touched, before=stored.frame, output=output, rows_before=stored, fresh=fresh)

    def _finish(self, measures: DataFrame) -> DataFrame:
        finish: Finish = self.stage.finishes.get(self.node.name, lambda rows: rows)
        return finish(measures)

    def _try(self, found: Merged, like: StructType) -> None:
        """As long as it costs little, what is not proven is tried whenever rows come to keys that are there."""
        branch = self.stage.tables.branch
        known = [branch.staged_metadata(name) or branch.base_metadata(name) for name in self.node.inputs]
        if sum(meta.total_records(one) for one in known if one) <= _TRIED and not self.stage.is_proven(self.node):
            try_touched(self.renewal, found.before.select(*(quoted(key) for key in self.node.keys)), like)

    def write(self, found: _Found) -> Updated:
        """Puts the new rows in place and tells what changed."""
        stage, node = self.stage, self.node
        if node.name not in stage.tables.grown:
            stage.tables.branch.prepare(node.name)
        if not found.touched.count:
            nothing = visible(found.output).limit(0)
            moves = Moves(self.state.version, TableView(nothing, 0))
            return Updated(added=0, removed=0, split=Split(good=nothing), tables=(node.name,), keys=0, moves=moves)
        split = stage.split(node, self.step, self.state, found.output, self.landed)
        after = visible(split.good)
        if found.known == 0:
            return self._added(found.touched, split, self._append(self._as_stored(found.before.schema, after)))
        compared = self._compared_in_memory(found, after) or self._compared(found, after)
        several, change = compared.several, compared.change
        if several is not None and self.landed is not None:
            split.require_nothing_lost(node, several.count(), self.landed.count)
        failpoint("stage.before-write", node.name)
        fresh: Came | Given = Came(change) if several is None else Given(several)
        with spent("write"):
            added, removed = put(stage.tables, node, self.state.rows, change, several, self.scratch)
            written = [node.name, *self._write_measures(found), *self._write_quarantine(found.touched, split)]
        if node.name in stage.followed and (added or removed):
            stage.tables.tell(node.name, change)
        failpoint("stage.written", node.name)
        count = added if several is None else several.count()
        came = TableView(fresh.frame, count, fresh.arrow, failing=compared.failing)
        return Updated(
            added=added,
            removed=removed,
            split=split,
            tables=tuple(written),
            keys=found.touched.distinct() if found.known is None else found.touched.count,
            moves=Moves(self.state.version, came, Went(change).arrow if removed else None),
            counted=found.counted,
        )

    def _compared(self, found: _Found, after: DataFrame) -> _Compared:
        """The new rows of the touched keys beside the old ones, by Spark."""
        several = None  # rows of a key: where it may have some, all of them are written again
        if not isinstance(self.node.refresh, Accumulate):
            with spent("compute"):
                several = evaluate(after, self.scratch / "fresh")
            after = several.frame
            if not self.stage.is_proven(self.node):
                require_own_keys(self.node, found.touched, after)
        return _Compared(several, self._difference(found.before, after, found.known))

    def _compared_in_memory(self, found: _Found, after: DataFrame) -> _Compared | None:
        """The same where both are small: one query gives the new rows, and which checks of rows they fail."""
        before = found.rows_before
        if before is None or not can_be_compared(before.table.schema):
            return None
        with spent("compute"):
            rows = found.fresh or with_flags(self.node, self._as_stored(before.schema, after))
        if rows is None:
            return None
        fresh = InMemory(rows.spark, before.schema, rows.table.select(before.schema.names))
        keyed = not isinstance(self.node.refresh, Accumulate)
        if keyed and not self.stage.is_proven(self.node):
            require_own_keys(self.node, found.touched, fresh.frame)
        change, came = held_difference(before, fresh, self.state.version.number + 1)
        failing = failing_counts(self.node, rows.table if keyed else rows.table.filter(came))
        return _Compared(fresh if keyed else None, change, failing)

    def _append(self, rows: DataFrame) -> Appended:
        """Writes rows of new keys, once: they are read from the table by whoever asks what came."""
        failpoint("stage.before-write", self.node.name)
        with spent("write"):
            self.stage.tables.append(self.node.name, rows)
        assert self.state.version.snapshot is not None
        return self.stage.tables.appended(self.node.name, self.state.version.snapshot)

    def _added(self, touched: KeySet, split: Split, came: Appended) -> Updated:
        """All keys are new."""
        name, tables = self.node.name, self.stage.tables
        written = (name, *self._write_quarantine(touched, split))
        count = came.count()
        if name in self.stage.followed and count:
            told = self._as_stored(self._published.schema, came.frame)  # with the columns that were told before
            tables.told[name] = self._numbered(told.withColumn(CHANGE, F.lit(ADDED)))
        failpoint("stage.written", name)
        moves = Moves(self.state.version, TableView(came.frame, count, came.read), appended=True)
        return Updated(added=count, removed=0, split=split, tables=written, keys=touched.count, moves=moves)

    def _difference(self, before: DataFrame, after: DataFrame, known: int | None) -> Batch:
        """What goes and what comes, once equal pairs have cancelled; evaluated once."""
        after = self._as_stored(before.schema, after)
        paired = known is not None
        change = difference_of_pairs(before, after, self.node.keys) if paired else difference(before, after)
        with spent("compute"):
            return evaluate(self._numbered(change), self.scratch / "difference")

    def _numbered(self, change: DataFrame) -> DataFrame:
        return numbered(change, self.state.version.number + 1)

    def _as_stored(self, before: StructType, after: DataFrame) -> DataFrame:
        """New rows in the types that are stored: Iceberg has no smaller integer than INT."""
        require_same_columns(self.node, before, after.schema)
        return fitted(after, before)

    @property
    def _published(self) -> DataFrame:
        return self.stage.tables.read(self.node.name, self.state.version.snapshot)

    def _most(self, touched: KeySet, counted: tuple[int, int] | None) -> MostChanged | None:
        """Whether most of the keys that the table will have are changed or new."""
        if not self.state.rows or counted is None:
            return MostChanged(touched=touched.count, keys=0)
        keys = round(counted[0] * self.state.rows / counted[1])
        if touched.count <= REBUILD_SHARE * keys:
            return None
        columns = [quoted(key) for key in self.node.keys]
        keys += touched.count - touched.restrict(self._published.select(*columns)).distinct().count()
        return MostChanged(touched=touched.count, keys=keys) if touched.count > REBUILD_SHARE * keys else None

    def _counted(self) -> tuple[int, int]:
        """How many keys the table has, and rows; those of a large one are counted again once it has grown by a tenth.

        It only decides what is cheaper, so that it need not be exact.
        """
        rows, known = self.state.rows, self.state.keys
        if known is not None and rows > _COUNTED and abs(rows - known[1]) <= known[1] // 10:
            return known
        return self._keys_now(), rows

    def _keys_now(self) -> int:
        if self.state.rows <= min(_IN_MEMORY, compared_rows()):
            known = self.stage.tables.distinct(self.node.name, self.state.version.snapshot, self.node.keys)
            if known is not None:
                return known
        return self._published.select(*(quoted(key) for key in self.node.keys)).distinct().count()

    def _write_measures(self, found: _Found) -> tuple[str, ...]:
        if found.measures is None:
            return ()
        tables, beside = self.stage.tables, measures_of(self.node.name)
        base = tables.branch.base_metadata(beside)
        total = meta.total_records(base) if base else 0
        tables.branch.prepare(beside)
        replace_keys(tables, self.node, beside, total, found.touched, Given(found.measures), self.scratch)
        return (beside,)

    def _write_quarantine(self, touched: KeySet, split: Split) -> tuple[str, ...]:
        """What waits of the touched keys is replaced, too: else each update would add the same rows again."""
        tables, name = self.stage.tables, quarantine_of(self.node.name)
        base = tables.branch.base_metadata(name)
        old = None if base is None or not meta.total_records(base) else touched.without(tables.before(name))
        new = None
        if split.bad is not None and split.quarantined:
            new = to_quarantine(split.bad, self.stage.run, self.stage.started_ms, self.scratch / "to-quarantine").frame
        frames = [frame for frame in (old, new) if frame is not None]
        if not frames:
            return ()
        waiting = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
        comment = f"Rows that {self.node.name} rejected."
        tables.ready(name, waiting.schema, None, comment, renamed=self.node.renamed)
        tables.overwrite(name, waiting)
        return (name,)
