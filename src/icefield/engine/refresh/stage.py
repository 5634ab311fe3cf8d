"""Carries out one step of a plan on the run's branch: reads what it needs, calls the function, splits, writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql import functions as F

from icefield.declare import Append
from icefield.engine.batch import evaluate
from icefield.engine.checks import split as quality
from icefield.engine.checks.rejects import quarantine_names
from icefield.engine.clock import spent
from icefield.engine.promises.analyse import misfit
from icefield.engine.promises.spark_plans import hands_through
from icefield.engine.promises.trial import try_append, try_promise
from icefield.engine.refresh.computed import Updated
from icefield.engine.refresh.correction import correct
from icefield.engine.refresh.outcome import Outcome, corrected_files, last_read
from icefield.engine.refresh.renewal import Renewal
from icefield.engine.refresh.staged import Staged
from icefield.engine.refresh.update import update
from icefield.engine.refresh.writing import Writer
from icefield.engine.versions import Published
from icefield.failpoint import failpoint
from icefield.graph import measures_of, quarantine_of
from icefield.graph.news import FilesNews
from icefield.graph.state import TableState
from icefield.plan import arrivals_of, with_quarantines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

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

    @property
    def outcome(self) -> Outcome:
        """Tells what came of a step."""
        return Outcome(self)

    @property
    def writer(self) -> Writer:
        """Writes what a step computed."""
        return Writer(self)

    def is_proven(self, node: Node) -> bool:
        """Whether a table's promise needs no trial."""
        return self.promises.get(node.name) == "proven"

    def carry_out(self, node: Node, step: Step, state: TableState | None, inputs: Mapping[str, TableState]) -> Staged:
        """Does what the step says; nobody sees any of it before the run is published."""
        received = self._receive(node, step)
        if step.action == "note":
            return self.outcome.noted(node, step, state, received)
        given = {name: with_quarantines(node, inputs)[name] for name in node.inputs}
        consumed = {name: one.version.meddled() if one.meddled else one.version for name, one in given.items()}
        if step.action in ("append", "update") and state is not None and (grown := self._grown(node, state)):
            step = step.as_rebuild(f"{step.reason}; {grown}")
            received = self._receive_everything(node, step)
        if step.action == "update" and state is not None:
            landed = self._land(node, received) if received is not None else None
            done = self._update(node, step, state, landed)
            if isinstance(done, Updated):
                staged = self.outcome.staged_update(node, step, state, done, consumed, landed)
                return self.outcome.with_quarantine(node, staged, inputs)
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
        self.writer.write(node, step, split)
        self.outcome.tell_appended(node, step, state, inputs)
        touched = (node.name, *beside, *self.writer.write_quarantine(node, step, split))
        if state is None:
            touched += self.writer.forget_changes(node)
        promise = self.tried(node, step, state, frames)
        failpoint("stage.written", node.name)
        records = self.outcome.records(landed)
        read = landed.count if landed is not None else None
        begin = last_read(node.name, inputs)
        origin = landed is not None and self._keeps_origin(node, landed, output)
        staged = self.outcome.result(
            node, step, state, split, consumed, records, touched, read, begin, promise, origin=origin
        )
        return self.outcome.with_quarantine(node, staged, inputs)

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

    def _keeps_origin(self, node: Node, landed: Landed, output: DataFrame) -> bool:
        """Whether rows keep the file that they came from."""
        kept = "source_file" in landed.provenance
        return kept and hands_through(landed.rows, output, "source_file", node.fingerprint)

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

    def tried(
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
        self.tables.definitions.ready(
            name, measures.frame.schema, None, f"The measures behind {node.name}.", remake=True
        )
        self.writer.put(name, step, measures.frame, measures)
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
        about = decided.without_files(corrected_files(step))
        return about.fitted(lambda repair: self.fits(node, repair))
