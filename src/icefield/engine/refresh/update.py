"""Refreshes a keyed table by its keys: only what changed is read, computed and written."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from icefield.declare import Accumulate
from icefield.engine.arrow_rows import can_be_compared
from icefield.engine.batch import Batch, InMemory, evaluate
from icefield.engine.checks.rejects import to_quarantine
from icefield.engine.checks.split import Split, failing_counts, with_flags
from icefield.engine.checks.view import Moves, TableView
from icefield.engine.clock import spent
from icefield.engine.frames import small_frame
from icefield.engine.limits import compared_rows
from icefield.engine.origin import visible
from icefield.engine.promises.naming import require_same_columns
from icefield.engine.refresh.accumulate import Accumulating
from icefield.engine.refresh.changes import held_difference, numbered
from icefield.engine.refresh.computed import Computed, MostChanged, Updated
from icefield.engine.refresh.difference import difference, difference_of_pairs
from icefield.engine.refresh.keys import KeySet, key_set, rows_of_keys
from icefield.engine.refresh.replace import Came, Given, Went, put, require_own_keys
from icefield.engine.sql import fitted, quoted
from icefield.failpoint import failpoint
from icefield.graph import quarantine_of
from icefield.graph.news import FilesNews
from icefield.lake import metadata as meta

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from icefield.engine.intake.port import Landed
    from icefield.engine.refresh.renewal import Renewal
    from icefield.engine.refresh.stage import Stage
    from icefield.graph import Node
    from icefield.graph.state import TableState
    from icefield.plan import Step

    Finish = Callable[[DataFrame], DataFrame]

#: When more than this share of a by_key table's keys changed, computing everything is cheaper than telling them apart.
REBUILD_SHARE = 0.5
#: Up to so many rows the keys of a table are counted without Spark, and up to so many at every update.
_IN_MEMORY, _COUNTED = 2_000_000, 50_000


def update(
    stage: Stage, node: Node, step: Step, state: TableState, landed: Landed | None = None
) -> Updated | MostChanged | str:
    """Finds the keys that the inputs' changes touch, and puts their new rows in place of the old ones."""
    work = Update(stage, node, step, state, landed)
    with spent("compute"):
        if landed is not None:
            found: Computed | MostChanged | str = work.compute_landed(landed)
        elif not isinstance(node.refresh, Accumulate):
            found = work.compute()
        elif (added := work.accumulate.add_new()) is not None:
            return added
        else:
            found = work.accumulate.merge()
    return found if isinstance(found, MostChanged | str) else work.write(found)


