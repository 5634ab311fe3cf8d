"""One run of a project: plan, stage, audit, publish; all of it or nothing."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from icefield.errors import IcefieldError, Interrupted, Overtaken, RunCleared
from icefield.failpoint import FailpointError
from icefield.interrupt import asked, stop_if_asked, tidying
from icefield.lake.branch import Branch, BranchNames
from icefield.plan import Plan
from icefield.project.config import require_reachable_lake
from icefield.run import journal, publishing
from icefield.run.auditing import Audit
from icefield.run.cross_checks import Across
from icefield.run.events import PhaseStarted, RunBeside, RunDied, RunOvertaken, RunResult, RunStarted, silent
from icefield.run.freshness import freshness_results, stale
from icefield.run.planning import plan_project, selected, with_sources_as_read
from icefield.run.replaying import NothingToReplay, Replaying, require_waiting_rows
from icefield.run.request import RunRequest
from icefield.run.staging import Staging
from icefield.run.starting import Start
from icefield.run.state import RunContext, RunState
from icefield.run.subscribers import with_subscribers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from icefield.project import Project
    from icefield.run.events import Listener, Phase, Replayed

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
            return Run(RunContext.of(project, order, listener), again=attempt > 0).carry_out()
        except Overtaken as overtaken:
            declared = [table for table in overtaken.tables if table in project.graph] or ["the lake"]
            if attempt == TRIES - 1:
                raise Overtaken(declared) from overtaken
            listener(RunOvertaken(tables=tuple(declared)))
    raise AssertionError("unreachable")


@dataclass(slots=True)
class Run:
    """One attempt at a run; `again`: an earlier one was overtaken."""

    context: RunContext
    again: bool = False
    begun: float = field(default_factory=time.monotonic)
    state: RunState = field(init=False)
    phases: dict[str, float] = field(default_factory=dict)
    #: Whether it came as far as staging: then its branch is kept, if it fails, for people to look at.
    staging: bool = False
    replaying: Replaying = field(default_factory=Replaying)
    replayed: tuple[Replayed, ...] = ()

    def __post_init__(self) -> None:
        self.state = RunState(self.context)

    def carry_out(self) -> RunResult:
        """Plans, and does what is due."""
        try:
            return self._carry_out()
        except NothingToReplay as nothing:
            seconds = time.monotonic() - self.begun
            return RunResult(
                run="", status="nothing new", plan=Plan(steps=()), replayed=nothing.replayed, seconds=seconds
            )

    def _carry_out(self) -> RunResult:
        context = self.context
        with self._phase("plan"):
            require_reachable_lake(context.project.profile)
            context.lake.require_in_place()
            self._clear_dead()
            pointers = context.lake.pointers()
            plan = self._plan(pointers)
        if not plan.work:
            return self._nothing_new(plan, pointers)
        if not self.again:
            for other in context.lake.open_runs():
                context.listener(RunBeside(run=other.run, pid=other.pid, started_ms=other.started_ms))
        context.lake.create()
        with tidying(NOTHING_PUBLISHED):
            return self._on_a_branch(plan, pointers)

    # -- plan

    def _clear_dead(self) -> None:
        """Clears and records runs whose process is gone."""
        context = self.context
        context.lake.clear_dead()
        if deaths := context.lake.deaths():
            with suppress(Overtaken):  # by another process that recorded them
                publishing.record(context.lake, journal.of_deaths(context.project.name, deaths), deaths)
                for run, started_ms in deaths.items():
                    context.listener(RunDied(run=run, started_ms=started_ms))

    def _plan(self, pointers: Mapping[str, str]) -> Plan:
        context, order = self.context, self.context.order
        states = context.lake.states(pointers)
        require_waiting_rows(order.replays, states)
        plan = plan_project(
            context.project,
            context.lake,
            states,
            selection=selected(context.project, order.select, order.exclude),
            wishes=order.wishes,
            batch=order.batch,
            max_rows=order.max_rows,
        )
        plan.require_possible()
        self.context = replace(context, project=with_sources_as_read(context.project, plan))
        self.state = RunState(self.context, states=states, published=dict(states))
        return plan

    def _nothing_new(self, plan: Plan, pointers: Mapping[str, str]) -> RunResult:
        """Records nothing, unless a table is no longer fresh: that is a failure like that of any other check."""
        if not self.context.order.dry_run:
            self.state.checks += freshness_results(self.context, plan, pointers)
        if failed := [result for result in self.state.checks if result.stops]:
            message = str(stale(self.context, failed))
            try:
                publishing.record_failure(self.state, message)
            except Exception as unrecorded:
                message = _unrecorded(message, unrecorded)
            return replace(self._result(plan, "failed", error=message), log="")
        seconds, checks = time.monotonic() - self.begun, tuple(self.state.checks)
        return RunResult(run="", status="nothing new", plan=plan, checks=checks, seconds=seconds)

    # -- stage, audit, publish

    def _on_a_branch(self, plan: Plan, pointers: Mapping[str, str]) -> RunResult:
        context = self.context
        branch = Branch(context.lake, _names.take(context.lake.root), context.run)
        try:
            if branch.base != pointers:
                raise Overtaken(sorted(set(branch.base) ^ set(pointers)) or ["the lake"])
            context.listener(RunStarted(run=context.run, plan=plan, started_ms=context.started_ms, batch=context.batch))
            published_ms = self._work(branch, plan)
        except (Overtaken, NothingToReplay):
            branch.abandon()
            _names.give_back(context.lake.root, branch.name)
            raise
        except BaseException as error:
            return self._failed(branch, plan, error)
        failed = published_ms is None and bool(self.state.failures)
        if published_ms is None:
            branch.abandon(keep=failed)
        if failed:
            first = str(next(iter(self.state.failures.values())))
            publishing.record_failure(self.state, first)
            return self._result(plan, "failed", error=first)
        _names.give_back(context.lake.root, branch.name)
        if context.order.dry_run:
            self.state.abandon()
            return self._result(plan, "dry run")
        return self._result(plan, "published", published_ms)

    def _work(self, branch: Branch, plan: Plan) -> int | None:
        """Stages, audits and publishes; gives the time of the commit, None where nothing was published."""
        from icefield.engine.session.spark import cores  # noqa: PLC0415 - for real runs only

        state, order = self.state, self.context.order
        with ThreadPoolExecutor(cores(), thread_name_prefix="reader") as readers:
            try:
                with self._phase("start"):
                    started = Start.of(self.context, state.states).carry_out(branch, plan, readers)
                    stage, self.replaying = started.stage, started.replaying
                self.staging = True
                due = [step.table for step in plan.work]
                graph = self.context.project.graph
                across = Across(stage, graph, state.states, state.published, state.staged, due, partial=order.dry_run)
                audit = Audit(state, across)
                staging = Staging(state, stage, audit)
                with self._phase("stage", plan):
                    staging.carry_out(plan)
            finally:
                readers.shutdown(cancel_futures=True)
        with self._phase("audit"):
            audit.carry_out()
            staging.keep_changes()
            self.replayed = self.replaying.tell(stage.tables, state.staged)
        if order.dry_run:
            return None
        with self._phase("publish"), tidying(ABOUT_TO_PUBLISH):
            return publishing.publish(state, branch, self.replaying, across.relied)

    # -- the end

    def _failed(self, branch: Branch, plan: Plan, error: BaseException) -> RunResult:
        """The published lake stays as it was; the failure itself is recorded by a commit of its own."""
        context = self.context
        interrupted = isinstance(error, KeyboardInterrupt) or asked()  # what breaks on the way out is no news
        if interrupted:
            done = context.lake.published(context.run)
            remedy = "everything had already been published" if done else "nothing was published; run again at any time"
            error = Interrupted("the run was interrupted", remedy=remedy)
        elif not isinstance(error, IcefieldError | FailpointError | OSError):
            branch.abandon()
            with suppress(Exception):
                publishing.record_failure(self.state, f"{type(error).__name__}: {error}")
            raise error
        branch.abandon(keep=self.staging and not interrupted)
        self.state.abandon()
        message = str(error)
        try:
            begun_to_work = self.staging or not interrupted  # else there is nothing to tell, and to import for it
            if begun_to_work and not isinstance(error, RunCleared) and not context.lake.published(context.run):
                publishing.record_failure(self.state, message)  # a cleared run is recorded by whoever cleared it
        except Exception as unrecorded:  # why it failed matters more than why that could not be recorded
            message = _unrecorded(message, unrecorded)
        if interrupted or (isinstance(error, IcefieldError) and not self.staging):  # it could not even begin
            raise error
        return self._result(plan, "failed", error=message)

    def _result(
        self,
        plan: Plan,
        status: Literal["published", "failed", "dry run"],
        published_ms: int | None = None,
        error: str = "",
    ) -> RunResult:
        outcomes = self.state.outcomes
        return RunResult(
            run=self.context.run,
            status=status,
            plan=plan,
            tables=tuple(outcomes[step.table] for step in plan.work if step.table in outcomes),
            checks=tuple(self.state.results),
            replayed=self.replayed if status in ("published", "dry run") else (),
            seconds=time.monotonic() - self.begun,
            phases=self.phases,
            published_ms=published_ms,
            error=error,
            log=self.context.log,
        )

    @contextmanager
    def _phase(self, name: Phase, plan: Plan | None = None) -> Iterator[None]:
        stop_if_asked()
        begun = time.monotonic()
        self.context.listener(PhaseStarted(phase=name, plan=plan))
        try:
            yield
        finally:
            self.phases[name] = time.monotonic() - begun


def _unrecorded(message: str, error: Exception) -> str:
    return f"{message}\n  this failure could not be recorded: {error}"
