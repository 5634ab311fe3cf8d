"""Refreshes accumulating tables: measures of new rows are merged with those that are stored."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyspark.sql import functions as F

from icefield.engine.arrow_rows import distinct_rows
from icefield.engine.batch import InMemory, evaluate
from icefield.engine.checks.split import Split, splitting, with_flags
from icefield.engine.checks.view import Moves, TableView
from icefield.engine.clock import spent
from icefield.engine.origin import visible
from icefield.engine.promises.trial import try_touched
from icefield.engine.refresh.computed import Computed, MostChanged, Updated
from icefield.engine.refresh.difference import ADDED, CHANGE
from icefield.engine.refresh.keys import KeySet, rows_of_keys
from icefield.engine.refresh.replace import Given, replace_keys
from icefield.engine.sql import quoted
from icefield.failpoint import failpoint
from icefield.graph import measures_of
from icefield.lake import metadata as meta

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from icefield.engine.refresh.renewal import Merged
    from icefield.engine.refresh.stage import Stage
    from icefield.engine.refresh.update import Update
    from icefield.engine.versions import Appended
    from icefield.graph import Node
    from icefield.graph.state import TableState

    Finish = Callable[[DataFrame], DataFrame]

#: Up to so many rows of its inputs a merge that is not proven is tried at every update.
_TRIED = 1_000_000


@dataclass(frozen=True, slots=True)
class Accumulating:
    """The incremental way of an accumulating table."""

    update: Update

    @property
    def node(self) -> Node:
        return self.update.node

    @property
    def stage(self) -> Stage:
        return self.update.stage

    @property
    def state(self) -> TableState:
        return self.update.state

    def add_new(self) -> Updated | None:
        """accumulate: what came, written at once where the last update had new keys alone, and many of them.

        If one was known after all, that is taken back: None.
        """
        name, tables = self.node.name, self.stage.tables
        if name in self.stage.apart or not self.update.renewal.added_many() or not self.stage.is_proven(self.node):
            return None
        came = self.update.renewal.came(self.stage.measures[name])
        if came is None:
            return None
        tables.branch.prepare(name)
        output = self.finish(came)
        split = self.stage.split(self.node, self.update.step, self.state, output, None)
        added = self.append(self.update.as_stored(self.update.published.schema, visible(split.good)))
        touched = KeySet(self.node.keys, added, added.count())
        if not touched.count or self.update.renewal.old_rows(touched, self.update.published, self.state.rows).count():
            tables.branch.prepare(name)
            return None
        return self.added(touched, split, added)

    def merge(self) -> Computed | MostChanged:
        """accumulate: measures of what came and went, merged into the stored ones; its cost is that of the change.

        A table without rows is built instead: its promise could not be tried before.
        """
        name, like = self.node.name, self.stage.measures[self.node.name]
        if (held := self.merge_in_memory(like)) is not None:
            return held
        delta = self.update.renewal.delta(like)
        touched = KeySet(self.node.keys, delta, delta.count())
        if touched.count and not self.state.rows:
            return MostChanged(touched=touched.count, keys=0)
        if name not in self.stage.apart:
            proven = partial(self.stage.is_proven, self.node)
            found = self.update.renewal.merged(touched, self.update.published, self.state.rows, like, proven)
            self.try_merge(found, like)
            return Computed(touched=touched, before=found.before, output=self.finish(found.measures), known=found.known)
        beside = self.stage.tables.before(measures_of(name))
        # never joined: both tables are written by key
        found = self.update.renewal.merged(touched, beside, self.state.rows, like, lambda: False)
        self.try_merge(found, like)
        measures = evaluate(found.measures, self.update.scratch / "measures")
        before = touched.restrict(self.update.published)
        return Computed(touched=touched, before=before, output=self.finish(measures.frame), measures=measures)

    def merge_in_memory(self, like: StructType) -> Computed | None:
        """The same by one query, where the changes and what is stored of their keys are small."""
        name, tables, renewal = self.node.name, self.stage.tables, self.update.renewal
        touched = renewal.touched_in_memory(like)
        if touched is None or not touched.count or not self.state.rows:
            return None
        apart = name in self.stage.apart
        table = measures_of(name) if apart else name
        stored = rows_of_keys(tables, table, tables.snapshot_before(table), touched)
        plain = not apart and not any(splitting(self.node)) and self.stage.is_proven(self.node)
        if stored is not None and plain and renewal.only_adds() and _are_unique(stored, self.node.keys):
            return self.add_in_memory(touched, stored, like)
        merged = None if stored is None else renewal.merged_in_memory(touched, stored, like)
        if merged is None:
            return None
        self.try_merge(merged, like)
        if not apart:
            output = self.finish(merged.measures)
            return Computed(touched=touched, before=merged.before, output=output, rows_before=merged.rows_before)
        measures = merged.rows_after or evaluate(merged.measures, self.update.scratch / "measures")
        return Computed(
            touched=touched, output=self.finish(measures.frame), measures=measures, **self.update.before(touched)
        )

    def add_in_memory(self, touched: KeySet, stored: InMemory, like: StructType) -> Computed | None:
        """Rows only came: merged, finished and checked by one query; None where the function makes keys of its own."""
        output = self.finish(self.update.renewal.added_to(stored, like))
        fresh = with_flags(self.node, self.update.as_stored(stored.schema, visible(output)))
        keys = None if fresh is None else fresh.table.select(list(self.node.keys))
        if keys is None or pc.all(touched.among(keys)).as_py() is False:
            return None
        return Computed(touched=touched, before=stored.frame, output=output, rows_before=stored, fresh=fresh)

    def finish(self, measures: DataFrame) -> DataFrame:
        finish: Finish = self.stage.finishes.get(self.node.name, lambda rows: rows)
        return finish(measures)

    def try_merge(self, found: Merged, like: StructType) -> None:
        """As long as it costs little, what is not proven is tried whenever rows come to keys that are there."""
        branch = self.stage.tables.branch
        known = [branch.staged_metadata(name) or branch.base_metadata(name) for name in self.node.inputs]
        if sum(meta.total_records(one) for one in known if one) <= _TRIED and not self.stage.is_proven(self.node):
            try_touched(self.update.renewal, found.before.select(*(quoted(key) for key in self.node.keys)), like)

    def append(self, rows: DataFrame) -> Appended:
        """Writes rows of new keys, once: they are read from the table by whoever asks what came."""
        failpoint("stage.before-write", self.node.name)
        with spent("write"):
            self.stage.tables.append(self.node.name, rows)
        assert self.state.version.snapshot is not None
        return self.stage.tables.appended(self.node.name, self.state.version.snapshot)

    def added(self, touched: KeySet, split: Split, came: Appended) -> Updated:
        """All keys are new."""
        name, tables = self.node.name, self.stage.tables
        written = (name, *self.update.write_quarantine(touched, split))
        count = came.count()
        if name in self.stage.followed and count:
            told = self.update.as_stored(
                self.update.published.schema, came.frame
            )  # with the columns that were told before
            tables.told[name] = self.update.numbered(told.withColumn(CHANGE, F.lit(ADDED)))
        failpoint("stage.written", name)
        moves = Moves(self.state.version, TableView(came.frame, count, came.read), appended=True)
        return Updated(added=count, removed=0, split=split, tables=written, keys=touched.count, moves=moves)

    def write_measures(self, found: Computed) -> tuple[str, ...]:
        if found.measures is None:
            return ()
        tables, beside = self.stage.tables, measures_of(self.node.name)
        base = tables.branch.base_metadata(beside)
        total = meta.total_records(base) if base else 0
        tables.branch.prepare(beside)
        replace_keys(tables, self.node, beside, total, found.touched, Given(found.measures), self.update.scratch)
        return (beside,)


def _are_unique(rows: InMemory, keys: Sequence[str]) -> bool:
    """Whether each key has one row; someone else may have written more, which was accepted."""
    return int(distinct_rows(rows.table.select(list(keys))).num_rows) == rows.count()