@dataclass(frozen=True, slots=True)
class _Compared:
    """All new rows of the touched keys, unless a key has one; what goes and comes; how many fail each check of rows."""

    several: Batch | None
    change: Batch
    failing: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """One keyed table, brought up to date with the changes of its inputs."""

    stage: Stage
    node: Node
    step: Step
    state: TableState
    landed: Landed | None = None

    @property
    def scratch(self) -> Path:
        return self.stage.scratch(self.node)

    @property
    def accumulate(self) -> Accumulating:
        """The way of accumulating tables."""
        return Accumulating(self)

    @property
    def renewal(self) -> Renewal:
        return self.stage.renewal(self.node, self.step)

    def compute(self) -> Computed | MostChanged:
        """by_key: the function over the inputs' rows of the touched keys."""
        touched = self.renewal.touched(self.stage.schemas[self.node.name])
        counted = self._counted() if touched.count and self.state.rows else self.state.keys
        if touched.count and (most := self._most(touched, counted)):
            return most
        return Computed(touched=touched, output=self.renewal.again(touched), counted=counted, **self.before(touched))

    def before(self, touched: KeySet) -> dict[str, Any]:
        """The rows that the table has of the touched keys, in memory where they are small."""
        held = rows_of_keys(self.stage.tables, self.node.name, self.state.version.snapshot, touched)
        before = touched.restrict(self.published) if held is None else held.frame
        return {"before": before, "rows_before": held}

    def compute_landed(self, landed: Landed) -> Computed | str:
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
        return Computed(touched=touched, output=output, **self.before(touched))

    def write(self, found: Computed) -> Updated:
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
            return self.accumulate.added(
                found.touched, split, self.accumulate.append(self.as_stored(found.before.schema, after))
            )
        compared = self._compared_in_memory(found, after) or self._compared(found, after)
        several, change = compared.several, compared.change
        if several is not None and self.landed is not None:
            split.require_nothing_lost(node, several.count(), self.landed.count)
        failpoint("stage.before-write", node.name)
        fresh: Came | Given = Came(change) if several is None else Given(several)
        with spent("write"):
            added, removed = put(stage.tables, node, self.state.rows, change, several, self.scratch)
            written = [node.name, *self.accumulate.write_measures(found), *self.write_quarantine(found.touched, split)]
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

    def _compared(self, found: Computed, after: DataFrame) -> _Compared:
        """The new rows of the touched keys beside the old ones, by Spark."""
        several = None  # rows of a key: where it may have some, all of them are written again
        if not isinstance(self.node.refresh, Accumulate):
            with spent("compute"):
                several = evaluate(after, self.scratch / "fresh")
            after = several.frame
            if not self.stage.is_proven(self.node):
                require_own_keys(self.node, found.touched, after)
        return _Compared(several, self._difference(found.before, after, found.known))

    def _compared_in_memory(self, found: Computed, after: DataFrame) -> _Compared | None:
        """The same where both are small: one query gives the new rows, and which checks of rows they fail."""
        before = found.rows_before
        if before is None or not can_be_compared(before.table.schema):
            return None
        with spent("compute"):
            rows = found.fresh or with_flags(self.node, self.as_stored(before.schema, after))
        if rows is None:
            return None
        fresh = InMemory(rows.spark, before.schema, rows.table.select(before.schema.names))
        keyed = not isinstance(self.node.refresh, Accumulate)
        if keyed and not self.stage.is_proven(self.node):
            require_own_keys(self.node, found.touched, fresh.frame)
        change, came = held_difference(before, fresh, self.state.version.number + 1)
        failing = failing_counts(self.node, rows.table if keyed else rows.table.filter(came))
        return _Compared(fresh if keyed else None, change, failing)

    def _difference(self, before: DataFrame, after: DataFrame, known: int | None) -> Batch:
        """What goes and what comes, once equal pairs have cancelled; evaluated once."""
        after = self.as_stored(before.schema, after)
        paired = known is not None
        change = difference_of_pairs(before, after, self.node.keys) if paired else difference(before, after)
        with spent("compute"):
            return evaluate(self.numbered(change), self.scratch / "difference")

    def numbered(self, change: DataFrame) -> DataFrame:
        return numbered(change, self.state.version.number + 1)

    def as_stored(self, before: StructType, after: DataFrame) -> DataFrame:
        """New rows in the types that are stored: Iceberg has no smaller integer than INT."""
        require_same_columns(self.node, before, after.schema)
        return fitted(after, before)

    @property
    def published(self) -> DataFrame:
        return self.stage.tables.read(self.node.name, self.state.version.snapshot)

    def _most(self, touched: KeySet, counted: tuple[int, int] | None) -> MostChanged | None:
        """Whether most of the keys that the table will have are changed or new."""
        if not self.state.rows or counted is None:
            return MostChanged(touched=touched.count, keys=0)
        keys = round(counted[0] * self.state.rows / counted[1])
        if touched.count <= REBUILD_SHARE * keys:
            return None
        columns = [quoted(key) for key in self.node.keys]
        keys += touched.count - touched.restrict(self.published.select(*columns)).distinct().count()
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
        return self.published.select(*(quoted(key) for key in self.node.keys)).distinct().count()

    def write_quarantine(self, touched: KeySet, split: Split) -> tuple[str, ...]:
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
        tables.definitions.ready(name, waiting.schema, None, comment, renamed=self.node.renamed)
        tables.overwrite(name, waiting)
        return (name,)
