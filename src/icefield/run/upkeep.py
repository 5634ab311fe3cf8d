"""Keeps storage healthy: writes small files together, lets old versions go, removes files that nothing names.

It works on a branch of its own and is published by one commit, as a run is. No row changes, consumers go on from where
they are, and whoever is reading has a while to finish. Where a run is at work, it is put off.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from icefield.errors import Overtaken
from icefield.failpoint import failpoint
from icefield.graph import changes_of
from icefield.interrupt import stop_if_asked, tidying
from icefield.lake import metadata as meta
from icefield.lake.arrow_scan import remove_files_up_to
from icefield.lake.branch import Branch, BranchNames
from icefield.lake.compaction import Compacted, compact, due
from icefield.lake.embedded import UPKEEP, EmbeddedLake, new_run_id, now_ms
from icefield.lake.expiry import history_of, with_versions
from icefield.lake.sweeping import Sweeper, Swept
from icefield.lake.table_state import as_ours, with_property
from icefield.plan import read_by_all
from icefield.plan.upkeep import Retention, consumed_of, kept_times, kept_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from icefield.graph.state import TableState
    from icefield.lake.metadata import Metadata
    from icefield.project import Project

    Edit = Callable[[Metadata], Metadata]

_names = BranchNames(UPKEEP)
#: The column of changelogs that tells which publish a row belongs to.
_NUMBER = "_icefield_number"
_UNTOUCHED = "Upkeep was cut short; the lake is whole, and the next upkeep goes on."


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkept:
    """What upkeep did, or would do."""

    compacted: tuple[Compacted, ...] = ()
    #: How many versions of each table are no longer kept.
    expired: Mapping[str, int] = field(default_factory=dict)
    swept: Swept = field(default_factory=Swept)
    #: Why nothing was published, "" if that was not so.
    put_off: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class Upkeep:
    """The upkeep of one lake; a loop keeps it, since it remembers what never changes."""

    project: Project
    thinned: bool = False
    _sweeper: Sweeper = field(init=False)

    def __post_init__(self) -> None:
        self._sweeper = Sweeper(EmbeddedLake(self.project.profile.lake))

    @property
    def lake(self) -> EmbeddedLake:
        """The lake that is looked after."""
        return self._sweeper.lake

    def carry_out(self, *, dry_run: bool = False) -> Upkept:
        """Does what is due; `dry_run`: only says what that is."""
        begun = time.monotonic()
        self.lake.require_in_place()
        if not self.lake.exists:
            return Upkept()
        with tidying(_UNTOUCHED):
            if not dry_run:
                self.lake.clear_dead()
            done = self._published(dry_run=dry_run)
            failpoint("upkeep.published")
            grace = int(1000 * self.project.profile.upkeep.grace_seconds)
            swept = self._sweeper.sweep(now_ms(), grace, keep_runs=LAST, remove=not dry_run)
        return replace(done, swept=swept, seconds=time.monotonic() - begun)

    def _published(self, *, dry_run: bool) -> Upkept:
        if not dry_run and (others := self.lake.open_runs()):
            return Upkept(put_off=f"run {others[0].run} is at work")
        branch = Branch(self.lake, _names.take(self.lake.root), new_run_id())
        try:
            work = _Work(self.project, branch, self._retention)
            work.prepare(dry_run=dry_run)
            if not dry_run and work.edits:
                branch.publish_upkeep(work.edits, {one.table: one.summary for one in work.compacted})
            else:
                branch.abandon()
        except Overtaken as overtaken:
            branch.abandon()
            return Upkept(put_off=f"a run published {', '.join(overtaken.tables[:3])} meanwhile")
        except BaseException:
            branch.abandon()
            raise
        finally:
            _names.give_back(self.lake.root, branch.name)
        return Upkept(compacted=tuple(work.compacted), expired=work.expired)

    @property
    def _retention(self) -> Retention:
        keep_ms = int(1000 * self.project.profile.upkeep.keep_seconds)
        return Retention(keep_ms=keep_ms, thinned=self.thinned, last=LAST)


#: So many versions, and folders of runs with their logs, are kept in any case.
LAST = 20


class _Work:
    """What is due for each table of a lake, as a branch sees it."""

    def __init__(self, project: Project, branch: Branch, retention: Retention) -> None:
        self._graph = project.graph
        self._branch = branch
        self._retention = retention
        self._states = branch.lake.states(branch.base)
        self._metadata = {table: found for table in branch.base if (found := branch.base_metadata(table)) is not None}
        self._times = kept_times(
            (entry["timestamp-ms"] for one in self._metadata.values() for entry in one.get("snapshot-log", [])),
            now_ms(),
            retention,
        )
        self.compacted: list[Compacted] = []
        self.expired: dict[str, int] = {}
        self.edits: dict[str, Edit] = {}

    def prepare(self, *, dry_run: bool) -> None:
        """Stages what is due on the branch."""
        for table, state in self._states.items():
            stop_if_asked()
            if self._is_ours(state) and table in self._metadata:
                self._prepare(table, state, dry_run=dry_run)
        for table, state in self._states.items():
            if not dry_run:
                self._trim(table, state)

    def _is_ours(self, state: TableState) -> bool:
        """Whether icefield wrote the table, and nobody else since: what others did is for a run to notice."""
        return (bool(state.run) or state.name.startswith("ops.")) and not state.meddled

    def _prepare(self, table: str, state: TableState, *, dry_run: bool) -> None:
        compacted = self._compact(table, dry_run=dry_run)
        history = history_of(self._metadata[table])
        if history is None:
            return
        consumed = consumed_of(state, self._consumers())
        kept = kept_versions(history, self._times, consumed, self._retention.last)
        if gone := len(history.snapshots) - len(kept.snapshots):
            self.expired[table] = gone
        if gone or compacted or not kept.tells_the_same_as(history.log):
            self.edits[table] = lambda metadata: self._edited(metadata, state, compacted=compacted)

    def _compact(self, table: str, *, dry_run: bool) -> bool:
        # What a changelog told is removed file by file, once it was read.
        wanted = None if table.endswith(changes_of("")) else due(self._branch, table)
        if wanted is None:
            return False
        if dry_run:
            found: Compacted | None = Compacted(
                table=table, files=len(wanted.files), size=wanted.size, into=1, summary={}
            )
        else:
            found = compact(self._branch, table, wanted)
        if found is None:
            return False
        self.compacted.append(found)
        return True

    def _edited(self, metadata: Metadata, state: TableState, *, compacted: bool) -> Metadata:
        history = history_of(metadata)
        assert history is not None
        consumed = consumed_of(state, self._consumers())
        kept = kept_versions(history, self._times, consumed, self._retention.last)
        return with_versions(as_ours(metadata) if compacted else metadata, kept)

    def _consumers(self) -> list[TableState]:
        """Tables that read others: declared ones, and others that a run has published not long ago."""
        young = now_ms() - self._retention.keep_ms
        return [state for name, state in self._states.items() if name in self._graph or state.published_ms >= young]

    def _trim(self, table: str, state: TableState) -> None:
        """Removes what all consumers of a table have read of its changelog."""
        beside = changes_of(table)
        if state.changes is None or beside not in self._metadata or state.meddled or table not in self._graph:
            return
        followers = [self._states[name] for name in self._graph.followers().get(table, ()) if name in self._states]
        upto = read_by_all(state, followers)
        if upto <= state.changes or not meta.total_records(self._metadata[beside]):
            return
        self._branch.prepare(beside)
        remove_files_up_to(self._branch, beside, _NUMBER, upto)
        told, before = self.edits.get(beside, _same), self.edits.get(table, _same)
        self.edits[beside] = told
        self.edits[table] = lambda metadata: with_property(before(metadata), "icefield.changes", str(upto))


def _same(metadata: Metadata) -> Metadata:
    return metadata
