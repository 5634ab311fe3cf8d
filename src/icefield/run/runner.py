"""One run of a project: plan, stage, audit, publish; all of it or nothing."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from icefield.engine.clock import Clock, timing
from icefield.errors import CheckFailed, IcefieldError, Interrupted, Overtaken, RunCleared
from icefield.failpoint import FailpointError, failpoint
from icefield.graph import quarantine_of
from icefield.interrupt import asked, stop_if_asked, tidying
from icefield.lake import metadata as meta
from icefield.lake.branch import Branch, BranchNames, new_branch_name
from icefield.lake.duckdb_scan import contents
from icefield.lake.embedded import RECORDER, EmbeddedLake, new_run_id, now_ms
from icefield.plan import Plan, Step, decide, with_quarantines
from icefield.project.config import require_reachable_lake
from icefield.run import journal
from icefield.run.auditing import Across, own_checks
from icefield.run.events import (
    PhaseStarted,
    RunBeside,
    RunDied,
    RunOvertaken,
    RunResult,
    RunStarted,
    TableOutcome,
    TableStarted,
    Traffic,
    silent,
)
from icefield.run.failures import as_users_error, check_failed
from icefield.run.planning import plan_project, selected, with_sources_as_read
from icefield.run.replaying import (
    NothingToReplay,
    Replaying,
    require_waiting_rows,
)
from icefield.run.request import RunRequest
from icefield.run.schedule import Schedule
from icefield.run.starting import Start
from icefield.run.subscribers import with_subscribers

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from concurrent.futures import Future

    from icefield.engine.checks.result import CheckResult
    from icefield.engine.refresh.stage import Stage
    from icefield.engine.refresh.staged import Staged
    from icefield.graph.state import TableState
    from icefield.lake.ops import Journal
    from icefield.project import Project
    from icefield.run.auditing import CrossCheck
    from icefield.run.events import Listener, Phase, Replayed, Status

#: Tables staged at the same time. More than this only makes Spark's jobs wait for one another.
WORKERS = 4
_names = BranchNames()
#: How often a run that was overtaken is planned again before it gives up.
TRIES = 5
#: What is said of a run that was cut off before it was to publish, and while it did.
NOTHING_PUBLISHED = "Nothing was published and the lake is unchanged; the next run cleans up what this one left behind."
ABOUT_TO_PUBLISH = "It was about to publish: `icefield ls` shows whether it did."


def run_project(project: Project, order: RunRequest | None = None, listener: Listener = silent) -> RunResult:
    """Takes in what has arrived, refreshes what it touches, checks it, and publishes it as one version of the lake."""
    return with_subscribers(project, order or RunRequest(), listener, partial(_until_not_overtaken, project))


def _until_not_overtaken(project: Project, order: RunRequest, listener: Listener) -> RunResult:
    for attempt in range(TRIES):
        try:
            return Run(project, order, listener, again=attempt > 0).carry_out()
        except Overtaken as overtaken:
            declared = [table for table in overtaken.tables if table in project.graph] or ["the lake"]
            if attempt == TRIES - 1:
                raise Overtaken(declared) from overtaken
            listener(RunOvertaken(tables=tuple(declared)))
    raise AssertionError("unreachable")


@dataclass(slots=True)
class Run:
    project: Project
    order: RunRequest
    listener: Listener
    again: bool = False
    lake: EmbeddedLake = field(init=False)
    run: str = field(init=False)
    started_ms: int = field(init=False)
    states: dict[str, TableState] = field(default_factory=dict)
    published: dict[str, TableState] = field(default_factory=dict)
    staged: dict[str, Staged] = field(default_factory=dict)
    outcomes: dict[str, TableOutcome] = field(default_factory=dict)
    checks: list[CheckResult] = field(default_factory=list)
    crossed: dict[CrossCheck, CheckResult] = field(default_factory=dict)
    breached: dict[CrossCheck, BaseException] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    traffic: Traffic | None = None
    failures: dict[str, BaseException] = field(default_factory=dict)
    replaying: Replaying = field(default_factory=Replaying)
    replayed: tuple[Replayed, ...] = ()
    staging: bool = False
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.lake = EmbeddedLake(self.project.profile.lake)
        self.run = new_run_id()
        self.started_ms = now_ms()

    def carry_out(self) -> RunResult:
        begun = time.monotonic()
        try:
            return self._carry_out(begun)
        except NothingToReplay as nothing:
            plan, seconds = Plan(steps=()), time.monotonic() - begun
            return RunResult(run="", status="nothing new", plan=plan, replayed=nothing.replayed, seconds=seconds)

    def _carry_out(self, begun: float) -> RunResult:
        with self._phase("plan"):
            require_reachable_lake(self.project.profile)
            self.lake.require_in_place()
            self.lake.clear_dead()
            if deaths := self.lake.deaths():
                with suppress(Overtaken):  # by another process that recorded them
                    _record(self.lake, journal.of_deaths(self.project.name, deaths), deaths)
                    for run, started_ms in deaths.items():
                        self.listener(RunDied(run=run, started_ms=started_ms))
            pointers = self.lake.pointers()
            self.states = self.lake.states(pointers)
            self.published = dict(self.states)
            require_waiting_rows(self.order.replays, self.states)
            selection = selected(self.project, self.order.select, self.order.exclude)
            plan = plan_project(
                self.project,
                self.lake,
                self.states,
                selection=selection,
                wishes=self.order.wishes,
                batch=self.order.batch,
                max_rows=self.order.max_rows,
            )
            plan.require_possible()
        if not plan.work:
            return RunResult(run="", status="nothing new", plan=plan, seconds=time.monotonic() - begun)
        if not self.again:
            for other in self.lake.open_runs():
                self.listener(RunBeside(run=other.run, pid=other.pid, started_ms=other.started_ms))
        self.lake.create()
        with tidying(NOTHING_PUBLISHED):
            return self._on_a_branch(plan, pointers, begun)

    def _on_a_branch(self, plan: Plan, pointers: Mapping[str, str], begun: float) -> RunResult:
        branch = Branch(self.lake, _names.take(self.lake.root), self.run)
        try:
            if branch.base != pointers:
                raise Overtaken(sorted(set(branch.base) ^ set(pointers)) or ["the lake"])
            self.listener(RunStarted(run=self.run, plan=plan, started_ms=self.started_ms, batch=self._batch))
            published_ms = self._work(branch, plan)
        except (Overtaken, NothingToReplay):
            branch.abandon()
            _names.give_back(self.lake.root, branch.name)
            raise
        except BaseException as error:
            return self._failed(branch, plan, error, begun)
        failed = published_ms is None and bool(self.failures)
        if published_ms is None:
            branch.abandon(keep=failed)
        if not failed:
            _names.give_back(self.lake.root, branch.name)
        status = "failed" if failed else "dry run" if self.order.dry_run else "published"
        if status == "dry run":
            self._undo_outcomes()
        return self._result(plan, status, begun, published_ms)

    def _work(self, branch: Branch, plan: Plan) -> int | None:
        from icefield.engine.session.spark import cores  # noqa: PLC0415 - for real runs only

        with ThreadPoolExecutor(cores(), thread_name_prefix="reader") as readers:
            try:
                with self._phase("start"):
                    stage = self._start(branch, plan, readers)
                self.staging = True
                due = [step.table for step in plan.work]
                across = Across(
                    stage, self.project.graph, self.states, self.published, self.staged, due, partial=self.order.dry_run
                )
                with self._phase("stage", plan):
                    self._stage(stage, plan, across)
            finally:
                readers.shutdown(cancel_futures=True)
        with self._phase("audit"):
            self._audit(across)
            self._keep_changes(stage)
            self.replayed = self.replaying.tell(stage.tables, self.staged)
            self.traffic = self._traffic(stage)
        if self.order.dry_run:
            return None
        with self._phase("publish"), tidying(ABOUT_TO_PUBLISH):
            return self._publish(branch, plan, across.relied)

    def _start(self, branch: Branch, plan: Plan, readers: ThreadPoolExecutor, also: Collection[str] = ()) -> Stage:
        self.project = with_sources_as_read(self.project, plan)
        start = Start(
            project=self.project,
            lake=self.lake,
            order=self.order,
            states=self.states,
            started_ms=self.started_ms,
            listener=self.listener,
            also=also,
        )
        started = start.carry_out(branch, plan, readers)
        self.replaying = started.replaying
        return started.stage

    # -- stage

    def _stage(self, stage: Stage, plan: Plan, across: Across | None = None) -> None:
        """Every table once its inputs are staged, and every check across tables once all that it names are."""
        graph = self.project.graph
        steps = {step.table: step for step in plan.work}
        checks = {} if across is None else across.open(early=True)
        needs: dict[str, Collection[str]] = {name: graph[name].needs for name in steps}
        needs |= {label: check.needs for label, check in checks.items()}
        schedule: Schedule[CheckResult | None] = Schedule(
            list(needs), needs, workers=WORKERS, cancel=stage.tables.cancel
        )

        def work(name: str) -> CheckResult | None:
            if across is not None and name in checks:
                return across.result(checks[name])
            self._stage_table(stage, steps[name])
            return None

        def ended(name: str, work: Future[CheckResult | None]) -> bool:
            if name in checks:
                return self._checked(checks[name], work)
            error = work.exception()
            return error is None or self._table_failed(steps[name], error)

        for name in schedule.run(work, ended):
            if name in steps:
                self._skip(steps[name], "the run was stopped" if not self.order.keep_going else "an input failed")
        self._raise_first_failure()

    def _raise_first_failure(self) -> None:
        if self.failures and not self.order.keep_going:
            raise next(iter(self.failures.values()))

    def _stage_table(self, stage: Stage, planned: Step) -> None:
        node = self.project.graph[planned.table]
        begun = time.monotonic()
        with self._guard:
            states = dict(self.states)
        state = states.get(node.name)
        known = with_quarantines(node, states)
        step = planned if planned.known else decide(node, state, known, planned.news, self.order.wishes)
        self.listener(TableStarted(table=node.name, action=step.action, reason=step.reason))
        if step.action == "none":
            self._finish_table(_outcome(step, "unchanged", begun, rows_total=state.rows if state else 0))
            return
        try:
            with timing() as clock:
                staged = stage.carry_out(node, step, state, states)
                results = own_checks(stage, node, staged, state)
        except BaseException as error:
            raise as_users_error(error, node.name, str(node.location), self._log(), self.project.root) from error
        with self._guard:
            self.checks.extend(results)
        if bad := [result for result in results if result.stops]:
            raise self._breach(bad, node.name)
        with self._guard:
            self.states[node.name] = staged.state
            if staged.waiting is not None:
                self.states[staged.waiting.name] = staged.waiting
            self.staged[node.name] = staged
        self._finish_table(replace(_staged_outcome(staged, begun, clock), lineage=stage.lineage.get(node.name)))

    def _breach(self, bad: Sequence[CheckResult], table: str) -> CheckFailed:
        location = str(self.project.graph[table].location)
        return check_failed(bad, table, location, self.run, keep_going=self.order.keep_going)

    def _table_failed(self, step: Step, error: BaseException) -> bool:
        """Notes the failure; True if what does not depend on the table goes on."""
        self.failures[step.table] = error
        outcome = TableOutcome(
            table=step.table, action=step.action, reason=step.reason, status="failed", error=str(error)
        )
        self._finish_table(outcome)
        return self.order.keep_going

    def _skip(self, step: Step, why: str) -> None:
        self._finish_table(TableOutcome(table=step.table, action=step.action, reason=why, status="skipped"))

    def _finish_table(self, outcome: TableOutcome) -> None:
        with self._guard:
            self.outcomes[outcome.table] = outcome
        self.listener(outcome)

    # -- audit: checks across tables, once everything is staged

    def _audit(self, across: Across) -> None:
        """What could not be looked at while tables were staged: with --keep-going, where one of them failed."""
        failpoint("audit.before")
        self._look_across(across)
        self._raise_first_failure()
        while withdrawn := self._withdraw(across.stage):
            across.reopen(withdrawn)  # what is left has not been looked at together with what was there before
            self._look_across(across)
        across.remember()
        failpoint("audit.after")

    def _keep_changes(self, stage: Stage) -> None:
        """Keeps what tables changed, for whoever follows them and has not read it in this run."""
        for name, staged in self.staged.items():
            try:
                stage.keep_change(staged, self.states)
            except BaseException as error:
                location = str(self.project.graph[name].location)
                raise as_users_error(error, name, location, self._log(), self.project.root) from error

    def _look_across(self, across: Across) -> None:
        across.foresee()
        left = across.open()
        needs: dict[str, tuple[str, ...]] = {label: () for label in left}
        cancel = across.stage.tables.cancel
        schedule: Schedule[CheckResult | None] = Schedule(list(left), needs, workers=WORKERS, cancel=cancel)
        schedule.run(lambda label: across.result(left[label]), lambda label, work: self._checked(left[label], work))

    def _checked(self, check: CrossCheck, work: Future[CheckResult | None]) -> bool:
        """Notes the result; True if the others are to go on."""
        error, owner = work.exception(), check.owner
        if error is None and (result := work.result()) is not None:
            if check not in self.crossed or not self.crossed[check].stops:  # what once failed is told
                self.crossed[check] = result
            error = self._breach([result], owner) if result.stops else None
        self.breached.pop(check, None)
        if error is None:
            return True
        self.breached[check] = error
        if owner in self.failures:
            return self.order.keep_going
        step = self.staged[owner].step if owner in self.staged else Step(table=owner, action="none")
        return self._table_failed(step, error)

    def _withdraw(self, stage: Stage) -> set[str]:
        """With --keep-going: takes back what is downstream of a failure, so that only sound tables are published."""
        self._blame()
        bad = set(self.failures) & set(self.staged)
        withdrawn = {name for name in (*bad, *self.project.graph.downstream(bad)) if name in self.staged}
        for name in withdrawn:
            staged = self.staged.pop(name)
            for table in staged.tables:
                stage.tables.branch.forget(table)
            for table in (name, quarantine_of(name)):
                if table in self.published:
                    self.states[table] = self.published[table]
                else:
                    self.states.pop(table, None)
            if name not in self.failures:
                self._skip(staged.step, "an input failed a check")
        return withdrawn

    def _blame(self) -> None:
        """A check of a table that this run did not stage, or has taken back, failed by the others that it names."""
        for check, error in self.breached.items():
            if check.owner not in self.staged:
                for name in sorted(check.tables & set(self.staged)):
                    if self.staged[name].changed:
                        self._table_failed(self.staged[name].step, error)

    def _traffic(self, stage: Stage) -> Traffic:
        from icefield.engine.traffic import bytes_read  # noqa: PLC0415

        branch = stage.tables.branch
        touched = [table for staged in self.staged.values() for table in staged.tables]
        staged = {table: found for table in touched if (found := branch.staged_metadata(table)) is not None}
        before = [found for table in branch.base if (found := branch.base_metadata(table)) is not None]
        return Traffic(
            read=bytes_read(stage.tables.spark, self.started_ms),
            written=sum(meta.bytes_added(found, branch.base_metadata(table)) for table, found in staged.items()),
            stored=sum(meta.total_bytes(found) for found in before),
        )

    # -- publish

    def _publish(self, branch: Branch, plan: Plan, relied: Collection[str]) -> int | None:
        if not self.staged:
            return None
        tables: dict[str, dict[str, str]] = {}
        for staged in self.staged.values():
            for table in staged.tables:
                tables[table] = self._properties(staged, table)
        written = journal.of_run(
            run=self.run,
            project=self.project.name,
            selection=self.order.select,
            started_ms=self.started_ms,
            staged=self.staged,
            outcomes=self.outcomes,
            checks=self._results(),
            repairs=self.replaying.records(self.staged),
            repaired=self.replaying.rows(self.staged, partial(contents, self.lake)),
            batch=self._batch,
            label=self.order.label,
        )
        told = {meta.RUN: branch.run, **({meta.BATCH: self._batch} if self._batch else {})}
        summaries = {
            name: {meta.ROWS_ADDED: str(one.rows_added), meta.ROWS_REMOVED: str(one.rows_removed), **told}
            for name, one in self.staged.items()
            if one.changed
        }
        return branch.publish(tables, written, relied=relied, summaries=summaries)

    def _properties(self, staged: Staged, table: str) -> dict[str, str]:
        if table == staged.state.name:
            return meta.state_properties(staged.state)
        if staged.waiting is not None and table == staged.waiting.name:
            return meta.version_properties(staged.waiting)
        return {meta.RUN: self.run}

    def _failed(self, branch: Branch, plan: Plan, error: BaseException, begun: float) -> RunResult:
        """The published lake stays as it was; the failure itself is recorded by a commit of its own."""
        interrupted = isinstance(error, KeyboardInterrupt) or asked()  # what breaks on the way out is no news
        if interrupted:
            done = self.lake.published(self.run)
            told = "everything had already been published" if done else "nothing was published; run again at any time"
            error = Interrupted("the run was interrupted", remedy=told)
        elif not isinstance(error, IcefieldError | FailpointError | OSError):
            branch.abandon()
            with suppress(Exception):
                self._record_failure(f"{type(error).__name__}: {error}")
            raise error
        branch.abandon(keep=self.staging and not interrupted)
        self._undo_outcomes()
        told = str(error)
        try:
            begun_to_work = self.staging or not interrupted  # else there is nothing to tell, and to import for it
            if begun_to_work and not isinstance(error, RunCleared) and not self.lake.published(self.run):
                self._record_failure(told)  # the end of a cleared run is noted by whoever cleared it
        except Exception as unrecorded:  # why it failed matters more than why that could not be recorded
            told = f"{told}\n  this failure could not be recorded: {unrecorded}"
        if interrupted or (isinstance(error, IcefieldError) and not self.staging):  # it could not even begin
            raise error
        return self._result(plan, "failed", begun, None, told)

    def _undo_outcomes(self) -> None:
        """What was staged is not published."""
        for name, outcome in self.outcomes.items():
            if outcome.status == "published":
                self.outcomes[name] = replace(outcome, status="abandoned")

    def _record_failure(self, told: str) -> None:
        rows = journal.of_failure(
            run=self.run,
            project=self.project.name,
            selection=self.order.select,
            started_ms=self.started_ms,
            outcomes=self.outcomes,
            checks=self._results(),
            error=told,
            batch=self._batch,
            label=self.order.label,
        )
        _record(self.lake, rows)

    def _result(self, plan: Plan, status: Any, begun: float, published_ms: int | None, error: str = "") -> RunResult:
        if status == "failed" and not error and self.failures:
            error = str(next(iter(self.failures.values())))
            self._record_failure(error)
        return RunResult(
            run=self.run,
            status=status,
            plan=plan,
            tables=tuple(self.outcomes[step.table] for step in plan.work if step.table in self.outcomes),
            checks=tuple(self._results()),
            replayed=self.replayed if status in ("published", "dry run") else (),
            seconds=time.monotonic() - begun,
            phases=self.phases,
            traffic=self.traffic,
            published_ms=published_ms,
            error=error,
            log=self._log(),
        )

    def _results(self) -> list[CheckResult]:
        return [*self.checks, *self.crossed.values()]

    @property
    def _batch(self) -> str:
        return self.order.batch.value if self.order.batch is not None else ""

    def _log(self) -> str:
        return str(self.lake.run_folder(self.run) / "spark.log")

    def _phase(self, name: Phase, plan: Plan | None = None) -> Any:
        return _Phase(self, name, plan)


@dataclass(slots=True)
class _Phase:
    run: Run
    name: Phase
    plan: Plan | None
    begun: float = 0.0

    def __enter__(self) -> None:
        stop_if_asked()
        self.begun = time.monotonic()
        self.run.listener(PhaseStarted(phase=self.name, plan=self.plan))

    def __exit__(self, *_: object) -> None:
        self.run.phases[self.name] = time.monotonic() - self.begun


def _record(lake: EmbeddedLake, rows: Journal, deaths: Collection[str] = ()) -> None:
    """Adds rows to `ops.*` by a commit of its own."""
    branch = Branch(lake, new_branch_name(RECORDER), new_run_id())
    try:
        branch.publish({}, rows, deaths)
    except BaseException:
        branch.abandon()
        raise


def _outcome(step: Step, status: Status, begun: float, *, rows_total: int = 0) -> TableOutcome:
    return TableOutcome(
        table=step.table,
        action=step.action,
        reason=step.reason,
        status=status,
        rows_total=rows_total,
        seconds=time.monotonic() - begun,
    )


def _staged_outcome(staged: Staged, begun: float, clock: Clock) -> TableOutcome:
    return replace(
        _outcome(staged.step, "published", begun, rows_total=staged.state.rows),
        rows_added=staged.rows_added,
        rows_removed=staged.rows_removed,
        rows_quarantined=staged.quarantined,
        rows_dropped=staged.dropped,
        keys_touched=staged.keys,
        promise=staged.state.promise,
        state=staged.state,
        spent={part: round(seconds, 3) for part, seconds in clock.seconds.items()},
    )
