"""Audits what a run staged: each table by itself as soon as it is staged, then all tables together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from icefield.engine.clock import spent
from icefield.failpoint import failpoint
from icefield.graph import quarantine_of
from icefield.plan import Step
from icefield.run.schedule import WORKERS, Schedule

if TYPE_CHECKING:
    from concurrent.futures import Future

    from icefield.engine.checks.results import CheckResult
    from icefield.engine.refresh.stage import Stage
    from icefield.engine.refresh.staged import Staged
    from icefield.graph import Node
    from icefield.graph.state import TableState
    from icefield.run.cross_checks import Across, CrossCheck
    from icefield.run.state import RunState


def own_checks(stage: Stage, node: Node, staged: Staged, before: TableState | None) -> list[CheckResult]:
    """The checks that need only the table itself."""
    if staged.step.action == "note":
        return []
    with spent("check"):
        return _own_checks(stage, node, staged, before)


def _own_checks(stage: Stage, node: Node, staged: Staged, before: TableState | None) -> list[CheckResult]:
    from icefield.engine.checks.audit import own_results, rejected_result, split_results  # noqa: PLC0415 - pyspark
    from icefield.engine.checks.table_views import view_of  # noqa: PLC0415

    whole = view_of(stage.tables, staged.state, before, staged)
    # What was computed again is looked at again, also where it came out the same: its checks may be new.
    moves = whole.moves if staged.step.action in ("append", "update") else None
    new = whole if moves is None else moves.came
    own = own_results(node, new, whole, stage.started_ms, stage.scratch(node), by_key=staged.moves is not None)
    staged.keep_amounts(whole)
    limit = rejected_result(node, staged.rejected, staged.kept, lambda: stage.newly_rejected(node))
    return [*split_results(node, staged.failures), *limit, *own]


@dataclass(slots=True)
class Audit:
    """The checks across tables of one run, and what follows where they fail."""

    state: RunState
    across: Across
    #: Checks that failed, with their errors.
    breached: dict[CrossCheck, BaseException] = field(default_factory=dict)

    def carry_out(self) -> None:
        """Evaluates what could not be while tables were staged; with --keep-going again where a table is withdrawn."""
        failpoint("audit.before")
        self._evaluate()
        self.state.raise_first_failure()
        while withdrawn := self._withdraw():
            self.across.reopen(withdrawn)  # what is left was not evaluated together with what was there before
            self._evaluate()
        self.across.remember()
        failpoint("audit.after")

    def note(self, check: CrossCheck, work: Future[CheckResult | None]) -> bool:
        """Notes the result of a check; True if the others go on."""
        state, owner = self.state, check.owner
        error = work.exception()
        if error is None and (result := work.result()) is not None:
            if check not in state.crossed or not state.crossed[check].stops:  # what failed once is reported
                state.crossed[check] = result
            error = state.context.breach([result], owner) if result.stops else None
        self.breached.pop(check, None)
        if error is None:
            return True
        self.breached[check] = error
        if owner in state.failures:
            return state.context.order.keep_going
        step = state.staged[owner].step if owner in state.staged else Step(table=owner, action="none")
        return state.fail(step, error)

    def _evaluate(self) -> None:
        self.across.foresee()
        left = self.across.open()
        needs: dict[str, tuple[str, ...]] = {label: () for label in left}
        cancel = self.across.stage.tables.cancel
        schedule: Schedule[CheckResult | None] = Schedule(list(left), needs, workers=WORKERS, cancel=cancel)
        schedule.run(lambda label: self.across.result(left[label]), lambda label, work: self.note(left[label], work))

    def _withdraw(self) -> set[str]:
        """With --keep-going: withdraws what is downstream of a failure, so that only sound tables are published."""
        self._blame()
        state = self.state
        bad = set(state.failures) & set(state.staged)
        downstream = state.context.project.graph.downstream(bad)
        withdrawn = {name for name in (*bad, *downstream) if name in state.staged}
        for name in withdrawn:
            staged = state.staged.pop(name)
            for table in staged.tables:
                self.across.stage.tables.branch.forget(table)
            for table in (name, quarantine_of(name)):
                if table in state.published:
                    state.states[table] = state.published[table]
                else:
                    state.states.pop(table, None)
            if name not in state.failures:
                state.skip(staged.step, "an input failed a check")
        return withdrawn

    def _blame(self) -> None:
        """Where a failed check belongs to a table that is not staged, the staged tables that it names fail."""
        staged = self.state.staged
        for check, error in self.breached.items():
            if check.owner not in staged:
                for name in sorted(check.tables & set(staged)):
                    if staged[name].changed:
                        self.state.fail(staged[name].step, error)
