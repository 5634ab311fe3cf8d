"""What a run is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from icefield.plan import Wishes
from icefield.run.replaying import wanted_replays

if TYPE_CHECKING:
    from icefield.graph.state import Repair
    from icefield.run.batch import Batches
    from icefield.run.replaying import Replay


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What was asked for."""

    select: str = ""
    exclude: str = ""
    full_refresh: bool = False
    keep_going: bool = False
    accept: tuple[str, ...] = ()
    replay: tuple[str, ...] = ()
    repairs: tuple[Repair, ...] = ()
    #: Of sources that are taken in by batches: the first and the last to take in, "" for no limit.
    batches: tuple[str, str] = ("", "")
    #: The batch that this run takes in.
    batch: Batches | None = None
    #: At most so many rows of each source are taken in by one run; sources that cannot be bounded ignore it.
    max_rows: int | None = None
    #: Everything is done but publishing.
    dry_run: bool = False
    #: A text of the caller's by which the run is found again.
    label: str = ""
    #: Spark need not be made for more than this run: the process ends with it, or does others of its size.
    once: bool = False
    #: Outcomes tell where each column comes from, which takes some milliseconds a table.
    column_lineage: bool = False

    @property
    def wishes(self) -> Wishes:
        """What the planner has to know of it."""
        replay = frozenset((*self.replay, *(repair.table for repair in self.repairs)))
        return Wishes(full_refresh=self.full_refresh, accept=frozenset(self.accept), replay=replay)

    @property
    def replays(self) -> tuple[Replay, ...]:
        """The quarantines to replay, and how."""
        return wanted_replays(self.replay, self.repairs)
