"""A run's own version of the whole lake: opened in one statement, worked on in private, published by one commit."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from icefield.errors import LakeError, Overtaken, RunCleared
from icefield.failpoint import failpoint
from icefield.lake import metadata as meta
from icefield.lake.catalog import Move
from icefield.lake.embedded import now_ms
from icefield.lake.staged_metadata import finish, inner_snapshots, prepare
from icefield.lake.staging import staging_catalog

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyiceberg.catalog import Catalog

    from icefield.lake.embedded import EmbeddedLake
    from icefield.lake.metadata import Metadata
    from icefield.lake.ops import Journal

#: How often a lost race on `ops.*` alone is tried again; each try is some 100 ms.
_OPS_TRIES = 100


def new_branch_name(kind: str = "run_") -> str:
    """A name for a branch that is also a catalog name to Spark."""
    return f"{kind}{secrets.token_hex(4)}"


class BranchNames:
    """Names that this process uses again for its next run, or other work of one kind, on the same lake.

    Spark keeps a catalog, with its connections, for every name it has seen, so a process that runs for days must not
    come up with a new one each time.
    """

    def __init__(self, kind: str = "run_") -> None:
        self._kind = kind
        self._free: dict[Path, list[str]] = {}
        self._guard = threading.Lock()

    def take(self, lake: Path) -> str:
        """A name that no other run of this process works under."""
        with self._guard:
            free = self._free.setdefault(lake, [])
            return free.pop() if free else new_branch_name(self._kind)

    def give_back(self, lake: Path, name: str) -> None:
        """Offers a name for the next run, once its branch is gone."""
        with self._guard:
            self._free[lake].append(name)


@dataclass(slots=True)
class _Now:
    """A table as it stands on a branch; `written`: its metadata is in a file, and the catalog names it."""

    metadata: Metadata
    location: str
    written: bool = False


class Branch:
    """The lake as one run sees it. `base` is what it was when the run opened; reads of inputs are pinned to it."""

    def __init__(self, lake: EmbeddedLake, name: str, run: str) -> None:
        self.lake = lake
        self.name = name
        self.run = run
        self._lock = lake.lock(name, run)
        self._metadata: dict[str, Metadata] = {}
        self._staged: dict[str, str] = {}
        #: Tables that this run has worked on, as they stand now.
        self._now: dict[str, _Now] = {}
        self._guard = threading.RLock()
        self._pyiceberg: Catalog | None = None
        self._opening = threading.Lock()
        try:
            self.base = lake.catalog.open_branch(name, run)
            failpoint("run.opened")
        except BaseException:
            self._release()  # a branch that nobody holds is cleared by the next run
            raise

    def base_metadata(self, table: str) -> Metadata | None:
        """A table as it was when the branch was opened."""
        location = self.base.get(table)
        return None if location is None else self._load(location)

    def staged_metadata(self, table: str) -> Metadata | None:
        """A table as it stands on the branch now."""
        now = self._now.get(table)
        return self.base_metadata(table) if now is None else now.metadata

    def staged_location(self, table: str) -> str | None:
        """Where the metadata of a table as it stands on the branch is, or will be once it has to be read."""
        now = self._now.get(table)
        return self.base.get(table) if now is None else now.location

    def stage(self, table: str, metadata: Metadata) -> str:
        """Lets a table stand at this metadata, which is written only if somebody else has to read it."""
        folder = self.lake.table_folder(table) / "metadata" / self.run
        location = str(folder / f"00000-{secrets.token_hex(8)}.metadata.json")
        with self._guard:
            self._now[table] = _Now(metadata, location)
        return location

    def flush(self, table: str) -> None:
        """Lets Spark see a table as it stands on the branch."""
        with self._guard:
            now = self._now.get(table)
            if now is not None and not now.written:
                _write(Path(now.location), now.metadata)
                self.lake.catalog.point(self.name, table, now.location)
                now.written = True

    def reload(self, table: str) -> None:
        """Takes over what Spark has made of a table."""
        location = self.lake.catalog.pointers(self.name)[table]
        with self._guard:
            self._now[table] = _Now(meta.load(location), location, written=True)

    def pyiceberg(self) -> Catalog:
        """PyIceberg's view of the branch, kept while the branch is open."""
        with self._opening:
            if self._pyiceberg is None:
                self._pyiceberg = staging_catalog(self)
            return self._pyiceberg

    def own_properties(self, table: str) -> dict[str, str]:
        """Properties that send a new table's files to folders of this run."""
        folder = self.lake.table_folder(table)
        return {meta.DATA_PATH: f"{folder}/data/{self.run}", meta.METADATA_PATH: f"{folder}/metadata/{self.run}"}

    def prepare(self, table: str) -> None:
        """Before the first write to an existing table: from here on its files go to folders of this run.

        What this run has written to it so far is taken back.
        """
        base = self.base_metadata(table)
        if base is None:
            return
        prepared = prepare(base, self.run)
        folder = self.lake.table_folder(table) / "metadata" / self.run
        self.stage(table, prepared)
        shutil.rmtree(meta.local_path(meta.data_path(prepared)), ignore_errors=True)
        for manifest in folder.glob("*.avro"):
            manifest.unlink(missing_ok=True)

    def forget(self, table: str) -> None:
        """Puts a table back to what it was when the branch was opened."""
        with self._guard:
            self._now.pop(table, None)
        if table in self.base:
            self.lake.catalog.point(self.name, table, self.base[table])
        else:
            self.lake.catalog.unpoint(self.name, table)

    def publish(
        self,
        tables: Mapping[str, dict[str, str]],
        journal: Journal,
        deaths: Collection[str] = (),
        relied: Collection[str] = (),
        summaries: Mapping[str, dict[str, str]] | None = None,
    ) -> int:
        """Makes the given tables (with the properties they are to carry) and the journal visible, all at once.

        Returns the one timestamp that all of them got. A lost race on `ops.*` alone repeats only that append.
        `deaths` are the runs that the journal tells to have died, `relied` the tables that were looked at to let these
        pass: they must not have been moved meanwhile. `summaries` are told in the snapshots of tables.
        """
        standing = {table: self.base.get(table) for table in relied if table not in tables}
        for _ in range(_OPS_TRIES):
            journal.append(self)
            try:
                every = {**tables, **{name: {} for name in journal.tables}}
                return self._publish(every, deaths, standing, summaries or {})
            except Overtaken as overtaken:
                if not set(overtaken.tables) <= set(journal.tables):
                    raise
                self._rebase(journal.tables)
        raise Overtaken(list(journal.tables))

    def publish_upkeep(
        self, tables: Mapping[str, Callable[[Metadata], Metadata]], summaries: Mapping[str, dict[str, str]]
    ) -> None:
        """Makes the same rows visible in other files, or with fewer old versions, all at once; nothing is journaled.

        The functions edit what is published of each table. `summaries` are told in snapshots.
        """
        self._publish({key: {} for key in tables}, (), {}, summaries, tables)

    def abandon(self, *, keep: bool = False) -> None:
        """Lets the branch go; `keep` leaves it for a look at what failed."""
        if keep and self.name in self.lake.catalog.branches():
            for table in list(self._now):
                self.flush(table)
            self.lake.keep_failed(self.run)
        elif not self.lake.clear(self.name, self.run) and not self._published():
            self.lake.reclaim(self.run)  # cleared by someone else, who could not know what was written since
        self._release()

    def _publish(
        self,
        tables: Mapping[str, dict[str, str]],
        deaths: Collection[str],
        relied: Mapping[str, str | None],
        summaries: Mapping[str, dict[str, str]],
        edits: Mapping[str, Callable[[Metadata], Metadata]] | None = None,
    ) -> int:
        staged = {table: found for table in tables if (found := self.staged_metadata(table)) is not None}
        timestamp = self._timestamp(tables)
        moves = {
            table: self._finish(
                table, staged[table], timestamp, tables[table], summaries.get(table), (edits or {}).get(table)
            )
            for table in tables
        }
        self._staged = {move.table: move.staged for move in moves.values()}
        failpoint("publish.metadata-written")
        try:
            self.lake.catalog.publish(self.name, self.run, moves, deaths, relied)
        except (Overtaken, RunCleared):
            for move in moves.values():  # known to be rolled back: nothing can name these files
                meta.local_path(move.staged).unlink(missing_ok=True)
            raise
        except BaseException:
            if not self._published():  # unknown: the files stay until the run is cleared
                raise
        with suppress(Exception):  # published is published: what is not tidied up here, the next run sweeps
            failpoint("publish.committed")
            self._remove_inner_metadata(staged)
        self._release()
        with suppress(Exception):
            failpoint("publish.cleaned")
        return timestamp

    def _published(self) -> bool:
        """A commit whose answer was lost is recognised by its run's row in `ops.runs`, or by what tables point at."""
        try:
            return self.lake.published(self.run) or self._is_in_place()
        except (OSError, LakeError):
            return False

    def _is_in_place(self) -> bool:
        """Whether a table points at what this branch has staged, or did so before others published it again."""
        now = self.lake.pointers()
        for table, staged in self._staged.items():
            at = now.get(table)
            known = [] if at is None else [entry["metadata-file"] for entry in meta.load(at).get("metadata-log", [])]
            if staged in (at, *known):
                return True
        return False

    def _timestamp(self, tables: Mapping[str, dict[str, str]]) -> int:
        """Later than anything these tables have, even where the clock stepped back."""
        newest: list[int] = [
            base["last-updated-ms"] for table in tables if (base := self.base_metadata(table)) is not None
        ]
        return max([now_ms(), *(ms + 1 for ms in newest)])

    def _finish(
        self,
        table: str,
        staged: Metadata,
        timestamp: int,
        properties: dict[str, str],
        summary: dict[str, str] | None,
        edit: Callable[[Metadata], Metadata] | None,
    ) -> Move:
        base_at = self.base.get(table)
        base = self.base_metadata(table)
        final = finish(staged, base, base_at, timestamp_ms=timestamp, properties=properties, summary=summary)
        final = final if edit is None else edit(final)
        version = len(final["metadata-log"]) if base_at is None else _version(base_at) + 1
        path = self.lake.table_folder(table) / "metadata" / f"{version:05d}-{self.run}.metadata.json"
        return Move(table=table, base=base_at, staged=_write(path, final))

    def _rebase(self, tables: tuple[str, ...]) -> None:
        now = self.lake.pointers()
        for table in tables:
            if table in now:
                self.base[table] = now[table]
            self.forget(table)

    def _remove_inner_metadata(self, tables: Mapping[str, Metadata]) -> None:
        """Removes the metadata of a run's inner steps, which nothing names any more."""
        for table, staged in tables.items():
            for inner in (self.lake.table_folder(table) / "metadata" / self.run).glob("*.metadata.json"):
                inner.unlink(missing_ok=True)
            for snapshot in inner_snapshots(staged, self.base_metadata(table)):
                meta.local_path(snapshot["manifest-list"]).unlink(missing_ok=True)

    def _release(self) -> None:
        self._pyiceberg = None
        if self._lock >= 0:
            shutil.rmtree(self.lake.scratch_folder(self.run), ignore_errors=True)
            self.lake.unlock(self.name, self._lock)
            self._lock = -1

    def _load(self, location: str) -> Metadata:
        if location not in self._metadata:
            self._metadata[location] = meta.load(location)
        return self._metadata[location]


def _version(location: str) -> int:
    head = location.rsplit("/", 1)[-1].split("-", 1)[0]
    return int(head) if head.isdigit() else 0


def _write(path: Path, metadata: Metadata) -> str:
    """Writes a metadata file durably before any pointer can name it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(json.dumps(metadata, separators=(",", ":")).encode())
        file.flush()
        os.fsync(file.fileno())
    return str(path)
