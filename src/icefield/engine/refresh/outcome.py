"""What a step did to its table: row counts, the new state, and the changelog for tables that follow it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from icefield.declare import Append
from icefield.engine.arrow_rows import can_be_compared
from icefield.engine.arrow_rows import difference as arrow_difference
from icefield.engine.batch import InMemory, evaluate
from icefield.engine.clock import spent
from icefield.engine.promises.naming import require_same_columns
from icefield.engine.refresh.changes import held_difference, keep, numbered, trim
from icefield.engine.refresh.computed import Updated
from icefield.engine.refresh.difference import ADDED, CHANGE, difference, same_rows
from icefield.engine.refresh.staged import Staged
from icefield.graph import quarantine_of
from icefield.graph.news import FilesNews
from icefield.graph.state import EMPTY, TableState, Version
from icefield.lake import metadata as meta
from icefield.lake.table_state import table_state
from icefield.plan import read_by_all
from icefield.words import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from icefield.engine.batch import Batch
    from icefield.engine.checks.split import Split
    from icefield.engine.intake.port import Landed, Received
    from icefield.engine.refresh.stage import Stage
    from icefield.graph import Node
    from icefield.graph.state import Promise
    from icefield.plan import Step


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of the steps of a run."""

    stage: Stage

    def result(
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
        if void := self.voided(node, step):
            step = step.noting(void)
        added, removed = self.counts(node.name)
        split.require_nothing_lost(node, added, read)
        changed = state is None or not self.is_same(node, step, state, added, removed)
        epoch = changed and step.action != "append"
        if not changed:
            self.take_back(node)
            added = removed = 0
        elif step.action == "refresh" and state is not None and self.tell_difference(node, state):
            epoch = False
        new = self.state(
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

    def staged_update(
        self,
        node: Node,
        step: Step,
        state: TableState,
        done: Updated,
        consumed: Mapping[str, Version],
        landed: Landed | None,
    ) -> Staged:
        changed = bool(done.added or done.removed)
        promise = self.stage.tried(node, step, state) if node.keys and node.source is None else state.promise
        records = self.records(landed)
        if void := self.voided(node, step):
            step = step.noting(void)
        return Staged(
            step=step,
            refresh=node.refresh,
            records=records,
            mended=done.split.mended,
            state=replace(
                self.state(
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

    def noted(self, node: Node, step: Step, state: TableState | None, received: Received | None) -> Staged:
        assert state is not None
        if node.keys and state.fingerprint != node.fingerprint:
            require_same_columns(node, self.stage.tables.before(node.name).schema, self.stage.schemas[node.name])
        self.stage.tables.branch.prepare(node.name)
        if node.renamed and node.name in self.stage.schemas:
            self.stage.tables.definitions.rename(node.name, self.stage.schemas[node.name], node.renamed)
        promise = state.promise or self.stage.promises.get(node.name, "full")
        new = self.state(
            node, step, state, state.inputs, changed=False, epoch=False, promise=promise, origin=state.origin
        )
        records = received.noted(self.stage.run) if received is not None else []
        return Staged(step=step, refresh=node.refresh, state=new, changed=False, records=records, tables=(node.name,))

    def tell_appended(self, node: Node, step: Step, state: TableState | None, states: Mapping[str, TableState]) -> None:
        """Tells of appended rows while somebody has yet to read rows that left: what is told must be all there is."""
        if step.action != "append" or state is None or state.changes is None or node.name not in self.stage.followed:
            return
        followers = [states[follower] for follower in self.stage.followed[node.name] if follower in states]
        if read_by_all(state, followers) == state.version.number:
            return
        end = self.stage.tables.snapshot(node.name)
        if end is None or end == state.version.snapshot or state.version.snapshot is None:
            return
        rows = self.stage.tables.read_between(node.name, state.version.snapshot, end)
        self.stage.tables.told[node.name] = numbered(rows.withColumn(CHANGE, F.lit(ADDED)), state.version.number + 1)

    def with_quarantine(self, node: Node, staged: Staged, states: Mapping[str, TableState]) -> Staged:
        """Notes what became of the quarantine, for whoever reads it: appended to, or written anew."""
        name = quarantine_of(node.name)
        metadata = self.stage.tables.branch.staged_metadata(name) if name in staged.tables else None
        if metadata is not None:
            found, before = table_state(name, metadata), states.get(name, EMPTY).version
            appended = staged.step.action == "append" or not states.get(name, EMPTY).rows
            number = Version(
                epoch=before.epoch + (not appended), number=before.number + 1, snapshot=found.version.snapshot
            )
            staged.waiting = replace(found, version=number, run=self.stage.run)
        return staged

    def keep_change(self, staged: Staged, states: Mapping[str, TableState]) -> None:
        """Writes what a table changed where someone who follows has not read it in this run: it is for later ones."""
        name = staged.state.name
        if name not in self.stage.tables.told:
            return
        followers = [states[follower] for follower in self.stage.followed[name] if follower in states]
        upto = read_by_all(staged.state, followers)
        if upto == staged.state.version.number:
            appends = isinstance(staged.refresh, Append)  # what it adds is read from the table itself again
            staged.state = replace(staged.state, changes=None) if appends else staged.state.telling_nothing()
            return
        staged.tables = (*staged.tables, keep(self.stage.tables, name, self.stage.tables.told[name]))
        if trim(self.stage.tables, name, staged.state.rows, upto):
            staged.state = replace(staged.state, changes=upto)

    def tell_difference(self, node: Node, state: TableState) -> bool:
        """Tells followers what a table that was computed again changed, if that is less than half of it."""
        if node.name not in self.stage.followed:
            return False
        change = self.changed_rows(node, state)
        if change is None or change.count() > max(state.rows, self.counts(node.name)[0]):
            return False  # a changed row is told twice: old and new
        self.stage.tables.tell(node.name, change)
        return True

    def changed_rows(self, node: Node, state: TableState) -> Batch | None:
        """What a table that was computed again removed and added; None where it has other columns now."""
        if (held := self.both(node, state)) is not None:
            return held_difference(*held, state.version.number + 1)[0]
        before, after = self.stage.tables.read(node.name, state.version.snapshot), self.stage.tables.staged(node.name)
        if before.columns != after.columns:
            return None
        change = numbered(difference(before, after), state.version.number + 1)
        with spent("compute"):
            return evaluate(change, self.stage.scratch(node) / "difference")

    def both(self, node: Node, state: TableState) -> tuple[InMemory, InMemory] | None:
        """All rows that a table had and all that it has now, where both are in memory and can be compared there."""
        after = self.stage.tables.rows_written(node.name)
        if after is None or not can_be_compared(after.table.schema):
            return None
        before = self.stage.tables.rows_at(node.name, state.version.snapshot)
        return None if before is None or before.schema != after.schema else (before, after)

    def is_same(self, node: Node, step: Step, state: TableState, added: int, removed: int) -> bool:
        """Whether the table holds the rows it held before, so that nothing needs to ripple downstream."""
        if not (added or removed):  # one that was made anew, and is empty now, had no rows to remove
            return step.action == "append" or not state.rows
        if added != removed or removed != state.rows or state.meddled:
            return False
        with spent("compute"):
            if (held := self.both(node, state)) is not None:
                return not any(pc.any(side).as_py() for side in arrow_difference(held[0].table, held[1].table))
            before, after = (
                self.stage.tables.read(node.name, state.version.snapshot),
                self.stage.tables.staged(node.name),
            )
            return before.columns == after.columns and same_rows(before, after)

    def take_back(self, node: Node) -> None:
        """Leaves the table at its old version; only columns that were added stay, and what is said of them."""
        branch = self.stage.tables.branch
        base, staged = branch.base_metadata(node.name), branch.staged_metadata(node.name)
        if base is not None and staged is not None and meta.has_same_columns(base, staged):
            branch.prepare(node.name)
            self.stage.tables.definitions.comment(node.name, node, node.comment)

    def counts(self, table: str) -> tuple[int, int]:
        """Rows that the staged snapshot added and removed, as Iceberg counted them while writing."""
        base, staged = self.stage.tables.branch.base_metadata(table), self.stage.tables.branch.staged_metadata(table)
        assert staged is not None
        before, now = (meta.current_snapshot(base) if base else None), meta.current_snapshot(staged)
        if now is None or (before is not None and before["snapshot-id"] == now["snapshot-id"]):
            return 0, 0
        return int(now["summary"].get("added-records", 0)), int(now["summary"].get("deleted-records", 0))

    def state(
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
        staged = self.stage.tables.branch.staged_metadata(node.name)
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
            run=self.stage.run,
            fingerprint=node.fingerprint,
            checks_fingerprint=node.checks_fingerprint,
            rows=found.rows,
            columns=found.columns,
            published_ms=0,
            inputs=consumed,
            cursor=self.stage.reached.get(node.name) or (step.news.cursor if step.news is not None else None),
            lineage=found.lineage,
            changes=self.told_since(node, before, version, told),
            repairs=len(self.stage.decided[node.name].repairs) if node.name in self.stage.decided else 0,
            amounts=state.amounts if state is not None and not (changed or meddled) else {},
            held=state.held if state is not None and not changed else {},
            beside=state.beside if state is not None and step.action == "note" else node.name in self.stage.apart,
            promise=promise,
            origin=origin,
        )

    def told_since(self, node: Node, before: Version, now: Version, told: int | None) -> int | None:
        """The first version whose changelog is complete."""
        if node.name not in self.stage.followed:
            return None
        if isinstance(node.refresh, Append) and node.name not in self.stage.tables.told and now.number > before.number:
            return None  # what it adds is read from the table itself
        if told is not None:
            return told
        if isinstance(node.refresh, Append) and node.name not in self.stage.tables.told:
            return None
        return before.number if now.epoch == before.epoch else now.number

    def voided(self, node: Node, step: Step) -> str:
        """What is said of decisions about rows of files that were corrected: the rows are others now."""
        decided, orders = self.stage.decided.get(node.name), corrected_files(step)
        if decided is None or not orders:
            return ""
        about = decided.rows.filter(pc.is_in(decided.rows["arrival"], value_set=pa.array(sorted(orders), pa.int64())))
        numbers = sorted(set(about["number"].to_pylist()))
        if not numbers:
            return ""
        listed = ", ".join(map(str, numbers))
        return f"the corrected file invalidates {plural(about.num_rows, 'decision')} about its rows (repair {listed})"

    def records(self, landed: Landed | None) -> list[dict[str, Any]]:
        """What `ops.files`, `ops.offsets` or `ops.reads` is to remember of what was taken in."""
        if landed is None:
            return []
        found = landed.records(self.stage.run)
        landed.require_unchanged()  # last of all, so that what was read and what is remembered of it is one content
        return found


def corrected_files(step: Step) -> set[int]:
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
