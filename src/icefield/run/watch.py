"""Runs a project again whenever a source has news, in one process with one warm Spark session.

Looking for news is planning, which needs no Spark. A run that fails is tried again later, and a changed project is
loaded anew. The loop keeps nothing that a restart would need: the lake is the state.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from icefield.errors import IcefieldError, Interrupted, ProjectError, SessionError
from icefield.interrupt import asked, tidying
from icefield.lake.embedded import EmbeddedLake
from icefield.run.batches import run_due
from icefield.run.events import RunEnded, RunRaised, RunResult, silent
from icefield.run.planning import plan_project, selected
from icefield.run.request import RunRequest
from icefield.run.subscribers import tell_subscribers
from icefield.run.upkeep import Upkeep, Upkept

if TYPE_CHECKING:
    from pathlib import Path

    from icefield.graph.state import TableState
    from icefield.plan import Plan
    from icefield.project import Project
    from icefield.run.events import Listener

#: How long to wait between two looks for news, in seconds: little after news, more while nothing comes.
_SOON, _LATER = 0.2, 2.0
#: A look takes at most this share of the loop's time.
_SHARE = 0.2
#: How long to wait after a failure: twice as long each time.
FIRST_RETRY, LAST_RETRY = 1.0, 60.0
#: How often to look whether the project was changed while waiting to try again.
_REOPEN_SECONDS = 1.0
#: Upkeep is done after so many runs, or sooner where nothing has come for so many seconds.
UPKEEP_RUNS, _IDLE_SECONDS = 20, 60.0
#: Sources that cannot be asked without reading them are read after so many seconds.
_UNSURE_SECONDS = 60.0
#: Upkeep that was put off is tried again after so many runs.
_SOME_RUNS = 3
_STOPPED = "The current run was abandoned: the next one cleans up what it left behind and takes in what it would have."


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """What sources say of themselves: messages that wait to be taken in, and the time of the newest one."""

    messages: int
    newest_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A run of the loop has published; `rows` came from sources, `lag` is what waits now."""

    result: RunResult
    number: int
    rows: int
    lag: Lag | None = None

    @property
    def rows_per_second(self) -> float:
        """How fast rows were taken in."""
        return self.rows / self.result.seconds if self.result.seconds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Something went wrong; it is tried again after so many seconds."""

    error: str
    retry_seconds: float
    #: How often in a row it went wrong.
    times: int
    result: RunResult | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """The project's files changed, and the loop goes on with them."""

    tables: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintained:
    """Upkeep was done between two runs, or put off."""

    done: Upkept


Happening = Ran | Failed | Reloaded | Maintained
Teller = Callable[[Happening], None]


class Clock(Protocol):
    """How the loop waits."""

    def now(self) -> float:
        """Seconds since some time."""

    def wait(self, seconds: float) -> None:
        """Lets time pass, less of it if the loop is asked to stop."""


class WallClock:
    """Really waits."""

    def now(self) -> float:
        """Seconds since some time."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Sleeps in short spells: a signal only leaves a note."""
        end = self.now() + seconds
        while (left := end - self.now()) > 0 and not asked():
            time.sleep(min(left, 0.1))


