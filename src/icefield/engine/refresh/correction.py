"""Updates an appending table whose input removed rows: those leave it, new ones come, and nothing else is touched.

Rows of a corrected or deleted file leave by their column `source_file`; rows that an input table removed leave as what
the function makes of them. Where a row that stays or waits could be decided otherwise by a rebuild, there is a reason
to rebuild instead: the first arrival of a key stays, so a correction may give a key to an earlier row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.types import MapType

from icefield.engine.batch import Batch, evaluate
from icefield.engine.checks.rejects import quarantine_names, to_quarantine
from icefield.engine.checks.split import Split, all_hold, reasons_of, splitting
from icefield.engine.checks.view import Moves, TableView
from icefield.engine.clock import spent
from icefield.engine.origin import ARRIVAL, FATE, LINE, REASONS, visible
from icefield.engine.promises.naming import require_same_columns
from icefield.engine.quarantine.repair import discard, mend
from icefield.engine.refresh.changes import NUMBER, change_of, numbered
from icefield.engine.refresh.computed import Updated
from icefield.engine.refresh.difference import ADDED, CHANGE, REMOVED, difference
from icefield.engine.refresh.freed_keys import FreedKeys
from icefield.engine.refresh.keys import KeySet, listed
from icefield.engine.refresh.replace import Came, Went
from icefield.engine.sql import quoted, text
from icefield.engine.versions import Published
from icefield.failpoint import failpoint
from icefield.graph import quarantine_of
from icefield.graph.news import FilesNews
from icefield.lake import metadata as meta

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from pyspark.sql import Column, DataFrame

    from icefield.declare import Unique
    from icefield.engine.intake.port import Landed
    from icefield.engine.refresh.stage import Stage
    from icefield.graph import Edge, Node
    from icefield.graph.state import TableState
    from icefield.plan import Step

#: When more than this share of a table's rows leave, computing everything is cheaper.
_REBUILD_SHARE = 0.5
#: So many rows that leave quarantine are listed in one condition; where more are repaired, the table is rebuilt.
_LISTED = 2_000


def correct(stage: Stage, node: Node, step: Step, state: TableState, landed: Landed | None) -> Updated | str:
    """What was done, or why everything is to be computed instead."""
    work = Correction(stage, node, step, state)
    if any(isinstance(field.dataType, MapType) for field in work.published.schema):
        return f"{step.reason}, and rows with MAP columns cannot be told apart"
    if node.name in stage.replayed:
        moved = isinstance(step.news, FilesNews) and step.news.moved  # a file that went, or is empty now, has no rows
        return f"{step.reason}: all at once" if moved or (landed is not None and landed.count) else work.replay()
    return work.of_inputs() if landed is None else work.of_files(landed)


@dataclass(frozen=True, slots=True)
class _Applied:
    """Rows that left and rows that came."""

    change: Batch
    added: int
    removed: int


@dataclass(frozen=True, slots=True)
class _Origin:
    """Files whose rows may leave; `whole`: all of their rows do, since none of them is read again."""

    files: tuple[str, ...]
    whole: bool

    @property
    def condition(self) -> Column:
        return F.col("source_file").isin(*self.files)

    @property
    def sql(self) -> str:
        """The same as SQL."""
        return f"source_file IN ({', '.join(map(text, self.files))})"


@dataclass(frozen=True, slots=True)
class Correction:
    """One appending table from which rows leave, or whose rejected rows are decided about."""

    stage: Stage
    node: Node
    step: Step
    state: TableState

    @property
    def unique(self) -> FreedKeys:
        """What it means for keys that must be unique."""
        return FreedKeys(self)

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def scratch(self) -> Path:
        return self.stage.scratch(self.node)

    @property
    def published(self) -> DataFrame:
        return self.stage.tables.read(self.name, self.state.version.snapshot)

    # -- rows of files

    def of_files(self, landed: Landed) -> Updated | str:
        """Rows of corrected and deleted files leave, those of corrected and new ones come."""
        news = self.step.news
        assert isinstance(news, FilesNews)
        orders = {file.path: file.order for file in news.taken}
        leaving = {file.path for file in news.changed} | {file.path for file in news.gone}
        output = self.stage.functions[self.name](**self.stage.frames(self.node, self.step, landed))
        if set(visible(output).columns) != set(self.published.columns):
            return f"{self.step.reason}; its files have new columns"
        old = None
        if self.state.version.snapshot is not None:
            old = Published(self.stage.tables, self.name, self.state.version.snapshot, without=tuple(sorted(leaving)))
        split = self.stage.split_against(self.node, output, landed, old)
        with spent("check"):
            if why := self.unique.taken_by_later_rows(split, old, orders):
                return f"{self.step.reason}, and {why}"
        origin = _Origin(tuple(sorted(leaving)), whole=not news.changed)
        before = self.published.where(origin.condition)
        gone = {orders[path] for path in leaving}
        found = self._changed(before, visible(split.good), origin, gone, split)
        if isinstance(found, str):
            return found
        held = found.removed if origin.whole else before.count()
        split.require_nothing_lost(self.node, found.added - found.removed + held - found.freed, landed.count)
        return found

    def _changed(
        self, before: DataFrame, after: DataFrame, origin: _Origin, gone: Collection[int], split: Split
    ) -> Updated | str:
        change = self._swap(before, after) if origin.whole else self._difference(before, after)
        freed = self.unique.freed(change, gone)
        if isinstance(freed, str):
            return freed
        applied = self._apply(change, freed, origin)
        if isinstance(applied, str):
            return applied
        written = self._write_quarantine(gone, freed, split)
        return self._updated(applied, split, written, 0 if freed is None else freed.num_rows)

    # -- rows of tables

    def of_inputs(self) -> Updated | str:
        """What the function makes of rows that inputs removed leaves, what it makes of new ones comes."""
        changes = {
            edge.parameter: change_of(self.stage.tables, edge.table, self.step.ranges[edge.table])
            for edge in self.node.edges
            if edge.table is not None and not edge.lookup
        }
        gone = self._computed({name: change.removed for name, change in changes.items()})
        came = self._computed({name: change.added for name, change in changes.items()})
        rows, _ = splitting(self.node)
        split = self.stage.split_against(self.node, came, None, None)
        held = all_hold(rows)
        with spent("compute"):
            change = self._difference(visible(gone.where(held)), visible(split.good))
        if rows and self.quarantine() is not None and not gone.where(f"NOT ({held})").isEmpty():
            return f"{self.step.reason}, and rows leave its quarantine"
        applied = self._apply(change, None, None)
        if isinstance(applied, str):
            return applied
        return self._updated(applied, split, self._rewrite_quarantine("", split), 0)

    def _computed(self, rows: Mapping[str, DataFrame | None]) -> DataFrame:
        frames = {edge.parameter: self._given(edge, rows) for edge in self.node.edges}
        output: DataFrame = self.stage.functions[self.name](**frames)
        return output

    def _given(self, edge: Edge, rows: Mapping[str, DataFrame | None]) -> DataFrame:
        assert edge.table is not None
        whole = self.stage.tables.read(edge.table, self.step.ranges[edge.table].end)
        if edge.lookup:
            return whole
        given = rows[edge.parameter]
        return whole.limit(0) if given is None else given

    # -- what goes and what comes

    def _difference(self, before: DataFrame, after: DataFrame) -> Batch:
        return self._stored(difference(*self._typed(before, after)))

    def _swap(self, before: DataFrame, after: DataFrame) -> Batch:
        """The same where no row of one is in the other, so that nothing needs to be compared."""
        gone, came = self._typed(before, after)
        return self._stored(gone.withColumn(CHANGE, F.lit(REMOVED)).unionByName(came.withColumn(CHANGE, F.lit(ADDED))))

    def _typed(self, before: DataFrame, after: DataFrame) -> list[DataFrame]:
        like = self.published.schema
        require_same_columns(self.node, like, after.schema)
        columns = [F.col(quoted(f.name)).cast(f.dataType).alias(f.name) for f in like]
        return [before.select(*columns), after.select(*columns)]

    def _stored(self, change: DataFrame) -> Batch:
        with spent("compute"):
            return evaluate(numbered(change, self.state.version.number + 1), self.scratch / "difference")

    def _apply(self, change: Batch, freed: pa.Table | None, origin: _Origin | None) -> _Applied | str:
        """Takes rows out of the table and adds others; why not, if one of them is not there."""
        tables = self.stage.tables
        sides = change.arrow([CHANGE])[CHANGE]
        added, removed = (int(pc.sum(pc.equal(sides, side)).as_py() or 0) for side in (ADDED, REMOVED))
        if removed > max(_REBUILD_SHARE * self.state.rows, 1):
            return f"{removed:,} of {self.state.rows:,} rows changed"
        tables.branch.prepare(self.name)
        came = change.frame.where(F.col(CHANGE) == ADDED).drop(CHANGE, NUMBER)
        if freed is not None:
            more = tables.spark.createDataFrame(freed.select(came.columns)).select(
                *(F.col(quoted(f.name)).cast(f.dataType).alias(f.name) for f in came.schema)
            )
            change = evaluate(
                change.frame.unionByName(
                    numbered(more.withColumn(CHANGE, F.lit(ADDED)), self.state.version.number + 1)
                ),
                self.scratch / "with-freed",
            )
            added += freed.num_rows
            came = change.frame.where(F.col(CHANGE) == ADDED).drop(CHANGE, NUMBER)
        failpoint("stage.before-write", self.name)
        if removed and origin is not None and origin.whole:
            with spent("write"):
                tables.delete(self.name, origin.sql)
        elif removed:
            stay = self._taken_out(change.frame.where(F.col(CHANGE) == REMOVED).drop(CHANGE, NUMBER), origin)
            if isinstance(stay, str):
                tables.branch.prepare(self.name)
                return stay
            came = came.unionByName(stay)
        if added or (removed and not (origin is not None and origin.whole)):
            with spent("write"):
                tables.append(self.name, came)
        if self.name in self.stage.followed and (added or removed):
            tables.told[self.name] = change.frame
        return _Applied(change, added, removed)

    def _taken_out(self, gone: DataFrame, origin: _Origin | None) -> DataFrame | str:
        """Removes rows from the table; of those of which some copies are to stay, these are what comes back."""
        distinct = evaluate(gone.distinct(), self.scratch / "gone")
        keys = KeySet(tuple(gone.columns), distinct, distinct.count())
        stored = self.published if origin is None else self.published.where(origin.condition)
        with spent("compute"):
            left = evaluate(difference(gone, keys.restrict(stored)), self.scratch / "left")
        sides = left.arrow([CHANGE])[CHANGE]
        if pc.any(pc.equal(sides, REMOVED)).as_py():
            return f"{self.step.reason}, and rows that should leave were not found"
        with spent("write"):
            self.stage.tables.remove_keys(self.name, keys, listed(distinct, keys.names))
        return left.frame.drop(CHANGE)

    def _updated(self, applied: _Applied, split: Split, written: tuple[str, ...], freed: int) -> Updated:
        came = Came(applied.change)
        failpoint("stage.written", self.name)
        return Updated(
            added=applied.added,
            removed=applied.removed,
            split=split,
            tables=(self.name, *written),
            keys=None,
            freed=freed,
            moves=Moves(
                self.state.version,
                TableView(came.frame, applied.added, came.arrow),
                Went(applied.change).arrow if applied.removed else None,
            ),
        )

    # -- keys of which the first arrival stays

    def keys(self, check: Unique, rows: pa.Table) -> KeySet:
        names = list(check.columns)
        kinds = {name: self.published.schema[name].dataType for name in names}
        frame = self.stage.tables.spark.createDataFrame(rows.select(names).group_by(names).aggregate([]))
        typed = frame.select(*(F.col(quoted(name)).cast(kinds[name]).alias(name) for name in names))
        stored = evaluate(typed, self.scratch / f"keys-{'-'.join(names)}")
        return KeySet(tuple(names), stored, stored.count())

    # -- quarantine

    def own(self) -> dict[str, str]:
        return quarantine_names([field.name for field in self.published.schema])

    def quarantine(self) -> DataFrame | None:
        base = self.stage.tables.branch.base_metadata(quarantine_of(self.name))
        if base is None or not meta.total_records(base):
            return None
        return self.stage.tables.before(quarantine_of(self.name))

    def _write_quarantine(self, gone: Collection[int], freed: pa.Table | None, split: Split) -> tuple[str, ...]:
        """Rows of files that leave leave it as well, and so do those that came in place of others."""
        own, condition = self.own(), []
        if gone:
            condition.append(f"{quoted(own['arrival'])} IN ({', '.join(map(str, sorted(gone)))})")
        if freed is not None:
            places = zip(freed[own["arrival"]].to_pylist(), freed[own["line"]].to_pylist(), strict=True)
            condition += [f"({quoted(own['arrival'])} = {a} AND {quoted(own['line'])} = {n})" for a, n in places]
        return self._rewrite_quarantine(" OR ".join(condition), split)

    def _rewrite_quarantine(self, leaving: str, split: Split) -> tuple[str, ...]:
        tables, name = self.stage.tables, quarantine_of(self.name)
        waiting = None
        if split.bad is not None and split.quarantined:
            waiting = to_quarantine(split.bad, self.stage.run, self.stage.started_ms, self.scratch / "to-quarantine")
        old = self.quarantine()
        leaves = old is not None and bool(leaving) and not old.where(leaving).isEmpty()
        if waiting is None and not leaves:
            return ()
        with spent("write"):
            if waiting is not None:
                comment = f"Rows that {self.name} rejected, with their reasons."
                tables.definitions.ready(name, waiting.frame.schema, None, comment, renamed=self.node.renamed)
            else:
                tables.branch.prepare(name)
            if leaves:
                tables.delete(name, leaving)
            if waiting is not None:
                tables.append_stored(name, waiting)
        return (name,)

    # -- replays

    def replay(self) -> Updated | str:
        """What people decided about waiting rows, applied to these alone."""
        quarantine, decided = self.quarantine(), self.stage.decided.get(self.name)
        split = Split(good=self.published.limit(0))
        empty = self._difference(self.published.limit(0), self.published.limit(0))
        if quarantine is None or decided is None or len(decided.repairs) == self.state.repairs:
            return self._updated(_Applied(empty, 0, 0), split, (), 0)
        rows, unique = splitting(self.node)
        own = self.own()
        marked = quarantine.select(
            *(F.col(quoted(field.name)) for field in self.published.schema),
            F.col(quoted(own["arrival"])).alias(ARRIVAL),
            F.col(quoted(own["line"])).alias(LINE),
            F.col(quoted(own["reasons"])).alias(REASONS),
            F.lit("quarantine").alias(FATE),
        )
        # Earlier decisions count as well: what only one of them mended may wait for the next.
        new = decided.fitted(lambda repair: self.stage.fits(self.node, repair))
        split.unfit = new.unfit
        passed = marked.limit(0)
        if new.of("replay"):
            failing = evaluate(marked.where(f"NOT ({all_hold(rows)})"), self.scratch / "waiting").frame
            split.mended = mend(failing, new, all_hold(rows), reasons_of(rows), self.scratch)
            passed = evaluate(split.mended.rows, self.scratch / "mended").frame
        if unique and not passed.isEmpty() and self._clash(unique, passed):
            return f"{self.step.reason}, and a repaired row has the key of another"
        leaving = [passed]
        if new.of("discard"):
            let_go = discard(marked, new, self.published.schema, self.scratch).where(F.col(FATE) == "discard")
            leaving.append(let_go)
        places = evaluate(
            reduce(lambda a, b: a.unionByName(b), [frame.select(ARRIVAL, LINE) for frame in leaving]),
            self.scratch / "leaving",
        ).arrow()
        if places.num_rows > _LISTED:
            return f"{self.step.reason}: {places.num_rows:,} rows"
        applied = self._apply(self._difference(passed.limit(0), visible(passed)), None, None)
        if isinstance(applied, str):
            return applied
        pairs = zip(places[ARRIVAL].to_pylist(), places[LINE].to_pylist(), strict=True)
        told = [f"({quoted(own['arrival'])} = {a} AND {quoted(own['line'])} = {n})" for a, n in pairs]
        return self._updated(applied, split, self._rewrite_quarantine(" OR ".join(told), split), 0)

    def _clash(self, unique: tuple[Unique, ...], passed: DataFrame) -> bool:
        """Whether a repaired row has a key that is in the table, or that another repaired row has."""
        for check in unique:
            names = [quoted(name) for name in check.columns]
            rows = passed.select(*names).where(" AND ".join(f"{name} IS NOT NULL" for name in names)).toArrow()
            distinct = rows.group_by(list(check.columns)).aggregate([])
            if distinct.num_rows < rows.num_rows:
                return True
            if rows.num_rows and not self.keys(check, rows).restrict(self.published.select(*names)).isEmpty():
                return True
        return False
