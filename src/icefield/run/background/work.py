"""What a command can have done by an engine or do by itself: the same work, told of in the same way."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from icefield.run.batches import run_due
from icefield.run.planning import look_for_due, selected
from icefield.run.runner import NOTHING_PUBLISHED

if TYPE_CHECKING:
    from icefield.engine.checks.results import CheckResult
    from icefield.engine.verdict import Verdict
    from icefield.project import Project
    from icefield.run.events import Listener, RunResult
    from icefield.run.request import RunRequest

#: Who hears of what happens meanwhile, by the names that a kind of work gives them.
Hearers = Mapping[str, Callable[[Any], None]]


class Work(Protocol):
    """Something that needs Spark."""

    @property
    def otherwise(self) -> str:
        """What is said where Ctrl-C leaves no time to put things in order."""

    def is_worth_an_engine(self, project: Project) -> bool:
        """Whether Spark has to be started for it at all, as far as that is known without Spark."""

    def carry_out(self, project: Project, hearers: Hearers) -> Any:
        """Does it in this process."""


@dataclass(frozen=True, slots=True)
class RunWork:
    """A run, or one for each batch that is due."""

    order: RunRequest
    otherwise: str = NOTHING_PUBLISHED

    def is_worth_an_engine(self, project: Project) -> bool:
        """A run with nothing new starts no Spark."""
        asked_for = self.order.full_refresh or self.order.accept
        return bool(asked_for or look_for_due(project, selected(project, self.order.select, self.order.exclude)))

    def carry_out(self, project: Project, hearers: Hearers) -> RunResult:
        """Runs."""
        return run_due(project, self.order, hearers["event"], hearers["between"])


@dataclass(frozen=True, slots=True)
class CheckWork:
    """The checks of some tables."""

    selection: tuple[str, ...]
    otherwise: str = "Nothing was changed."

    def is_worth_an_engine(self, _project: Project) -> bool:
        """Checks are evaluated by Spark."""
        return True

    def carry_out(self, project: Project, hearers: Hearers) -> list[CheckResult]:
        """Evaluates them."""
        from icefield.run.checking import check_project  # noqa: PLC0415 - not for a run

        return check_project(project, self.selection, hearers["table"])


@dataclass(frozen=True, slots=True)
class VerifyWork:
    """Recomputing some tables."""

    selection: tuple[str, ...]
    deep: bool
    otherwise: str = "Nothing was changed."

    def is_worth_an_engine(self, _project: Project) -> bool:
        """Tables are recomputed by Spark."""
        return True

    def carry_out(self, project: Project, hearers: Hearers) -> list[Verdict]:
        """Recomputes and compares them."""
        from icefield.run.verifying import verify_project  # noqa: PLC0415 - not for a run

        return verify_project(project, self.selection, deep=self.deep, listener=hearers["table"])


def run(project: Project, order: RunRequest, listener: Listener, between: Callable[[RunResult], None]) -> RunResult:
    """A run, by the project's engine where it keeps one."""
    result: RunResult = _done(project, RunWork(order), {"event": listener, "between": between})
    return result


def check(project: Project, selection: tuple[str, ...], listener: Callable[[str], None]) -> list[CheckResult]:
    """The results of checks, by the project's engine where it keeps one."""
    results: list[CheckResult] = _done(project, CheckWork(selection), {"table": listener})
    return results


def verify(
    project: Project, selection: tuple[str, ...], listener: Callable[[str], None], *, deep: bool
) -> list[Verdict]:
    """The verdicts on tables, by the project's engine where it keeps one."""
    verdicts: list[Verdict] = _done(project, VerifyWork(selection, deep), {"table": listener})
    return verdicts


def _done(project: Project, work: Work, hearers: Hearers) -> Any:
    if project.profile.keep_warm and os.environ.get("ICEFIELD_DEBUG") != "1":  # tracebacks are of one process
        from icefield.run.background.client import hand_over  # noqa: PLC0415 - only for those who keep an engine

        link = hand_over(project, work)
        if link is not None:
            return link.follow(work, hearers)
    return work.carry_out(project, hearers)
