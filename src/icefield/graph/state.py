"""What the planner knows of a lake: for each table, the version it stands at and what it has consumed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping


#: proven: Spark's plan shows that a function keeps the promise of its refresh kind. trusted: the plan cannot tell, the
#: author vouches for it, and it held where it was tried. untried: trusted, and there was too little data to try it on.
#: full: nothing is promised. Empty: nobody has looked at it yet.
Promise = Literal["proven", "trusted", "untried", "full", ""]
#: The rules that promises are proven by: where these were others, a promise is proven anew.
PROMISE_RULES = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of a table's rows: `number` counts publishes that changed rows, `epoch` counts rebuilds."""

    epoch: int
    number: int
    snapshot: int | None

    def holds_rows_of(self, other: Version) -> bool:
        """Whether both have the same rows: a compaction makes another snapshot of the same version."""
        return (self.epoch, self.number) == (other.epoch, other.number)

    @property
    def is_meddled(self) -> bool:
        """Whether these are rows that someone else had changed: no version that a run has published."""
        return self.epoch == _MEDDLED

    def meddled(self) -> Version:
        """The same, as it is remembered by whoever read such rows."""
        return replace(self, epoch=_MEDDLED)


_MEDDLED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesTaken:
    """How many files a table holds the rows of, and a digest of the paths, sizes and times of those that were there."""

    count: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A published table, read from its metadata alone."""

    name: str
    version: Version
    run: str
    fingerprint: str
    checks_fingerprint: str
    rows: int
    columns: tuple[tuple[str, str], ...]
    published_ms: int
    inputs: Mapping[str, Version] = field(default_factory=dict)
    files: FilesTaken | None = None
    repairs: int = 0
    lineage: tuple[tuple[int, str], ...] = ()
    #: What it removed and added is told for every number above this one; None: it tells nothing, or only appends.
    changes: int | None = None
    #: Its rows are not the ones that the last run left: someone else wrote to it, or rolled it back.
    meddled: bool = False
    #: Aggregates over all of its rows, as text: those that checks are made of.
    amounts: Mapping[str, str | None] = field(default_factory=dict)
    #: Checks across tables that no row failed, with the snapshots of both tables at which that was so.
    held: Mapping[str, str] = field(default_factory=dict)
    #: Its rows do not tell all the measures that new ones are merged into: those are kept in a table beside it.
    beside: bool = False
    #: What is known of the promise of its refresh kind, for the code that it was made with.
    promise: Promise = ""

    def telling_nothing(self) -> TableState:
        """The same where what it told is not kept: all have read it, or someone dropped it."""
        return self if self.changes is None else replace(self, changes=self.version.number)


#: A table that nobody has written to.
EMPTY = TableState(
    name="",
    version=Version(epoch=0, number=0, snapshot=None),
    run="",
    fingerprint="",
    checks_fingerprint="",
    rows=0,
    columns=(),
    published_ms=0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedFile:
    """A file that a source's path matches, as the file system shows it."""

    path: str
    size: int
    modified_ns: int
    parts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenFile:
    """A file that a table has taken in, as the lake remembers it."""

    path: str
    size: int
    modified_ns: int
    sha256: str
    run: str
    taken_ms: int
    order: int
    sequence: int = 0
    #: It went, and its rows with it; what the lake still needs of it is that its place is taken.
    withdrawn: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What a person decided about rows in quarantine; remembered, so that a rebuild decides the same.

    `replay`: columns are set anew and today's checks are applied. `discard`: let go. It is about the rows that waited
    when it was decided and for which the condition held then, never about rows that come to wait later.
    """

    table: str
    kind: Literal["replay", "discard"]
    where: str = "true"
    assign: tuple[tuple[str, str], ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """What has happened in a source's folder since the table last looked.

    Of the files that were taken in and are not there now, `missing` are those whose rows stay, and `gone` those whose
    rows are to be withdrawn. `withdrawn` are files that were gone before: if one comes back, it is new.
    """

    landed: tuple[LandedFile, ...] = ()
    new: tuple[LandedFile, ...] = ()
    touched: tuple[LandedFile, ...] = ()
    changed: tuple[LandedFile, ...] = ()
    missing: tuple[TakenFile, ...] = ()
    gone: tuple[TakenFile, ...] = ()
    taken: tuple[TakenFile, ...] = ()
    withdrawn: tuple[TakenFile, ...] = ()
    #: Files of a table of this name that was dropped: nothing is left of them.
    former: tuple[TakenFile, ...] = ()

    @property
    def next_order(self) -> int:
        """The place in the order of arrival for the next new file; no two files ever have the same."""
        return max((file.order for file in self._noted), default=-1) + 1

    @property
    def next_sequence(self) -> int:
        """What comes after everything that was noted of files."""
        return max((file.sequence for file in self._noted), default=0) + 1

    @property
    def _noted(self) -> tuple[TakenFile, ...]:
        return (*self.taken, *self.withdrawn, *self.former)

    @property
    def new_bytes(self) -> int:
        """The size of what is new."""
        return sum(file.size for file in (*self.new, *self.changed))
