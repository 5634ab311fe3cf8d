"""One run of a project: plan, stage, audit, publish; all of it or nothing."""

from __future__ import annotations

import importlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from icefield.errors import IcefieldError, Interrupted, Overtaken, RunCleared
from icefield.failpoint import FailpointError, failpoint
from icefield.interrupt import asked, stop_if_asked, tidying
from icefield.lake import metadata as meta
from icefield.lake.branch import Branch, BranchNames, new_branch_name
from icefield.lake.embedded import RECORDER, EmbeddedLake, new_run_id, now_ms
from icefield.plan import Plan, Step, Wishes, decide
from icefield.run import journal
from icefield.run.events import (
    PhaseStarted,
    RunBeside,
    RunOvertaken,
    RunResult,
    TableOutcome,
    TableStarted,
    Traffic,
    silent,
)
from icefield.run.failures import as_users_error, check_failed
from icefield.run.planning import plan_project, rows_at_stake, selected
from icefield.run.replaying import (
    NothingToReplay,
    Replay,
    Replaying,
    decided_before,
    require_waiting_rows,
    wanted_replays,
)
from icefield.run.schedule import Later, Schedule

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from concurrent.futures import Future

    from icefield.engine.audit import CheckResult
    from icefield.engine.jars import Jar
    from icefield.engine.jvm import Effort
    from icefield.engine.receive import Received, Receiver
    from icefield.engine.stage import Stage, Staged
    from icefield.graph.state import Repair, TableState
    from icefield.lake.ops import Journal
    from icefield.project import Project
    from icefield.run.events import Listener, Phase, Replayed, Status

