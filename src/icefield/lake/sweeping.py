"""Removes files of a lake that nothing names any more: of expired versions, of dead runs, logs of runs long ago.

Only files that icefield itself wrote are looked at: they carry the id of their run in their path. What a reader may
still be using stays: a metadata file that was superseded a while ago is kept with everything that it names, and so is
what open branches point at.
"""

from __future__ import annotations

import re
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from icefield.errors import LakeDamaged
from icefield.failpoint import failpoint
from icefield.lake import metadata as meta
from icefield.lake.manifests import DELETED, records
from icefield.plan.upkeep import superseded_before

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from icefield.lake.embedded import EmbeddedLake
    from icefield.lake.metadata import Metadata

_RUN = re.compile(r"\d{8}T\d{6}-[0-9a-f]{6}")
_METADATA = re.compile(r"(\d+)-(.+)\.metadata\.json")
_YOUNG_MS = 60_000
#: Of the metadata files that readers may be using, every so many-th is looked into: a snapshot stays in all of those
#: that are published while it is one of the last ones.
_EVERY = 10


@dataclass(slots=True)
class Swept:
    """How many files were removed, of how many bytes, and how many folders of runs."""

    files: int = 0
    size: int = 0
    run_folders: int = 0


@dataclass(slots=True)
class Sweeper:
    """Removes what is not needed; kept by a loop, since what a manifest names never changes."""

    lake: EmbeddedLake
    _named: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _used: set[str] = field(default_factory=set)

    def sweep(self, now_ms: int, grace_ms: int, *, keep_runs: int, remove: bool = True) -> Swept:
        """Removes files that nothing has named for a while; `remove`: False only counts them."""
        done = Swept()
        self._used = set()
        # In this order: a run whose files are listed here is open below, or its files are named by what it published.
        found = {folder: list(_own_files(folder)) for folder in self.lake.table_folders()}
        branches = self.lake.catalog.branches()
        open_runs = frozenset(branches.values())
        pinned = [at for branch in branches for at in self.lake.pointers(branch).values()]
        at = {self.lake.table_folder(table): location for table, location in self.lake.pointers().items()}
        for folder, files in found.items():
            if folder not in at:  # a table that was dropped, or is being made
                continue
            for file in self._not_needed(folder, files, at[folder], pinned, open_runs, now_ms - grace_ms):
                _count(done, file)
                if remove:
                    failpoint("upkeep.removing")
                    file.unlink(missing_ok=True)
            if remove:
                _remove_empty(folder, open_runs, now_ms)
        done.run_folders = self._sweep_runs(open_runs, now_ms - grace_ms, keep_runs, remove=remove)
        self._named = {place: names for place, names in self._named.items() if place in self._used}
        return done

    def _not_needed(
        self,
        folder: Path,
        files: list[Path],
        current: str,
        pinned: Collection[str],
        open_runs: Collection[str],
        before_ms: int,
    ) -> list[Path]:
        """The files of a table's folder that nothing names, and its metadata files that were superseded before then."""
        own = [str(meta.local_path(at)) for at in (current, *pinned) if meta.local_path(at).is_relative_to(folder)]
        versions = _versions(folder)
        old = {str(folder / "metadata" / name) for name in superseded_before(versions, before_ms)} - {*own}
        kept = [place for name in versions if (place := str(folder / "metadata" / name)) not in old]
        try:
            needed = self._needed([*own, *kept[::_EVERY], *kept[-1:]])
        except LakeDamaged:  # nothing is removed from a table that cannot be read
            return []
        gone = [file for file in files if _named_by(file) not in needed and str(file) not in own]
        return [file for file in (*gone, *map(Path, sorted(old))) if not _is_of(file, folder, open_runs)]

    def _needed(self, locations: Iterable[str]) -> set[str]:
        """Every file that the snapshots of some metadata files are made of."""
        lists: set[str] = set()
        needed: set[str] = set()
        for location in locations:
            metadata = meta.load(location)
            lists.update(entry["manifest-list"] for entry in metadata.get("snapshots", []))
            needed.update(str(meta.local_path(path)) for path in _statistics(metadata))
        manifests = {one for place in lists for one in self._names(place, "manifest_path")}
        files = {file for one in manifests for file in self._names(one, "file_path")}
        return needed | {str(meta.local_path(one)) for one in (*lists, *manifests, *files)}

    def _names(self, location: str, key: str) -> tuple[str, ...]:
        """The manifests of a list, or the files of a manifest."""
        self._used.add(location)
        if location not in self._named:
            found = records(location)
            live = found if key == "manifest_path" else (one["data_file"] for one in found if one["status"] != DELETED)
            self._named[location] = tuple(one[key] for one in live)
        return self._named[location]

    def _sweep_runs(self, open_runs: Collection[str], before_ms: int, keep_runs: int, *, remove: bool) -> int:
        """Removes the folders, with Spark's logs, of runs that ended a while ago, but the last ones."""
        folders = sorted(one for one in self.lake.runs.iterdir() if one.is_dir() and _RUN.fullmatch(one.name))
        ended = [one for one in folders if one.name not in open_runs][: -keep_runs or None]
        old = [one for one in ended if one.stat().st_mtime * 1000 < before_ms]
        for one in old if remove else ():
            shutil.rmtree(one, ignore_errors=True)
        return len(old)


