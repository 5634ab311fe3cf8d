"""Carries out one step of a plan on the run's branch: reads what it needs, calls the function, splits, writes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from icefield.declare import Append
from icefield.engine.arrow_rows import can_be_compared
from icefield.engine.arrow_rows import difference as arrow_difference
from icefield.engine.batch import InMemory, evaluate
from icefield.engine.checks import split as quality
from icefield.engine.checks.rejects import quarantine_names, to_quarantine
from icefield.engine.checks.split import failing_counts, with_flags
from icefield.engine.clock import spent
from icefield.engine.origin import visible
from icefield.engine.promises.analyse import misfit
from icefield.engine.promises.naming import require_same_columns
from icefield.engine.promises.spark_plans import hands_through
from icefield.engine.promises.trial import try_append, try_promise
from icefield.engine.refresh.changes import held_difference, keep, numbered, trim
from icefield.engine.refresh.correction import correct
from icefield.engine.refresh.difference import ADDED, CHANGE, difference, same_rows
from icefield.engine.refresh.renewal import Renewal
from icefield.engine.refresh.staged import Staged
from icefield.engine.refresh.update import Updated, update
from icefield.engine.tables import Published
from icefield.failpoint import failpoint
from icefield.graph import changes_of, measures_of, quarantine_of
from icefield.graph.news import FilesNews
from icefield.graph.state import EMPTY, TableState, Version
from icefield.lake import metadata as meta
from icefield.lake.table_state import table_state
from icefield.plan import arrivals_of, read_by_all, with_quarantines
from icefield.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

    from icefield.engine.batch import Batch
    from icefield.engine.checks.split import Split
    from icefield.engine.intake.port import Intakes, Landed, Received
    from icefield.engine.promises.rules import Proof
    from icefield.engine.quarantine.repair import Decided
    from icefield.engine.tables import Tables
    from icefield.graph import Node
    from icefield.graph.column_lineage import ColumnLineage
    from icefield.graph.news import Cursor
    from icefield.graph.state import Promise, Repair
    from icefield.plan import Step


class Begun(Protocol):
    """Something read in the background."""

    def result(self) -> Received | None:
        """What came of it, once it is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Everything that the steps of one run share."""

    tables: Tables
    root: Path
    functions: Mapping[str, Callable[..., Any]]
    finishes: Mapping[str, Callable[..., Any]]
    schemas: Mapping[str, StructType]
    #: The columns that the functions of accumulating tables give, before `finish`.
    measures: Mapping[str, StructType]
    #: Accumulating tables whose measures are kept beside them.
    apart: frozenset[str]
    #: Of each incremental table of the run: whether its promise is proven, or trusted.
    promises: Mapping[str, Proof]
    #: Tables that tell what they removed and added, with those that follow them.
    followed: Mapping[str, tuple[str, ...]]
    started_ms: int
    intakes: Intakes
    scratch_folder: Path
    received: Mapping[str, Begun]
    #: What tables are to remember of their sources, where reading told more than the plan.
    reached: dict[str, Cursor] = field(default_factory=dict)
    decided: Mapping[str, Decided] = field(default_factory=dict)
    #: Where the columns of tables come from, if that was asked for.
    lineage: Mapping[str, ColumnLineage] = field(default_factory=dict)
    #: Tables whose quarantine is replayed.
    replayed: frozenset[str] = frozenset()
    remake: bool = False

    @property
    def run(self) -> str:
        return self.tables.branch.run

    def is_proven(self, node: Node) -> bool:
        """Whether a table's promise needs no trial."""
        return self.promises.get(node.name) == "proven"

    def carry_out(self, node: Node, step: Step, state: TableState | None, inputs: Mapping[str, TableState]) -> Staged:
        """Does what the step says; nobody sees any of it before the run is published."""
        received = self._receive(node, step)
        if step.action == "note":
            return self._noted(node, step, state, received)
        given = {name: with_quarantines(node, inputs)[name] for name in node.inputs}
        consumed = {name: one.version.meddled() if one.meddled else one.version for name, one in given.items()}
        if step.action in ("append", "update") and state is not None and (grown := self._grown(node, state)):
            step = step.as_rebuild(f"{step.reason}; {grown}")
            received = self._receive_everything(node, step)
        if step.action == "update" and state is not None:
            landed = self._land(node, received) if received is not None else None
            done = self._update(node, step, state, landed)
            if isinstance(done, Updated):
                staged = self._staged_update(node, step, state, done, consumed, landed)
                return self._with_quarantine(node, staged, inputs)
            step = step.as_rebuild(done)
            self.tables.told.pop(node.name, None)
            received = self._receive_everything(node, step)
        landed = self._land(node, received) if received is not None else None
        frames = self.frames(node, step, landed)
        output, beside = self._computed(node, step, frames)
        if step.action == "append" and landed is not None and (why := self.mixed(step, landed, output)):
            step = step.as_rebuild(why)
            received = self._receive_everything(node, step)
            assert received is not None
            landed = self._land(node, received)
            frames = self.frames(node, step, landed)
            output, beside = self._computed(node, step, frames)
        split = self.split(node, step, state, output, landed)
        failpoint("stage.before-write", node.name)
        self._write(node, step, split)
        self._tell_appended(node, step, state, inputs)
        touched = (node.name, *beside, *self._write_quarantine(node, step, split))
        if state is None:
            touched += self._forget_changes(node)
        promise = self._tried(node, step, state, frames)
        failpoint("stage.written", node.name)
        records = self._records(landed)
        read = landed.count if landed is not None else None
        begin = last_read(node.name, inputs)
        origin = landed is not None and self._keeps_origin(node, landed, output)
        staged = self._result(node, step, state, split, consumed, records, touched, read, begin, promise, origin=origin)
        return self._with_quarantine(node, staged, inputs)

    def _grown(self, node: Node, state: TableState) -> str:
        """Why a table is to be computed again although its code is the same: an input has columns that it had not.

        A source hands its columns through as they are, so that rows without them have NULL there.
        """
        if node.source is not None or state.fingerprint != node.fingerprint:
            return ""
        former = {before: now for now, before in node.renamed.items()}
        known = {former.get(name, name) for name, _ in state.columns}
        new = [name for name in self.schemas[node.name].names if name not in known]
        return f"its inputs have new columns: {', '.join(new)}" if new else ""

    def mixed(self, step: Step, landed: Landed, output: DataFrame) -> str:
        """Why rows that were taken in before need to be computed again: a function does more with a column that files
        brought along than to hand it through, or drop it.
        """
        added = [column.name for column in step.news.added] if isinstance(step.news, FilesNews) else []
        kept = [name for name in added if name in output.columns]
        odd = [name for name in kept if not hands_through(landed.rows, output, name)]
        return f"{step.reason}; its function computes the new column {odd[0]}" if odd else ""

    def _records(self, landed: Landed | None) -> list[dict[str, Any]]:
        """What `ops.files`, `ops.offsets` or `ops.reads` is to remember of what was taken in."""
        if landed is None:
            return []
        found = landed.records(self.run)
        landed.require_unchanged()  # last of all, so that what was read and what is remembered of it is one content
        return found

    def _keeps_origin(self, node: Node, landed: Landed, output: DataFrame) -> bool:
        """Whether rows keep the file that they came from."""
        kept = "source_file" in landed.provenance
        return kept and hands_through(landed.rows, output, "source_file", node.fingerprint)

    def _tell_appended(
        self, node: Node, step: Step, state: TableState | None, states: Mapping[str, TableState]
    ) -> None:
        """Tells of appended rows while somebody has yet to read rows that left: what is told must be all there is."""
        if step.action != "append" or state is None or state.changes is None or node.name not in self.followed:
            return
        followers = [states[follower] for follower in self.followed[node.name] if follower in states]
        if read_by_all(state, followers) == state.version.number:
            return
        end = self.tables.snapshot(node.name)
        if end is None or end == state.version.snapshot or state.version.snapshot is None:
            return
        rows = self.tables.read_between(node.name, state.version.snapshot, end)
        self.tables.told[node.name] = numbered(rows.withColumn(CHANGE, F.lit(ADDED)), state.version.number + 1)

    def _with_quarantine(self, node: Node, staged: Staged, states: Mapping[str, TableState]) -> Staged:
        """Notes what became of the quarantine, for whoever reads it: appended to, or written anew."""
        name = quarantine_of(node.name)
        metadata = self.tables.branch.staged_metadata(name) if name in staged.tables else None
        if metadata is not None:
            found, before = table_state(name, metadata), states.get(name, EMPTY).version
            appended = staged.step.action == "append" or not states.get(name, EMPTY).rows
            number = Version(
                epoch=before.epoch + (not appended), number=before.number + 1, snapshot=found.version.snapshot
            )
            staged.waiting = replace(found, version=number, run=self.run)
        return staged

    def keep_change(self, staged: Staged, states: Mapping[str, TableState]) -> None:
        """Writes what a table changed where someone who follows has not read it in this run: it is for later ones."""
        name = staged.state.name
        if name not in self.tables.told:
            return
        followers = [states[follower] for follower in self.followed[name] if follower in states]
        upto = read_by_all(staged.state, followers)
        if upto == staged.state.version.number:
            appends = isinstance(staged.refresh, Append)  # what it adds is read from the table itself again
            staged.state = replace(staged.state, changes=None) if appends else staged.state.telling_nothing()
            return
        staged.tables = (*staged.tables, keep(self.tables, name, self.tables.told[name]))
        if trim(self.tables, name, staged.state.rows, upto):
            staged.state = replace(staged.state, changes=upto)

    def _update(self, node: Node, step: Step, state: TableState, landed: Landed | None) -> Updated | str:
        """What an update did, or why everything is to be computed instead."""
        if isinstance(node.refresh, Append):
            return correct(self, node, step, state, landed)
        if state.beside != (node.name in self.apart):
            return "changed checks or a changed finish= were accepted, so its measures cannot be read from its rows"
        if state.beside and set(self.tables.before(measures_of(node.name)).columns) != {
            *self.measures[node.name].names
        }:
            return "changed measures were accepted that differ from the stored ones"
        done = update(self, node, step, state, landed)
        return done if isinstance(done, Updated | str) else done.told

    def renewal(self, node: Node, step: Step) -> Renewal:
        """The incremental way to the rows of a keyed table."""
        return Renewal(
            tables=self.tables,
            node=node,
            function=self.functions[node.name],
            ranges=step.ranges,
            scratch=self.scratch(node),
        )

    def _tried(
        self, node: Node, step: Step, state: TableState | None, frames: Mapping[str, DataFrame] | None = None
    ) -> Promise:
        """What is known of a table's promise: what is trusted is tried until there was enough to try it on, and again
        whenever everything is computed.
        """
        told: Promise = self.promises.get(node.name, "full")
        before: Promise = state.promise if state is not None else ""
        if told != "trusted" or (step.action in ("append", "update") and before != "untried"):
            return before if told == "trusted" and before else told
        if node.keys:
            tried = try_promise(self.renewal(node, step), self.tables.staged(node.name), self.measures.get(node.name))
        else:
            tried = try_append(node, self.functions[node.name], frames or {}, self.scratch(node))
        return "trusted" if tried else "untried"

    # -- reading

    def _computed(self, node: Node, step: Step, frames: Mapping[str, DataFrame]) -> tuple[DataFrame, tuple[str, ...]]:
        """The rows that the function gives, and the table with the measures behind them, if that stands beside."""
        output = self.functions[node.name](**frames)
        finish = self.finishes.get(node.name)
        if node.name not in self.apart:
            return finish(output) if finish else output, ()
        with spent("compute"):
            measures = evaluate(output, self.scratch(node) / "measures")  # both tables come from the same values
        name = measures_of(node.name)
        self.tables.ready(name, measures.frame.schema, None, f"The measures behind {node.name}.", remake=True)
        self._put(name, step, measures.frame, measures)
        return finish(measures.frame) if finish else measures.frame, (name,)

    def frames(self, node: Node, step: Step, landed: Landed | None) -> dict[str, DataFrame]:
        """What the parameters of a table's function receive."""
        frames = {}
        for edge in node.edges:
            if edge.table is None:
                assert landed is not None
                frames[edge.parameter] = landed.rows
                continue
            wanted = step.ranges[edge.table]
            if wanted.start is None or edge.lookup:
                frames[edge.parameter] = self.tables.read(edge.table, wanted.end)
            elif wanted.start == wanted.end:
                frames[edge.parameter] = self.tables.read(edge.table, wanted.end).limit(0)
            else:
                assert wanted.end is not None
                frames[edge.parameter] = self.tables.read_between(edge.table, wanted.start, wanted.end)
        return frames

    def _receive(self, node: Node, step: Step) -> Received | None:
        """What the step takes in: read already, while Spark started, or read now."""
        if node.source is None:
            return None
        begun = self.received.get(node.name)
        with spent("read"):
            return begun.result() if begun is not None else self.intakes.receive(node, step)

    def _receive_everything(self, node: Node, step: Step) -> Received | None:
        """What a rebuild takes in that was not foreseen; what it cannot read any more stops it."""
        if node.source is None or step.news is None:
            return None
        arrivals_of(node, step.news).require_everything(step.reason)
        with spent("read"):
            return self.intakes.receive(node, step)

    def _land(self, node: Node, received: Received) -> Landed:
        with spent("read"):
            landed = received.land(self.tables.spark)
        if landed.cursor is not None:
            self.reached[node.name] = landed.cursor
        failpoint("stage.landed", node.name)
        return landed

    def newly_rejected(self, node: Node) -> DataFrame:
        """The rows in the quarantine of a table that this run put there."""
        waiting = self.tables.staged(quarantine_of(node.name))
        names = quarantine_names([field.name for field in self.schemas[node.name]])
        return waiting.where(F.col(names["run"]) == self.run)

    def scratch(self, node: Node) -> Path:
        """Where the step of a table keeps files that nobody needs after the run."""
        return self.scratch_folder / node.name

    # -- splitting and writing

    def split(
        self, node: Node, step: Step, state: TableState | None, output: DataFrame, landed: Landed | None
    ) -> Split:
        """The rows that are kept, and those that a check takes out."""
        rows, unique = quality.splitting(node)
        if landed is None and not rows and not unique:
            return quality.Split(good=output)
        if landed is None:  # evaluated once: what is kept and what is not must come from the same rows
            with spent("compute"):
                output = evaluate(output, self.scratch(node) / "output").frame
        old = None
        if step.action == "append" and state is not None and state.version.snapshot is not None:
            old = Published(self.tables, node.name, state.version.snapshot)
        with spent("check"):
            return quality.split(node, output, landed, old, self.scratch(node), self._decided(node, step))

    def split_against(self, node: Node, output: DataFrame, landed: Landed | None, old: Published | None) -> Split:
        """The rows that are kept beside others, and those that a check takes out."""
        rows, unique = quality.splitting(node)
        if landed is None and not rows and not unique:
            return quality.Split(good=output)
        if landed is None:
            with spent("compute"):
                output = evaluate(output, self.scratch(node) / "output").frame
        with spent("check"):
            return quality.split(node, output, landed, old, self.scratch(node))

    def fits(self, node: Node, repair: Repair) -> bool:
        """Whether a repair still fits the columns of its table."""
        return not misfit(self.tables.spark, self.schemas[node.name], repair)

    def _decided(self, node: Node, step: Step) -> Decided | None:
        """What was decided about rows that the step may meet: rows that just arrived are not among them."""
        decided = self.decided.get(node.name)
        if decided is None or step.news is None or step.action == "append":
            return None
        about = decided.without_files(_corrected(step))
        return about.fitted(lambda repair: self.fits(node, repair))

    def _voided(self, node: Node, step: Step) -> str:
        """What is said of decisions about rows of files that were corrected: the rows are others now."""
        decided, orders = self.decided.get(node.name), _corrected(step)
        if decided is None or not orders:
            return ""
        about = decided.rows.filter(pc.is_in(decided.rows["arrival"], value_set=pa.array(sorted(orders), pa.int64())))
        numbers = sorted(set(about["number"].to_pylist()))
        if not numbers:
            return ""
        listed = ", ".join(map(str, numbers))
        return f"the corrected file invalidates {plural(about.num_rows, 'decision')} about its rows (repair {listed})"

    def _write(self, node: Node, step: Step, split: Split) -> None:
        rows, stored = visible(split.good), split.stored
        self.tables.ready(node.name, rows.schema, node, node.comment, remake=self.remake)
        if stored is None and (flagged := with_flags(node, rows)) is not None:
            split.failing = failing_counts(node, flagged.table)
            names = rows.columns
            schema = StructType([flagged.schema[name] for name in names])
            stored = InMemory(flagged.spark, schema, flagged.table.select(names))
        self._put(node.name, step, rows, stored)

    def _write_quarantine(self, node: Node, step: Step, split: Split) -> tuple[str, ...]:
        name = quarantine_of(node.name)
        replaced = step.action != "append" and name in self.tables.branch.base
        if not (split.quarantined or replaced):
            return ()
        comment = f"Rows that {node.name} rejected, with their reasons."
        if split.bad is None or not split.quarantined:  # nothing waits any more
            return self._emptied(name)
        waiting = to_quarantine(split.bad, self.run, self.started_ms, self.scratch(node) / "to-quarantine")
        self.tables.ready(name, waiting.frame.schema, None, comment, remake=self.remake, renamed=node.renamed)
        self._put(name, step, waiting.frame, waiting)
        return (name,)

    def _forget_changes(self, node: Node) -> tuple[str, ...]:
        """What a table of that name told before it was dropped is nobody's any more: its numbers come again."""
        name = changes_of(node.name)
        return self._emptied(name) if name in self.tables.branch.base else ()

    def _emptied(self, table: str) -> tuple[str, ...]:
        self.tables.branch.prepare(table)
        self.tables.overwrite(table, self.tables.staged(table).limit(0))
        return (table,)

    def _put(self, table: str, step: Step, rows: DataFrame, stored: Batch | None) -> None:
        """Rows in place of those that are there, or besides them."""
        with spent("write"):
            self._written(table, step, rows, stored)

    def _written(self, table: str, step: Step, rows: DataFrame, stored: Batch | None) -> None:
        if step.action != "append" and table in self.tables.branch.base:
            self.tables.overwrite_stored(table, stored) if stored is not None else self.tables.overwrite(table, rows)
        elif stored is not None:
            self.tables.append_stored(table, stored)
        else:
            self.tables.append(table, rows)

    # -- results

    def _result(
        self,
        node: Node,
        step: Step,
        state: TableState | None,
        split: Split,
        consumed: Mapping[str, Version],
        records: Sequence[Mapping[str, Any]],
        touched: tuple[str, ...],
        read: int | None,
        begin: Version,
        promise: Promise,
        *,
        origin: bool,
    ) -> Staged:
        if split.unfit:
            step = step.noting(_idle(split.unfit))
        if void := self._voided(node, step):
            step = step.noting(void)
        added, removed = self._counts(node.name)
        split.require_nothing_lost(node, added, read)
        changed = state is None or not self._is_same(node, step, state, added, removed)
        epoch = changed and step.action != "append"
        if not changed:
            self._take_back(node)
            added = removed = 0
        elif step.action == "refresh" and state is not None and self._tell_difference(node, state):
            epoch = False
        new = self._state(
            node,
            step,
            state,
            consumed,
            changed=changed,
            epoch=epoch,
            begin=begin,
            promise=promise,
            origin=origin,
        )
        return Staged(
            step=step,
            refresh=node.refresh,
            state=new,
            changed=changed,
            rows_added=added,
            rows_removed=removed,
            quarantined=split.quarantined,
            dropped=split.dropped,
            rejected=split.rejected,
            failures=split.failures,
            failing=split.failing,
            mended=split.mended,
            records=records,
            tables=touched,
        )

    def _staged_update(
        self,
        node: Node,
        step: Step,
        state: TableState,
        done: Updated,
        consumed: Mapping[str, Version],
        landed: Landed | None,
    ) -> Staged:
        changed = bool(done.added or done.removed)
        promise = self._tried(node, step, state) if node.keys and node.source is None else state.promise
        records = self._records(landed)
        if void := self._voided(node, step):
            step = step.noting(void)
        return Staged(
            step=step,
            refresh=node.refresh,
            records=records,
            mended=done.split.mended,
            state=replace(
                self._state(
                    node, step, state, consumed, changed=changed, epoch=False, promise=promise, origin=state.origin
                ),
                keys=done.counted or state.keys,
            ),
            changed=changed,
            rows_added=done.added,
            rows_removed=done.removed,
            quarantined=done.split.quarantined,
            dropped=done.split.dropped,
            rejected=done.split.rejected,
            failures=done.split.failures,
            tables=done.tables,
            keys=done.keys,
            moves=done.moves,
        )

    def _tell_difference(self, node: Node, state: TableState) -> bool:
        """Tells followers what a table that was computed again changed, if that is less than half of it."""
        if node.name not in self.followed:
            return False
        change = self._changed_rows(node, state)
        if change is None or change.count() > max(state.rows, self._counts(node.name)[0]):
            return False  # a changed row is told twice: old and new
        self.tables.tell(node.name, change)
        return True

    def _changed_rows(self, node: Node, state: TableState) -> Batch | None:
        """What a table that was computed again removed and added; None where it has other columns now."""
        if (held := self._both(node, state)) is not None:
            return held_difference(*held, state.version.number + 1)[0]
        before, after = self.tables.read(node.name, state.version.snapshot), self.tables.staged(node.name)
        if before.columns != after.columns:
            return None
        change = numbered(difference(before, after), state.version.number + 1)
        with spent("compute"):
            return evaluate(change, self.scratch(node) / "difference")

    def _both(self, node: Node, state: TableState) -> tuple[InMemory, InMemory] | None:
        """All rows that a table had and all that it has now, where both are in memory and can be compared there."""
        after = self.tables.rows_written(node.name)
        if after is None or not can_be_compared(after.table.schema):
            return None
        before = self.tables.rows_at(node.name, state.version.snapshot)
        return None if before is None or before.schema != after.schema else (before, after)

    def _is_same(self, node: Node, step: Step, state: TableState, added: int, removed: int) -> bool:
        """Whether the table holds the rows it held before, so that nothing needs to ripple downstream."""
        if not (added or removed):  # one that was made anew, and is empty now, had no rows to remove
            return step.action == "append" or not state.rows
        if added != removed or removed != state.rows or state.meddled:
            return False
        with spent("compute"):
            if (held := self._both(node, state)) is not None:
                return not any(pc.any(side).as_py() for side in arrow_difference(held[0].table, held[1].table))
            before, after = self.tables.read(node.name, state.version.snapshot), self.tables.staged(node.name)
            return before.columns == after.columns and same_rows(before, after)

    def _take_back(self, node: Node) -> None:
        """Leaves the table at its old version; only columns that were added stay, and what is said of them."""
        branch = self.tables.branch
        base, staged = branch.base_metadata(node.name), branch.staged_metadata(node.name)
        if base is not None and staged is not None and meta.has_same_columns(base, staged):
            branch.prepare(node.name)
            self.tables.comment(node.name, node, node.comment)

    def _counts(self, table: str) -> tuple[int, int]:
        """Rows that the staged snapshot added and removed, as Iceberg counted them while writing."""
        base, staged = self.tables.branch.base_metadata(table), self.tables.branch.staged_metadata(table)
        assert staged is not None
        before, now = (meta.current_snapshot(base) if base else None), meta.current_snapshot(staged)
        if now is None or (before is not None and before["snapshot-id"] == now["snapshot-id"]):
            return 0, 0
        return int(now["summary"].get("added-records", 0)), int(now["summary"].get("deleted-records", 0))

    def _state(
        self,
        node: Node,
        step: Step,
        state: TableState | None,
        consumed: Mapping[str, Version],
        *,
        changed: bool,
        epoch: bool,
        begin: Version | None = None,
        promise: Promise = "",
        origin: bool = False,
    ) -> TableState:
        staged = self.tables.branch.staged_metadata(node.name)
        assert staged is not None
        found = table_state(node.name, staged)
        before = state.version if state else begin or Version(epoch=0, number=0, snapshot=None)
        meddled = state is not None and state.meddled  # accepted: who reads it has to read all of it again
        version = Version(
            epoch=before.epoch + (epoch or meddled),
            number=before.number + (changed or meddled),
            snapshot=found.version.snapshot,
        )
        told = state.changes if state is not None and version.epoch == before.epoch else None
        return TableState(
            name=node.name,
            version=version,
            run=self.run,
            fingerprint=node.fingerprint,
            checks_fingerprint=node.checks_fingerprint,
            rows=found.rows,
            columns=found.columns,
            published_ms=0,
            inputs=consumed,
            cursor=self.reached.get(node.name) or (step.news.cursor if step.news is not None else None),
            lineage=found.lineage,
            changes=self._told_since(node, before, version, told),
            repairs=len(self.decided[node.name].repairs) if node.name in self.decided else 0,
            amounts=state.amounts if state is not None and not (changed or meddled) else {},
            held=state.held if state is not None and not changed else {},
            beside=state.beside if state is not None and step.action == "note" else node.name in self.apart,
            promise=promise,
            origin=origin,
        )

    def _told_since(self, node: Node, before: Version, now: Version, told: int | None) -> int | None:
        """The number above which every change is told."""
        if node.name not in self.followed:
            return None
        if isinstance(node.refresh, Append) and node.name not in self.tables.told and now.number > before.number:
            return None  # what it adds is read from the table itself
        if told is not None:
            return told
        if isinstance(node.refresh, Append) and node.name not in self.tables.told:
            return None
        return before.number if now.epoch == before.epoch else now.number

    def _noted(self, node: Node, step: Step, state: TableState | None, received: Received | None) -> Staged:
        assert state is not None
        if node.keys and state.fingerprint != node.fingerprint:
            require_same_columns(node, self.tables.before(node.name).schema, self.schemas[node.name])
        self.tables.branch.prepare(node.name)
        if node.renamed and node.name in self.schemas:
            self.tables.rename(node.name, self.schemas[node.name], node.renamed)
        promise = state.promise or self.promises.get(node.name, "full")
        new = self._state(
            node, step, state, state.inputs, changed=False, epoch=False, promise=promise, origin=state.origin
        )
        records = received.noted(self.run) if received is not None else []
        return Staged(step=step, refresh=node.refresh, state=new, changed=False, records=records, tables=(node.name,))


def _corrected(step: Step) -> set[int]:
    """The places in the order of arrival of files that were corrected."""
    if not isinstance(step.news, FilesNews):
        return set()
    paths = {file.path for file in step.news.changed}
    return {file.order for file in step.news.taken if file.path in paths}


def _idle(repairs: Collection[int]) -> str:
    """What is said of repairs that were not applied."""
    return f"repair {', '.join(map(str, sorted(repairs)))} no longer matches the columns; its rows stay in quarantine"


def last_read(table: str, states: Mapping[str, TableState]) -> Version:
    """Where a table begins that is built for the first time: if it was dropped, its followers know older versions."""
    known = [state.inputs[table] for state in states.values() if table in state.inputs]
    return Version(
        epoch=max((version.epoch for version in known), default=0),
        number=max((version.number for version in known), default=0),
        snapshot=None,
    )