@dataclass(slots=True, kw_only=True)
class Watch:
    """One loop over one project.

    `open_again` gives the project as its files are now. `runs`: end after so many, None: when asked to.
    """

    open_again: Callable[[], Project]
    order: RunRequest = field(default_factory=RunRequest)
    tell: Teller = lambda happening: None
    listener: Listener = silent
    #: At least so many seconds lie between the starts of two runs.
    every: float = 0.0
    runs: int | None = None
    #: After how many runs storage is looked after; None: never.
    upkeep_runs: int | None = UPKEEP_RUNS
    clock: Clock = field(default_factory=WallClock)
    done: int = 0
    _project: Project | None = None
    _seen: _Seen | None = None
    #: What the look after the last run found.
    _ahead: Plan | None = None
    _interval: float = _SOON
    _failures: int = 0
    _started: float | None = None
    _upkeep: Upkeep | None = None
    _unkept: int = 0
    _ended: float = 0.0

    def carry_out(self) -> None:
        """Looks and runs until it is asked to stop, by a signal or Ctrl-C."""
        with tidying(_STOPPED, code=0):
            try:
                while not asked() and (self.runs is None or self.done < self.runs):
                    self._turn()
            except (KeyboardInterrupt, Interrupted):
                return

    def _turn(self) -> None:
        """Looks for news, and runs or waits."""
        result: RunResult | None = None
        plan, self._ahead = self._ahead, None
        try:
            plan = plan or self._looked()
            if plan.work and self._is_due(plan):
                self._wait_for_start()
                result = self._run()
        except (KeyboardInterrupt, Interrupted):
            raise
        except Exception as error:
            if asked():  # what breaks on the way out is no news
                raise KeyboardInterrupt from error
            self._back_off(error)
            return
        if result is None or result.status == "nothing new":
            self._failures = 0
            self.order = replace(self.order, accept=())  # nobody has seen yet what may come to be accepted later
            self._keep_up(idle=self.clock.now() - self._ended > _IDLE_SECONDS)
            self._wait_for_news()
        elif result.ok:
            self._failures, self._interval = 0, _SOON
            self._keep_up()
        else:
            self._back_off(result)

    def _is_due(self, plan: Plan) -> bool:
        """Whether to run now; where only reading tells whether there is anything new, not all the time."""
        asked_for = [step for step in plan.work if step.known and not getattr(step.news, "unsure", False)]
        return bool(asked_for) or not self.done or self.clock.now() - self._ended >= _UNSURE_SECONDS

    # -- looking

    def _looked(self) -> Plan:
        """Looks; subscribers hear of what is wrong, and of its end where no run tells of that."""
        try:
            plan = self._look()
        except Exception as error:
            if self._project is not None and not asked():
                tell_subscribers(self._project, RunRaised(error=error), self.listener)
            raise
        if self._failures and not plan.work:
            assert self._project is not None
            over = RunEnded(result=RunResult(run="", status="nothing new", plan=plan))
            tell_subscribers(self._project, over, self.listener)
        return plan

    def _look(self) -> Plan:
        """What a run would do now."""
        begun = self.clock.now()
        self._reopen()
        project = self._project
        assert project is not None
        lake = EmbeddedLake(project.profile.lake)
        lake.require_in_place()
        plan = plan_project(
            project,
            lake,
            self._states(lake),
            selection=selected(project, self.order.select, self.order.exclude),
            wishes=self.order.wishes,
            at_a_glance=True,
            max_rows=self.order.max_rows,
        )
        plan.require_possible()
        self._interval = max(self._interval, (self.clock.now() - begun) / _SHARE)
        return plan

    def _states(self, lake: EmbeddedLake) -> dict[str, TableState]:
        """The states of all tables, read again only where something was published."""
        pointers = lake.pointers()
        if self._seen is None or (self._seen.lake, self._seen.pointers) != (lake.root, pointers):
            self._seen = _Seen(lake.root, pointers, lake.states(pointers))
        return self._seen.states

    def _reopen(self) -> bool:
        """Loads the project anew if its files changed."""
        found, before = self.open_again(), self._project
        self._project = found
        if before is None or _meaning(before) == _meaning(found):
            return False
        self.tell(Reloaded(tables=len(found.graph)))
        return True

    # -- running

    def _run(self) -> RunResult:
        assert self._project is not None
        self._started = self.clock.now()
        result = run_due(self._project, self.order, self.listener, self._tell_run)
        if result.ok and result.status == "published":
            # What was asked for once is done: later runs take in what is new.
            self.order = replace(self.order, full_refresh=False, accept=())
            self._tell_run(result, self._lag())
        return result

    def _tell_run(self, result: RunResult, lag: Lag | None = None) -> None:
        assert self._project is not None
        self.done += 1
        self._unkept += 1
        self._ended = self.clock.now()
        self.tell(Ran(result=result, number=self.done, rows=rows_taken(self._project, result), lag=lag))

    def _lag(self) -> Lag | None:
        """What waits in sources that tell it, now that a run has ended; what is wrong with them the next look tells."""
        try:
            plan = self._ahead = self._look()
        except IcefieldError:
            return None
        told = [step.news for step in plan.steps if getattr(step.news, "lag", None) is not None]
        if not told:
            return None
        waiting = sum(getattr(news, "lag", 0) + getattr(news, "new_messages", 0) for news in told)
        times = [ms for news in told if (ms := getattr(news, "newest_ms", None)) is not None]
        return Lag(messages=waiting, newest_ms=max(times, default=None))

    # -- upkeep

    def _keep_up(self, *, idle: bool = False) -> None:
        """Looks after storage, where that is due; what goes wrong there stops no run."""
        wanted = self.upkeep_runs
        if wanted is None or not self._unkept or (self._unkept < wanted and not idle):
            return
        project = self._project
        assert project is not None
        if self._upkeep is None or self._upkeep.project.profile != project.profile:
            self._upkeep = Upkeep(project, thinned=True)
        self._upkeep.project = project
        try:
            done = self._upkeep.carry_out()
        except (KeyboardInterrupt, Interrupted):
            raise
        except Exception as error:
            done = Upkept(put_off=_told(error))
        self._unkept = 0 if not done.put_off else max(1, self._unkept - _SOME_RUNS)
        self.tell(Maintained(done=done))

    # -- waiting

    def _wait_for_start(self) -> None:
        if self._started is not None and self.every:
            self.clock.wait(self._started + self.every - self.clock.now())
        if asked():
            raise KeyboardInterrupt

    def _wait_for_news(self) -> None:
        self.clock.wait(self._interval)
        self._interval = min(_LATER, 1.5 * self._interval)

    def _back_off(self, cause: Exception | RunResult) -> None:
        """Says what is wrong and waits; a change of the project ends that early, since it may be the remedy."""
        self._failures += 1
        seconds = min(LAST_RETRY, FIRST_RETRY * 2 ** (self._failures - 1))
        if isinstance(cause, Exception):
            told, result = _told(cause), None
            if isinstance(cause, SessionError):
                _stop_spark()  # a session that cannot be used, or was asked for with other settings
        else:
            told, result = _told_of(cause), cause
        self.tell(Failed(error=told, retry_seconds=seconds, times=self._failures, result=result))
        self._wait_to_retry(seconds, broken=isinstance(cause, ProjectError))

    def _wait_to_retry(self, seconds: float, *, broken: bool) -> None:
        end = self.clock.now() + seconds
        while (left := end - self.clock.now()) > 0 and not asked():
            self.clock.wait(min(left, _REOPEN_SECONDS))
            try:
                changed = self._reopen()
            except Exception:  # it cannot be loaded: the next try tells why
                broken = True
                continue
            if changed or broken:
                return


@dataclass(frozen=True, slots=True)
class _Seen:
    lake: Path
    pointers: dict[str, str]
    states: dict[str, TableState]


def rows_taken(project: Project, result: RunResult) -> int:
    """The rows that a run took in from sources, rejected ones included."""
    nodes = project.graph.nodes
    return sum(
        table.rows_added + table.rows_quarantined + table.rows_dropped
        for table in result.tables
        if table.status == "published" and table.table in nodes and nodes[table.table].source is not None
    )


def _meaning(project: Project) -> object:
    """What of a project makes a difference to its runs."""
    nodes = project.graph.nodes.items()
    return project.profile, {name: (node.fingerprint, node.checks_fingerprint) for name, node in nodes}


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, IcefieldError) else f"{type(error).__name__}: {error}"


def _told_of(result: RunResult) -> str:
    return result.error or "\n".join(table.error for table in result.tables if table.error)


def _stop_spark() -> None:
    from icefield.engine.session.spark import stop_session  # noqa: PLC0415 - where Spark was started

    stop_session(wait=True)
