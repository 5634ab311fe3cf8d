"""One run: what it is about, and what has become of its tables so far."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from icefield.lake.embedded import EmbeddedLake, new_run_id, now_ms
from icefield.run.events import TableOutcome
from icefield.run.failures import as_users_error, check_failed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from icefield.engine.checks.results import CheckResult
    from icefield.engine.refresh.staged import Staged
    from icefield.errors import CheckFailed
    from icefield.graph.state import TableState
    from icefield.plan import Step
    from icefield.project import Project
    from icefield.run.cross_checks import CrossCheck
    from icefield.run.events import Listener
    from icefield.run.request import RunRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What a run is about; all of it is known when it starts."""

    project: Project
    order: RunRequest
    listener: Listener
    lake: EmbeddedLake
    run: str
    started_ms: int

    @classmethod
    def of(cls, project: Project, order: RunRequest, listener: Listener) -> RunContext:
        """A new run of a project."""
        lake = EmbeddedLake(project.profile.lake)
        return cls(project=project, order=order, listener=listener, lake=lake, run=new_run_id(), started_ms=now_ms())

    @property
    def batch(self) -> str:
        """The batch that the run takes in, or ""."""
        return self.order.batch.value if self.order.batch is not None else ""

    @property
    def log(self) -> str:
        """Where Spark logs."""
        return str(self.lake.run_folder(self.run) / "spark.log")

    def location(self, table: str) -> str:
        """Where a table is declared."""
        return str(self.project.graph[table].location)

    def users_error(self, error: BaseException, table: str) -> BaseException:
        """What went wrong while a table was made, with the author's line."""
        return as_users_error(error, table, self.location(table), self.log, self.project.root)

    def breach(self, bad: Sequence[CheckResult], table: str) -> CheckFailed:
        """The error for checks that failed."""
        return check_failed(bad, table, self.location(table), self.run, keep_going=self.order.keep_going)


@dataclass(slots=True)
class RunState:
    """What has become of the tables and checks of a run; staging changes it from several threads."""

    context: RunContext
    #: Tables as they are on the branch, and as they were before the run.
    states: dict[str, TableState] = field(default_factory=dict)
    published: Mapping[str, TableState] = field(default_factory=dict)
    staged: dict[str, Staged] = field(default_factory=dict)
    outcomes: dict[str, TableOutcome] = field(default_factory=dict)
    failures: dict[str, BaseException] = field(default_factory=dict)
    checks: list[CheckResult] = field(default_factory=list)
    #: Results of checks across tables.
    crossed: dict[CrossCheck, CheckResult] = field(default_factory=dict)
    guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def results(self) -> list[CheckResult]:
        """The results of all checks."""
        return [*self.checks, *self.crossed.values()]

    def finish(self, outcome: TableOutcome) -> None:
        """Notes what became of a table."""
        with self.guard:
            self.outcomes[outcome.table] = outcome
        self.context.listener(outcome)

    def fail(self, step: Step, error: BaseException) -> bool:
        """Notes the failure of a table; True if tables that do not depend on it go on."""
        self.failures[step.table] = error
        self.finish(
            TableOutcome(table=step.table, action=step.action, reason=step.reason, status="failed", error=str(error))
        )
        return self.context.order.keep_going

    def skip(self, step: Step, why: str) -> None:
        """Notes that a table was not refreshed."""
        self.finish(TableOutcome(table=step.table, action=step.action, reason=why, status="skipped"))

    def raise_first_failure(self) -> None:
        """Ends the run by its first failure, unless it is to keep going."""
        if self.failures and not self.context.order.keep_going:
            raise next(iter(self.failures.values()))

    def abandon(self) -> None:
        """Turns the outcomes of staged tables into `abandoned`: nothing is published."""
        for name, outcome in self.outcomes.items():
            if outcome.status == "published":
                self.outcomes[name] = replace(outcome, status="abandoned")
