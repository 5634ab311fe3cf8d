"""Stages the tables of a plan on the run's branch, those that do not depend on one another side by side."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from icefield.engine.clock import timing
from icefield.plan import decide, with_quarantines
from icefield.run.auditing import own_checks
from icefield.run.events import TableOutcome, TableStarted
from icefield.run.schedule import WORKERS, Schedule

if TYPE_CHECKING:
    from collections.abc import Collection
    from concurrent.futures import Future

    from icefield.engine.checks.results import CheckResult
    from icefield.engine.clock import Clock
    from icefield.engine.refresh.stage import Stage
    from icefield.engine.refresh.staged import Staged
    from icefield.plan import Plan, Step
    from icefield.run.auditing import Audit
    from icefield.run.events import Status
    from icefield.run.state import RunState


@dataclass(frozen=True, slots=True)
class Staging:
    """Staging of one run; with `audit`, checks across tables run as soon as all tables that they name are staged."""

    state: RunState
    stage: Stage
    audit: Audit | None = None

    def carry_out(self, plan: Plan) -> None:
        """Stages every table once its inputs are staged; the first failure ends it, unless the run keeps going."""
        graph = self.state.context.project.graph
        steps = {step.table: step for step in plan.work}
        checks = {} if self.audit is None else self.audit.across.open(early=True)
        needs: dict[str, Collection[str]] = {name: graph[name].needs for name in steps}
        needs |= {label: check.needs for label, check in checks.items()}
        cancel = self.stage.tables.cancel
        schedule: Schedule[CheckResult | None] = Schedule(list(needs), needs, workers=WORKERS, cancel=cancel)

        def work(name: str) -> CheckResult | None:
            if self.audit is not None and name in checks:
                return self.audit.across.result(checks[name])
            self._stage_table(steps[name])
            return None

        def ended(name: str, work: Future[CheckResult | None]) -> bool:
            if self.audit is not None and name in checks:
                return self.audit.note(checks[name], work)
            error = work.exception()
            return error is None or self.state.fail(steps[name], error)

        why = "an input failed" if self.state.context.order.keep_going else "the run was stopped"
        for name in schedule.run(work, ended):
            if name in steps:
                self.state.skip(steps[name], why)
        self.state.raise_first_failure()

    def keep_changes(self) -> None:
        """Adds what tables changed to their changelogs, for tables that follow them and did not run now."""
        for name, staged in self.state.staged.items():
            try:
                self.stage.outcome.keep_change(staged, self.state.states)
            except BaseException as error:
                raise self.state.context.users_error(error, name) from error

    def _stage_table(self, planned: Step) -> None:
        run, context = self.state, self.state.context
        node = context.project.graph[planned.table]
        begun = time.monotonic()
        with run.guard:
            states = dict(run.states)
        state = states.get(node.name)
        known = with_quarantines(node, states)
        step = planned if planned.known else decide(node, state, known, planned.news, context.order.wishes)
        context.listener(TableStarted(table=node.name, action=step.action, reason=step.reason))
        if step.action == "none":
            run.finish(_outcome(step, "unchanged", begun, rows_total=state.rows if state else 0))
            return
        try:
            with timing() as clock:
                staged = self.stage.carry_out(node, step, state, states)
                results = own_checks(self.stage, node, staged, state)
        except BaseException as error:
            raise context.users_error(error, node.name) from error
        with run.guard:
            run.checks.extend(results)
        if bad := [result for result in results if result.stops]:
            raise context.breach(bad, node.name)
        with run.guard:
            run.states[node.name] = staged.state
            if staged.waiting is not None:
                run.states[staged.waiting.name] = staged.waiting
            run.staged[node.name] = staged
        run.finish(replace(_staged_outcome(staged, begun, clock), lineage=self.stage.lineage.get(node.name)))


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
