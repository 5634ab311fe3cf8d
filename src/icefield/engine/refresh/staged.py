"""What one step of a run did to its table."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from icefield.declare import Refresh
    from icefield.engine.checks.view import Moves, TableView
    from icefield.engine.quarantine.repair import Mended
    from icefield.graph.state import TableState
    from icefield.plan import Step


@dataclass(slots=True, kw_only=True)
class Staged:
    """What a step did to its table."""

    step: Step
    refresh: Refresh
    state: TableState
    changed: bool
    rows_added: int = 0
    rows_removed: int = 0
    quarantined: int = 0
    dropped: int = 0
    #: Rows that checks took out, without those that people let go.
    rejected: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    #: What `ops.files`, `ops.offsets` or `ops.reads` is to remember.
    records: Sequence[Mapping[str, Any]] = ()
    tables: tuple[str, ...] = ()
    #: What came of repairs, where there were any.
    mended: Mended | None = None
    #: Its quarantine as it is now, where this step wrote to it.
    waiting: TableState | None = None
    #: How many of the rows that it appended fail each check of rows that warns or fails, where that is known.
    failing: Mapping[str, int] | None = None
    #: How many keys were touched, where it was refreshed by key.
    keys: int | None = None
    #: The rows that came and went, where it was refreshed by key.
    moves: Moves | None = None

    @property
    def kept(self) -> int:
        """Rows of this step that passed the checks: those that came, or all where everything was computed."""
        if self.moves is not None:
            return self.moves.came.count or 0
        return self.rows_added if self.step.action == "append" else self.state.rows

    def keep_amounts(self, seen: TableView) -> None:
        """Lets the table carry what checks found out about all of its rows."""
        found = {} if seen.amounts is None else seen.amounts.found
        self.state = replace(self.state, amounts={**self.state.amounts, **found})

    def keep_held(self, now: Mapping[str, str]) -> None:
        """Lets the table carry which of its checks across tables no row failed."""
        self.state = replace(self.state, held={**self.state.held, **now})