#: Tables staged at the same time. More than this only makes Spark's jobs wait for one another.
WORKERS = 4
_names = BranchNames()
#: Runs over fewer rows are over before Java's optimising compiler would pay, at all or for the code of a single query.
FEW_ROWS, SOME_ROWS = 500_000, 6_000_000
#: How often a run that was overtaken is planned again before it gives up.
TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What was asked for."""

    select: str = ""
    exclude: str = ""
    full_refresh: bool = False
    keep_going: bool = False
    accept: tuple[str, ...] = ()
    replay: tuple[str, ...] = ()
    repairs: tuple[Repair, ...] = ()
    #: The process ends with this run, so Spark need not be made for more than it.
    once: bool = False

    @property
    def wishes(self) -> Wishes:
        """What the planner has to know of it."""
        replay = frozenset((*self.replay, *(repair.table for repair in self.repairs)))
        return Wishes(full_refresh=self.full_refresh, accept=frozenset(self.accept), replay=replay)

    @property
    def replays(self) -> tuple[Replay, ...]:
        """The quarantines to replay, and how."""
        return wanted_replays(self.replay, self.repairs)


def run_project(project: Project, order: Order | None = None, listener: Listener = silent) -> RunResult:
    """Takes in what has arrived, refreshes what it touches, checks it, and publishes it as one version of the lake."""
    wanted = order or Order()
    for attempt in range(TRIES):
        try:
            return Run(project, wanted, listener, again=attempt > 0).carry_out()
        except Overtaken as overtaken:
            declared = [table for table in overtaken.tables if table in project.graph] or ["the lake"]
            if attempt == TRIES - 1:
                raise Overtaken(declared) from overtaken
            listener(RunOvertaken(tables=tuple(declared)))
    raise AssertionError("unreachable")


@dataclass(slots=True)
class Run:
    project: Project
    order: Order
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
    phases: dict[str, float] = field(default_factory=dict)
    traffic: Traffic | None = None
    failures: dict[str, BaseException] = field(default_factory=dict)
    replaying: Replaying = field(default_factory=Replaying)
    replayed: tuple[Replayed, ...] = ()
    staging: bool = False
    told: Phase = "start"
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
            self.lake.require_in_place()
            self.lake.clear_dead()
            if deaths := self.lake.deaths():
                with suppress(Overtaken):  # by another process that recorded them
                    _record(self.lake, journal.of_deaths(self.project.name, deaths), deaths)
            pointers = self.lake.pointers()
            self.states = self.lake.states(pointers)
            self.published = dict(self.states)
            require_waiting_rows(self.order.replays, self.states)
            selection = selected(self.project, self.order.select, self.order.exclude)
            plan = plan_project(self.project, self.lake, self.states, selection=selection, wishes=self.order.wishes)
        if not plan.work:
            return RunResult(run="", status="nothing new", plan=plan, seconds=time.monotonic() - begun)
        if not self.again:
            for other in self.lake.open_runs():
                self.listener(RunBeside(run=other.run, pid=other.pid, started_ms=other.started_ms))
        self.lake.create()
        with tidying("Nothing was published, the lake is as it was; the next run clears what this one left."):
            return self._on_a_branch(plan, pointers, begun)

    def _on_a_branch(self, plan: Plan, pointers: Mapping[str, str], begun: float) -> RunResult:
        branch = Branch(self.lake, _names.take(self.lake.root), self.run)
        try:
            if branch.base != pointers:
                raise Overtaken(sorted(set(branch.base) ^ set(pointers)) or ["the lake"])
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
        return self._result(plan, "failed" if failed else "published", begun, published_ms)

    def _work(self, branch: Branch, plan: Plan) -> int | None:
        from icefield.engine.session import cores  # noqa: PLC0415 - for real runs only

        with ThreadPoolExecutor(cores(), thread_name_prefix="reader") as readers:
            try:
                with self._phase("start"):
                    stage = self._start(branch, plan, readers)
                self.staging = True
                with self._phase("stage", plan):
                    self._stage(stage, plan)
            finally:
                readers.shutdown(cancel_futures=True)
        with self._phase("audit"):
            self._audit(stage)
            self.replayed = self.replaying.tell(stage.tables, self.staged)
            self.traffic = self._traffic(stage)
        with self._phase("publish"), tidying("It was about to publish: `icefield ls` tells whether it did."):
            return self._publish(branch, plan)

    # -- start: Spark, the author's functions and PyIceberg come up side by side, and files are read meanwhile

    def _start(self, branch: Branch, plan: Plan, readers: ThreadPoolExecutor) -> Stage:
        from icefield.engine.session import add_catalog, import_pyspark, start_session  # noqa: PLC0415 - real runs only

        folder = self.lake.run_folder(self.run)
        folder.mkdir(parents=True, exist_ok=True)
        name, conf = f"icefield {self.project.name}", self.project.profile.spark
        effort = self._effort(plan)
        log, fetching = folder / "spark.log", self._tell_of_fetching
        session = Later(lambda: start_session(app=name, conf=conf, log=log, progress=fetching, effort=effort))

        # Imported while the JVM starts: pyarrow, then pyspark, which take longer than anything else of ours.
        from icefield.engine.receive import Receiver  # noqa: PLC0415

        zone = conf.get("spark.sql.session.timeZone", "UTC")
        receiver = Receiver(
            root=self.project.root, started_ms=self.started_ms, zone=zone, scratch=folder / "scratch", pool=readers
        )
        received = self._begin_reading(receiver, plan)
        stop_if_asked()
        import_pyspark()
        stop_if_asked()

        from icefield.engine.analyse import derive_schemas, require_repair  # noqa: PLC0415
        from icefield.engine.stage import Stage  # noqa: PLC0415
        from icefield.engine.tables import Tables  # noqa: PLC0415
        from icefield.project import load_functions  # noqa: PLC0415

        Later(lambda: importlib.import_module("pyiceberg.catalog.sql"))
        functions = load_functions(self.project)
        spark = session.result()
        add_catalog(spark, branch.name, uri=str(self.lake.catalog.path), warehouse=str(self.lake.warehouse))
        graph = self.project.graph
        settled = {name for name, state in self.states.items() if self._is_settled(name, state)}
        derived = derive_schemas(spark, self.project.root, graph, functions, functions.finishes, settled)
        for repair in self.order.repairs:
            require_repair(spark, graph[repair.table], derived.schemas, repair)
        tables = Tables(spark, branch)
        self.replaying.decided = decided_before(self.lake, self.states)
        self.replaying.find(self.order.replays, tables, graph, derived, receiver.scratch)
        return Stage(
            tables=tables,
            root=self.project.root,
            functions=functions,
            finishes=functions.finishes,
            schemas=derived.schemas,
            measures=derived.measures,
            apart=frozenset(derived.apart),
            is_proven=derived.is_proven,
            followed=graph.followers(),
            started_ms=self.started_ms,
            receiver=receiver,
            received=received,
            decided=self.replaying.decided,
            remake=self.order.full_refresh,
        )

    def _is_settled(self, name: str, state: TableState) -> bool:
        return name in self.project.graph and state.fingerprint == self.project.graph[name].fingerprint

    def _effort(self, plan: Plan) -> Effort:
        rows = rows_at_stake(plan, self.states)
        if not self.order.once or rows >= SOME_ROWS:
            return "full"
        return "least" if rows < FEW_ROWS else "less"

    def _tell_of_fetching(self, _jar: Jar, done: int, total: int) -> None:
        phase: Phase = "start" if done >= total else "fetch"
        if self.told != phase:
            self.told = phase
            self.listener(PhaseStarted(phase=phase))

    def _begin_reading(self, receiver: Receiver, plan: Plan) -> dict[str, Later[Received | None]]:
        graph = self.project.graph
        known = [step for step in plan.work if step.known and graph[step.table].source is not None]
        return {step.table: Later(partial(receiver.receive, graph[step.table], step)) for step in known}

    # -- stage

    def _stage(self, stage: Stage, plan: Plan) -> None:
        graph = self.project.graph
        steps = {step.table: step for step in plan.work}
        needs = {name: graph[name].inputs for name in steps}
        schedule: Schedule[None] = Schedule(list(steps), needs, workers=WORKERS, cancel=stage.tables.cancel)

        def ended(name: str, work: Future[None]) -> bool:
            error = work.exception()
            return error is None or self._table_failed(steps[name], error)

        for name in schedule.run(lambda name: self._stage_table(stage, steps[name]), ended):
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
        step = planned if planned.known else decide(node, state, states, planned.arrivals, self.order.wishes)
        self.listener(TableStarted(table=node.name, action=step.action, reason=step.reason))
        if step.action == "none":
            self._finish_table(_outcome(step, "unchanged", begun, rows_total=state.rows if state else 0))
            return
        try:
            staged = stage.carry_out(node, step, state, states)
            results = self._own_checks(stage, staged, state)
        except BaseException as error:
            raise as_users_error(error, node.name, str(node.location), self._log(), self.project.root) from error
        if bad := [result for result in results if result.stops]:
            raise check_failed(bad, node.name, str(node.location), self.run)
        with self._guard:
            self.states[node.name] = staged.state
            self.staged[node.name] = staged
        self._finish_table(_staged_outcome(staged, begun))

    def _own_checks(self, stage: Stage, staged: Staged, before: TableState | None) -> list[CheckResult]:
        from icefield.engine.audit import own_results, split_results  # noqa: PLC0415
        from icefield.engine.looking import look  # noqa: PLC0415

        node = self.project.graph[staged.state.name]
        if staged.step.action == "note":
            return []
        whole = look(stage.tables, staged.state, before, staged)
        # What was computed again is looked at again, also where it came out the same: its checks may be new.
        moves = whole.moves if staged.step.action in ("append", "update") else None
        new = whole if moves is None else moves.came
        own = own_results(node, new, whole, self.started_ms, stage.scratch(node), by_key=staged.moves is not None)
        staged.keep_amounts(whole)
        results = [*split_results(node, staged.failures), *own]
        with self._guard:
            self.checks.extend(results)
        return results

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

    def _audit(self, stage: Stage) -> None:
        from icefield.engine.audit import cross_checks, cross_results, stopping  # noqa: PLC0415
        from icefield.engine.looking import look  # noqa: PLC0415
        from icefield.engine.references import Held  # noqa: PLC0415

        failpoint("audit.before")
        changed = {name for name, staged in self.staged.items() if staged.changed}
        graph = self.project.graph
        due = [
            name
            for name in graph.order
            if name in self.states and any({name, *check.named_tables} & changed for check in cross_checks(graph[name]))
        ]

        def read(name: str) -> Any:
            if (state := self.states.get(name)) is None:
                return None
            seen = look(stage.tables, state, self.published.get(name), self.staged.get(name))
            looked.append((name, seen))
            return seen

        looked: list[tuple[str, Any]] = []
        held = {name: Held(self.published[name].held if name in self.published else {}) for name in due}
        needs: dict[str, tuple[str, ...]] = {name: () for name in due}
        schedule: Schedule[list[CheckResult]] = Schedule(due, needs, workers=WORKERS, cancel=stage.tables.cancel)

        def ended(name: str, work: Future[list[CheckResult]]) -> bool:
            error = work.exception()
            if error is None:
                self.checks.extend(work.result())
                bad = stopping(work.result())
                error = check_failed(bad, name, str(graph[name].location), self.run) if bad else None
            step = self.staged[name].step if name in self.staged else Step(table=name, action="none")
            return error is None or self._table_failed(step, error)

        schedule.run(lambda name: cross_results(graph[name], read, stage.scratch(graph[name]), held[name]), ended)
        for name, seen in looked:
            if name in self.staged:
                self.staged[name].keep_amounts(seen)
        for name in held.keys() & self.staged.keys():
            self.staged[name].keep_held(held[name].now)
        self._raise_first_failure()
        self._withdraw(stage)
        failpoint("audit.after")

    def _withdraw(self, stage: Stage) -> None:
        """With --keep-going: takes back what is downstream of a failure, so that only sound tables are published."""
        bad = set(self.failures) & set(self.staged)
        for name in (*bad, *self.project.graph.downstream(bad)):
            if (staged := self.staged.pop(name, None)) is None:
                continue
            for table in staged.tables:
                stage.tables.branch.forget(table)
            if name not in self.failures:
                self._skip(staged.step, "an input failed a check")

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

    def _publish(self, branch: Branch, plan: Plan) -> int | None:
        if not self.staged:
            return None
        tables: dict[str, dict[str, str]] = {}
        for staged in self.staged.values():
            for table in staged.tables:
                tables[table] = (
                    meta.state_properties(staged.state) if table == staged.state.name else {meta.RUN: self.run}
                )
        written = journal.of_run(
            run=self.run,
            project=self.project.name,
            selection=self.order.select,
            started_ms=self.started_ms,
            staged=self.staged,
            outcomes=self.outcomes,
            checks=self.checks,
            repairs=self.replaying.records(self.staged),
            repaired=self.replaying.rows(self.staged, plan),
        )
        return branch.publish(tables, written)

    def _failed(self, branch: Branch, plan: Plan, error: BaseException, begun: float) -> RunResult:
        """The published lake stays as it was; the failure itself is recorded by a commit of its own."""
        interrupted = isinstance(error, KeyboardInterrupt) or asked()  # what breaks on the way out is no news
        if interrupted:
            done = self.lake.published(self.run)
            told = "everything was published before" if done else "nothing was published; run again when you like"
            error = Interrupted("the run was interrupted", remedy=told)
        elif not isinstance(error, IcefieldError | FailpointError | OSError):
            branch.abandon()
            with suppress(Exception):
                self._record_failure(f"{type(error).__name__}: {error}")
            raise error
        branch.abandon(keep=self.staging and not interrupted)
        for name, outcome in self.outcomes.items():
            if outcome.status == "published":
                self.outcomes[name] = replace(outcome, status="abandoned")
        told = str(error)
        try:
            begun_to_work = self.staging or not interrupted  # else there is nothing to tell, and to import for it
            if begun_to_work and not isinstance(error, RunCleared) and not self.lake.published(self.run):
                self._record_failure(told)  # the end of a cleared run is noted by whoever cleared it
        except Exception as unrecorded:  # why it failed matters more than why that could not be recorded
            told = f"{told}\n  and this could not be recorded: {unrecorded}"
        if interrupted or (isinstance(error, IcefieldError) and not self.staging):  # it could not even begin
            raise error
        return self._result(plan, "failed", begun, None, told)

    def _record_failure(self, told: str) -> None:
        rows = journal.of_failure(
            run=self.run,
            project=self.project.name,
            selection=self.order.select,
            started_ms=self.started_ms,
            outcomes=self.outcomes,
            checks=self.checks,
            error=told,
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
            checks=tuple(self.checks),
            replayed=self.replayed if status == "published" else (),
            seconds=time.monotonic() - begun,
            phases=self.phases,
            traffic=self.traffic,
            published_ms=published_ms,
            error=error,
            log=self._log(),
        )

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


def _staged_outcome(staged: Staged, begun: float) -> TableOutcome:
    return replace(
        _outcome(staged.step, "published", begun, rows_total=staged.state.rows),
        rows_added=staged.rows_added,
        rows_removed=staged.rows_removed,
        rows_quarantined=staged.quarantined,
        rows_dropped=staged.dropped,
        keys_touched=staged.keys,
    )
