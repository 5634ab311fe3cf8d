"""What a run tells while it goes on, and what it was in the end: plain values that any face can show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from icefield.engine.checks.results import CheckResult
    from icefield.graph.column_lineage import ColumnLineage
    from icefield.graph.state import TableState
    from icefield.plan import Action, Plan

Phase = Literal["plan", "start", "fetch", "stage", "audit", "publish"]
Status = Literal["published", "failed", "skipped", "unchanged", "abandoned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseStarted:
    """The run has come to its next part."""

    phase: Phase
    plan: Plan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStarted:
    """A table's step begins."""

    table: str
    action: Action
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOutcome:
    """What became of one table in a run."""

    table: str
    action: Action
    reason: str
    status: Status
    rows_added: int = 0
    rows_removed: int = 0
    rows_quarantined: int = 0
    rows_dropped: int = 0
    rows_total: int = 0
    #: Keys whose rows were computed or merged anew, where the table was refreshed by key.
    keys_touched: int | None = None
    #: What is known of its refresh kind's promise: proven, trusted, untried or full.
    promise: str = ""
    seconds: float = 0.0
    #: Where these went: read, compute, check, write.
    spent: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    #: The table as this run left it: its version, its columns, and the versions of its inputs that it was made of.
    state: TableState | None = field(default=None, repr=False)
    #: Where its columns come from, if the order asked for that.
    lineage: ColumnLineage | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """There is something to do, and a branch to do it on; what is planned but not due is in the plan as well."""

    run: str
    plan: Plan
    started_ms: int
    batch: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDied:
    """An earlier run was found whose process is gone: killed, say, or with its machine."""

    run: str
    started_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOvertaken:
    """Someone else published these declared tables first; the run is planned again from the new state."""

    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What became of the waiting rows that a replay or discard was about.

    `unreadable` are lines that could not be read, where values were to be set: they have none. They wait as well.
    """

    table: str
    kind: Literal["replay", "discard"]
    matched: int
    unreadable: int = 0
    waiting: int = 0
    #: Why rows still wait, and how many; a row may have several reasons.
    reasons: Mapping[str, int] = field(default_factory=dict)

    @property
    def moved(self) -> int:
        """Rows that no longer wait."""
        return self.matched - self.waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBeside:
    """Another run is at work on the same lake; whoever publishes first wins."""

    run: str
    pid: int
    started_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStarted:
    """One of several batches is taken in, by a run of its own."""

    batch: str
    number: int
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """Something beside the run went wrong: a subscriber could not pass on what it heard."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The result of a run. Status `nothing new`: no run took place, `checks` has only `fresh_within`; `dry run`: it was
    not to be published.

    `replayed` tells of a quarantine that was replayed; where no row matched there, no run took place either.
    """

    run: str
    status: Literal["published", "failed", "nothing new", "dry run"]
    plan: Plan
    tables: tuple[TableOutcome, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    replayed: tuple[Replayed, ...] = ()
    seconds: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)
    published_ms: int | None = None
    error: str = ""
    log: str = ""
    #: What went wrong beside the run, see `Warned`.
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything that was due is published, or would have been."""
        if self.status == "dry run":
            return True
        return self.status != "failed" and all(table.status in ("published", "unchanged") for table in self.tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """A run is over, or there was nothing to do."""

    result: RunResult


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRaised:
    """A run ended, or could not even begin, by an error that its caller gets."""

    error: BaseException


Event = (
    PhaseStarted
    | TableStarted
    | TableOutcome
    | RunStarted
    | RunEnded
    | RunRaised
    | RunDied
    | RunOvertaken
    | RunBeside
    | BatchStarted
    | Warned
)
Listener = Callable[[Event], None]


def silent(event: Event) -> None:
    """A listener that shows nothing."""
