"""What the planner knows of a lake: for each table, the version it stands at and what it has consumed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from icefield.graph.news import Cursor


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
    #: What it has taken in from its source.
    cursor: Cursor | None = None
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
    #: How many keys it had, and rows, when the keys were last counted.
    keys: tuple[int, int] | None = None
    #: Its rows keep the column `source_file` as the source gave it, so that those of a file can be told.
    origin: bool = False

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