def _own_files(folder: Path) -> Iterator[Path]:
    """Files in a table's folder that are in folders of runs."""
    for kind in ("data", "metadata"):
        place = folder / kind
        for run in place.iterdir() if place.is_dir() else ():
            if _RUN.fullmatch(run.name) and run.is_dir():
                yield from (file for file in run.rglob("*") if file.is_file())


def _versions(folder: Path) -> dict[str, int]:
    """The metadata files that icefield published of a table, in order, and when each was written."""
    found = []
    for file in (folder / "metadata").glob("*.metadata.json"):
        match = _METADATA.fullmatch(file.name)
        if match and _RUN.fullmatch(match[2]):
            with suppress(FileNotFoundError):
                found.append((int(match[1]), file.stat().st_mtime_ns, file.name))
    return {name: ns // 1_000_000 for _, ns, name in sorted(found)}


def _is_of(file: Path, folder: Path, runs: Collection[str]) -> bool:
    """Whether a file was written by one of some runs."""
    match = _METADATA.fullmatch(file.name)
    return any(part in runs for part in file.relative_to(folder).parts) or (match is not None and match[2] in runs)


def _named_by(file: Path) -> str:
    """The file that must be named for this one to stay: the checksums that Hadoop writes belong to another."""
    is_checksum = file.name.startswith(".") and file.name.endswith(".crc")
    return str(file.with_name(file.name[1:-4]) if is_checksum else file)


def _statistics(metadata: Metadata) -> Iterator[str]:
    for key in ("statistics", "partition-statistics"):
        yield from (entry["statistics-path"] for entry in metadata.get(key, []))


def _count(done: Swept, file: Path) -> None:
    with suppress(FileNotFoundError):
        done.size += file.stat().st_size
        done.files += 1


def _remove_empty(folder: Path, open_runs: Collection[str], now_ms: int) -> None:
    """Removes folders of runs in which nothing is left; not those of the last minute, which someone may just begin."""
    for kind in ("data", "metadata"):
        place = folder / kind
        for run in list(place.iterdir()) if place.is_dir() else ():
            if not _RUN.fullmatch(run.name) or run.name in open_runs or not run.is_dir():
                continue
            for inner in sorted((one for one in run.rglob("*") if one.is_dir()), reverse=True):
                with suppress(OSError):
                    inner.rmdir()
            with suppress(OSError):  # not empty
                if run.stat().st_mtime * 1000 < now_ms - _YOUNG_MS:
                    run.rmdir()
