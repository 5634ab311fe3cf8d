"""The embedded lake: one folder with a SQLite catalog, a warehouse and the scratch space of runs."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import shutil
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icefield.errors import LakeMoved, LakeNotWritable
from icefield.graph import changes_of
from icefield.lake import metadata as meta
from icefield.lake.catalog import LAKE, Catalog
from icefield.lake.table_state import table_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from icefield.graph.state import TableState

KEEP_FAILED_SECONDS = 24 * 3600
#: How the name of a branch begins that only adds to `ops.*`: it is no run.
RECORDER = "record_"
#: The folder of the warehouse in which runs keep rows that they evaluated; no namespace begins with a dot.
SCRATCH = ".scratch"
#: How the name of a branch begins on which upkeep works: it is no run either.
UPKEEP = "upkeep_"
_NO_RUNS = (RECORDER, UPKEEP)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRun:
    """A run whose process lives."""

    run: str
    pid: int
    started_ms: int


class EmbeddedLake:
    """A lake in a folder of this machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.warehouse = root / "warehouse"
        self.runs = root / "runs"
        self.catalog = Catalog(root / "catalog.db")

    @property
    def exists(self) -> bool:
        return self.catalog.exists

    def create(self) -> None:
        """Makes the folder and its catalog where they are missing."""
        try:
            self.warehouse.mkdir(parents=True, exist_ok=True)
            self.runs.mkdir(exist_ok=True)
            _require_writable(self.root)
        except OSError as error:
            raise LakeNotWritable(self.root, error) from error
        if not self.catalog.exists:
            self.catalog.create(str(self.root))

    def require_in_place(self) -> None:
        """Refuses a lake whose folder was moved: its metadata names files by their full path."""
        if self.exists and (made_at := self.catalog.setting("location")) not in (None, str(self.root)):
            raise LakeMoved(made_at=str(made_at), now_at=str(self.root))

    def pointers(self, catalog: str = LAKE) -> dict[str, str]:
        """Every table's metadata file, as one consistent version; empty where no lake is yet."""
        return self.catalog.pointers(catalog) if self.exists else {}

    def states(self, pointers: Mapping[str, str] | None = None) -> dict[str, TableState]:
        """The state of every table, from metadata alone."""
        found = self.pointers() if pointers is None else pointers
        states = {name: table_state(name, meta.load(location, name)) for name, location in found.items()}
        return {name: state if changes_of(name) in found else state.telling_nothing() for name, state in states.items()}

    def table_folder(self, table: str) -> Path:
        """Where a table's files are; plain absolute paths, the one spelling that every engine keeps as it is."""
        return self.warehouse.joinpath(*table.split("."))

    def run_folder(self, run: str) -> Path:
        """Where a run keeps its log."""
        return self.runs / run

    def scratch_folder(self, run: str) -> Path:
        """Where a run keeps rows that it evaluated: in the warehouse, which Spark's workers see wherever they are."""
        return self.warehouse / SCRATCH / run

    def table_folders(self) -> list[Path]:
        """The folders of tables that are in the warehouse, published or not."""
        return sorted(
            folder for folder in self.warehouse.glob("*/*") if folder.parent.name != SCRATCH and folder.is_dir()
        )

    def published(self, run: str) -> bool:
        """Whether a run's commit is in the lake, whatever its answer was."""
        location = self.pointers().get("ops.runs")
        return location is not None and meta.run_published_at(meta.load(location), run) is not None

    # -- liveness: a run holds an OS lock on a file of its own; a free lock is a dead run

    def lock(self, branch: str, run: str) -> int:
        """Takes the lock that says this process is alive; released by the OS however the process ends."""
        with self._writing():
            self.runs.mkdir(parents=True, exist_ok=True)
        while True:
            with self._writing():
                handle = os.open(self._lock_file(branch), os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.flock(handle, fcntl.LOCK_EX)
            if os.fstat(handle).st_nlink:  # else it was swept away between opening and locking
                break
            os.close(handle)
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps({"run": run, "pid": os.getpid(), "started_ms": now_ms()}).encode(), 0)
        return handle

    def unlock(self, branch: str, handle: int) -> None:
        """Gives the lock back."""
        self._lock_file(branch).unlink(missing_ok=True)
        os.close(handle)

    def alive(self, branch: str) -> bool:
        """Whether the process that opened a branch still runs."""
        try:
            handle = _open_lock(self._lock_file(branch))
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
        return False

    def open_runs(self) -> list[OpenRun]:
        """The runs that are at work on this lake now."""
        found = []
        for branch, run in self.catalog.branches().items() if self.exists else ():
            if not branch.startswith(_NO_RUNS) and self.alive(branch):
                told = self._told(branch)
                found.append(OpenRun(run=run, pid=told.get("pid", 0), started_ms=told.get("started_ms", 0)))
        return found

    def clear_dead(self) -> list[str]:
        """Clears every run whose process is gone, except a failed one that is kept for a look; says whom it found."""
        dead: list[str] = []
        for branch, run in self.catalog.branches().items() if self.exists else ():
            if self.alive(branch) or self._kept(run):
                continue
            told = not self._failed_mark(run).exists() and not branch.startswith(_NO_RUNS)
            if self.clear(branch, run, died=told) and told:
                dead.append(run)
        self._sweep_scratch()
        with self._writing():
            self._sweep_locks()
        return dead

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Says of a folder that cannot be written to that it is the lake's."""
        try:
            yield
        except OSError as error:
            if error.errno in _FORBIDDEN:
                raise LakeNotWritable(self.root, error) from error
            raise

    def deaths(self) -> dict[str, int]:
        """Cleared runs that `ops.runs` does not tell of yet, with their starts."""
        return self.catalog.deaths() if self.exists else {}

    def clear(self, branch: str, run: str, *, died: bool = False) -> bool:
        """Takes a run's branch away and deletes its files; False if it was gone (published, say) already."""
        tables = self.pointers(branch)
        death = (run, self._told(branch).get("started_ms", now_ms())) if died else None
        if not self.catalog.drop_branch(branch, death):
            return False
        self._lock_file(branch).unlink(missing_ok=True)
        self.reclaim(run, tables)
        return True

    def reclaim(self, run: str, tables: Mapping[str, str] | None = None) -> None:
        """Deletes the files of a run that was not published; they carry its id in their path."""
        for folder in self._table_folders(tables or {}):
            shutil.rmtree(folder / "data" / run, ignore_errors=True)
            shutil.rmtree(folder / "metadata" / run, ignore_errors=True)
            for leftover in (folder / "metadata").glob(f"*-{run}.metadata.json"):
                leftover.unlink(missing_ok=True)
        shutil.rmtree(self.scratch_folder(run), ignore_errors=True)
        shutil.rmtree(self.run_folder(run), ignore_errors=True)

    def keep_failed(self, run: str) -> None:
        """Keeps a failed run's branch for a day, in place of the one kept before."""
        for branch, other in self.catalog.branches().items():
            if other != run and self._kept(other) and not self.alive(branch):
                self.clear(branch, other)
        self.run_folder(run).mkdir(parents=True, exist_ok=True)
        self._failed_mark(run).touch()

    def _failed_mark(self, run: str) -> Path:
        return self.run_folder(run) / "failed"

    def _kept(self, run: str) -> bool:
        mark = self._failed_mark(run)
        return mark.exists() and time.time() - mark.stat().st_mtime < KEEP_FAILED_SECONDS

    def _lock_file(self, branch: str) -> Path:
        return self.runs / f"{branch}.lock"

    def _told(self, branch: str) -> dict[str, Any]:
        """What a branch's process wrote into its lock file."""
        try:
            return dict(json.loads(self._lock_file(branch).read_text()))
        except (OSError, ValueError):
            return {}

    def _table_folders(self, pointers: Mapping[str, str]) -> Iterator[Path]:
        yield from sorted({self.table_folder(table) for table in pointers}.union(self.table_folders()))

    def _sweep_scratch(self) -> None:
        """Removes scratch files that runs of processes now gone have left."""
        live = {run for branch, run in self.catalog.branches().items() if self.alive(branch)} if self.exists else set()
        for scratch in (self.warehouse / SCRATCH).glob("*"):
            if scratch.name not in live:
                shutil.rmtree(scratch, ignore_errors=True)

    def _sweep_locks(self) -> None:
        """Finishes what a run killed right after its commit left: its lock, and metadata of its inner steps."""
        known = self.catalog.branches() if self.exists else {}
        for lock in self.runs.glob("*.lock"):
            if lock.stem in known or self.alive(lock.stem):
                continue
            if run := self._told(lock.stem).get("run"):
                for inner in self.warehouse.glob(f"*/*/metadata/{run}/*.metadata.json"):
                    inner.unlink(missing_ok=True)
            lock.unlink(missing_ok=True)


def _open_lock(file: Path) -> int:
    """A lock file, opened as its owner did; a network file system takes no lock of a reader."""
    try:
        return os.open(file, os.O_RDWR)
    except OSError as error:
        if error.errno not in _FORBIDDEN:
            raise
        return os.open(file, os.O_RDONLY)


def _require_writable(folder: Path) -> None:
    probe = folder / f".probe-{secrets.token_hex(4)}"
    probe.touch()
    probe.unlink()


def now_ms() -> int:
    """The wall clock in milliseconds."""
    return time.time_ns() // 1_000_000


def new_run_id() -> str:
    """A run's name: when it started (UTC), and enough chance to tell two of one second apart."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"
