"""The embedded lake: who is alive, what is cleared, what is kept, and a folder that was moved."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from icefield.errors import IcefieldError, LakeMoved, LakeNotWritable, Overtaken
from icefield.lake.branch import Branch
from icefield.lake.embedded import KEEP_FAILED_SECONDS, RECORDER, EmbeddedLake, now_ms
from lakes import new_lake, open_branch, publish, told, write
from projects import NOBODY, SOURCES, Process, ask, rows_of, until, without_rights

if TYPE_CHECKING:
    from collections.abc import Iterator

LAKES = str(Path(__file__).parents[1] / "lakes.py")


@pytest.fixture
def lake(tmp_path: Path) -> EmbeddedLake:
    return new_lake(tmp_path / "lake")


def everything_under(lake: EmbeddedLake, run: str) -> list[Path]:
    return [path for path in lake.root.rglob("*") if path.is_file() and run in str(path)]


def die(lake: EmbeddedLake, run: str, where: str) -> None:
    """A process that is killed, group and all, at a failpoint of its publish."""
    process = Process.start_script(
        [LAKES, "publish", str(lake.root), run, "a.one=2"], {"ICEFIELD_FAILPOINTS": f"{where}=kill"}
    )
    assert process.end().killed


def test_an_open_branch_is_alive_in_this_process_too(lake: EmbeddedLake) -> None:
    branch = open_branch(lake)
    assert lake.alive(branch.name)
    assert lake.clear_dead() == []
    branch.abandon()
    assert not lake.alive(branch.name)


def test_the_runs_at_work_on_a_lake_are_known_with_their_processes(lake: EmbeddedLake) -> None:
    assert lake.open_runs() == []
    branch, recorder = open_branch(lake, "20260101T000000-aaaaaa"), Branch(lake, f"{RECORDER}1", "other")
    (found,) = lake.open_runs()
    assert (found.run, found.pid) == (branch.run, os.getpid())
    assert 0 <= now_ms() - found.started_ms < 60_000
    branch.abandon()
    recorder.abandon()
    assert lake.open_runs() == []


def test_a_killed_run_is_found_dead_and_its_files_are_reclaimed(lake: EmbeddedLake) -> None:
    publish(lake, {"a.one": [1]})
    before = lake.pointers()
    files = sorted(path for path in lake.warehouse.rglob("*") if path.is_file())
    die(lake, "victim", "publish.before-commit")
    assert everything_under(lake, "victim")
    assert lake.clear_dead() == ["victim"]
    assert everything_under(lake, "victim") == []
    assert sorted(path for path in lake.warehouse.rglob("*") if path.is_file()) == files
    assert lake.pointers() == before
    assert lake.catalog.branches() == {}
    assert lake.clear_dead() == []
    assert list(lake.runs.glob("*.lock")) == []


def test_when_a_dead_run_began_is_remembered(lake: EmbeddedLake) -> None:
    earliest = time.time_ns() // 1_000_000
    die(lake, "victim", "run.opened")
    latest = time.time_ns() // 1_000_000
    lake.clear_dead()
    assert earliest <= lake.deaths()["victim"] <= latest


def test_a_death_that_two_record_at_once_is_recorded_once(lake: EmbeddedLake) -> None:
    die(lake, "victim", "run.opened")
    lake.clear_dead()
    first, second = open_branch(lake), open_branch(lake)
    first.publish({}, told("one"), ["victim"])
    with pytest.raises(Overtaken, match="the record of victim"):
        second.publish({}, told("two"), ["victim"])
    second.abandon()
    assert lake.deaths() == {}
    assert ask(lake.pointers(), "SELECT run FROM ops.runs") == [("one",)]


def test_a_run_killed_right_after_its_commit_is_published_and_nothing_of_it_is_cleared(lake: EmbeddedLake) -> None:
    publish(lake, {"a.one": [1]})
    die(lake, "winner", "publish.before-answer")
    assert lake.clear_dead() == []
    assert lake.published("winner")
    assert sorted(rows_of(lake.pointers()["a.one"]).elements()) == [(1,), (2,)]


def test_a_run_killed_after_its_commit_leaves_no_lock_and_no_inner_metadata_for_ever(lake: EmbeddedLake) -> None:
    die(lake, "winner", "publish.committed")
    lake.clear_dead()
    assert list(lake.runs.glob("*.lock")) == []
    assert list((lake.table_folder("a.one") / "metadata" / "winner").glob("*.metadata.json")) == []
    assert sorted(rows_of(lake.pointers()["a.one"]).elements()) == [(2,)]


def test_clearing_never_takes_a_run_that_is_about_to_publish(lake: EmbeddedLake) -> None:
    """One thread opens and publishes, another clears whatever looks dead, all the time."""
    publish(lake, {"a.one": [1]})
    found: list[object] = []
    over = threading.Event()

    def clear() -> None:
        while not over.is_set():
            found.extend(lake.clear_dead())

    thread = threading.Thread(target=clear)
    thread.start()
    try:
        for number in range(10):
            branch = open_branch(lake)
            branch.publish({}, told(f"r{number}"))
    finally:
        over.set()
        thread.join()
    assert found == []
    assert len(ask(lake.pointers(), "SELECT run FROM ops.runs")) == 11


def test_a_failed_run_is_kept_for_a_day_and_the_one_before_it_let_go(lake: EmbeddedLake) -> None:
    publish(lake, {"a.one": [1]})
    first, second = open_branch(lake, "first"), open_branch(lake, "second")
    write(first, "a.one", 2)
    write(second, "a.one", 3)
    first.abandon(keep=True)
    assert lake.clear_dead() == []
    assert sorted(rows_of(lake.pointers(first.name)["a.one"]).elements()) == [(1,), (2,)]
    second.abandon(keep=True)
    assert list(lake.catalog.branches().values()) == ["second"]
    assert everything_under(lake, "first") == []
    assert sorted(rows_of(lake.pointers(second.name)["a.one"]).elements()) == [(1,), (3,)]


def test_a_kept_failed_run_is_cleared_after_a_day_and_is_not_told_as_died(lake: EmbeddedLake) -> None:
    publish(lake, {"a.one": [1]})
    branch = open_branch(lake, "failed-one")
    write(branch, "a.one", 2)
    branch.abandon(keep=True)
    long_ago = time.time() - KEEP_FAILED_SECONDS - 1
    os.utime(lake.run_folder("failed-one") / "failed", (long_ago, long_ago))
    dead = lake.clear_dead()
    assert lake.catalog.branches() == {}
    assert everything_under(lake, "failed-one") == []
    assert dead == [], "it was recorded as failed when it failed; it did not die"


def test_a_moved_folder_is_noticed_and_said(lake: EmbeddedLake, tmp_path: Path) -> None:
    publish(lake, {"a.one": [1]})
    moved = EmbeddedLake(Path(shutil.move(lake.root, tmp_path / "elsewhere")))
    with pytest.raises(LakeMoved) as caught:
        moved.require_in_place()
    assert str(lake.root) in str(caught.value)
    assert "relocate" in caught.value.remedy


def test_a_lake_whose_making_was_cut_short_is_simply_made(tmp_path: Path) -> None:
    """What `kill -9` leaves between opening the file and creating its tables: a database without any."""
    lake = EmbeddedLake(tmp_path / "lake")
    lake.root.mkdir()
    sqlite3.connect(lake.catalog.path).close()
    lake.catalog.path.touch()
    assert lake.pointers() == {}
    assert lake.clear_dead() == []
    lake.create()
    publish(lake, {"a.one": [1]})
    assert sorted(rows_of(lake.pointers()["a.one"]).elements()) == [(1,)]


def test_a_lake_that_many_make_at_once_is_made_once(tmp_path: Path) -> None:
    for attempt in range(20):
        root, failures = tmp_path / str(attempt), []
        barrier = threading.Barrier(6)

        def make(root: Path = root, barrier: threading.Barrier = barrier, failures: list[object] = failures) -> None:
            lake = EmbeddedLake(root)
            barrier.wait()
            try:
                lake.pointers()
                lake.clear_dead()
                lake.create()
                lake.require_in_place()
                open_branch(lake).abandon()
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=make) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []


WITHOUT_RIGHTS = """
import os, secrets, sys
from pathlib import Path
from icefield.errors import IcefieldError
from icefield.lake.embedded import EmbeddedLake
if os.getuid() == 0:
    os.setgid({nobody}); os.setuid({nobody})
try:
    EmbeddedLake(Path(sys.argv[1])).create()
except IcefieldError as error:
    print(type(error).__name__, error)
"""


def test_a_folder_without_write_permission_is_named() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        place.chmod(0o555)
        (place / "lake").mkdir()
        (place / "lake").chmod(0o555)
        said = subprocess.run(
            [sys.executable, "-c", WITHOUT_RIGHTS.format(nobody=NOBODY), str(place / "lake")],
            env={**os.environ, "PYTHONPATH": str(SOURCES)}, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        place.chmod(0o755)
        (place / "lake").chmod(0o755)
    assert said.startswith(LakeNotWritable.__name__), said
    assert "permission" in said.lower()
    assert str(place / "lake") in said


READ_ONLY = """
import os, sys
from pathlib import Path
from icefield.errors import IcefieldError
from icefield.lake.embedded import EmbeddedLake
if os.getuid() == 0:
    os.setgid({nobody}); os.setuid({nobody})
lake = EmbeddedLake(Path(sys.argv[1]))
lake.require_in_place()
print(sorted(lake.states()), lake.catalog.branches(), [lake.alive(branch) for branch in lake.catalog.branches()])
for write in (
    lake.create, lake.clear_dead, lambda: lake.catalog.set_setting("a", "b"), lambda: lake.lock("record_1", "a"),
):
    try:
        print(write())
    except IcefieldError as error:
        print(type(error).__name__, error.where == str(lake.root))
"""


@pytest.fixture
def readable() -> Iterator[EmbeddedLake]:
    """A lake in a folder that any user can reach, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield new_lake(Path(folder) / "lake")


def read_only(lake: EmbeddedLake) -> list[str]:
    """What a process without permission to write sees of a lake, and what it is told when it tries to write."""
    with without_rights(lake.root):
        return subprocess.run(
            [sys.executable, "-c", READ_ONLY.format(nobody=NOBODY), str(lake.root)],
            env={**os.environ, "PYTHONPATH": str(SOURCES)}, capture_output=True, text=True, check=True,
        ).stdout.splitlines()  # fmt: skip


def test_a_lake_that_may_only_be_read_can_be_read(readable: EmbeddedLake) -> None:
    publish(readable, {"a.one": [1]})
    assert [path.name for path in readable.root.glob("catalog.db*")] == ["catalog.db"]
    seen, *written = read_only(readable)
    assert seen == "['a.one', 'ops.runs'] {} []"
    assert written == ["LakeNotWritable True", "[]", "LakeNotWritable True", "LakeNotWritable True"]


def test_a_lake_that_may_only_be_read_while_a_run_goes_on(readable: EmbeddedLake) -> None:
    publish(readable, {"a.one": [1]})
    branch = open_branch(readable, "running")
    seen, *_ = read_only(readable)
    assert seen == f"['a.one', 'ops.runs'] {{{branch.name!r}: 'running'}} [True]"
    branch.abandon()


def test_what_only_the_log_of_the_catalog_holds_is_read_too(readable: EmbeddedLake, tmp_path: Path) -> None:
    """As in a copy, made after a crash, without the file in which SQLite's processes tell of one another."""
    publish(readable, {"a.one": [1]})
    with closing(sqlite3.connect(readable.catalog.path)) as held:
        held.execute("SELECT * FROM iceberg_tables").fetchone()
        publish(readable, {"a.two": [2]})
        kept = [shutil.copy(f"{readable.catalog.path}{end}", tmp_path) for end in ("", "-wal")]
    for file in kept:
        shutil.copy(file, readable.root)
    assert (readable.root / "catalog.db-wal").stat().st_size
    assert not (readable.root / "catalog.db-shm").exists()
    assert read_only(readable)[0].startswith("['a.one', 'a.two', 'ops.runs']")


def test_a_lake_that_cannot_be_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file where a folder should be")
    with pytest.raises(LakeNotWritable, match="cannot write to the lake's folder"):
        EmbeddedLake(tmp_path / "lake").create()


def test_a_catalog_that_is_no_database_is_named(tmp_path: Path) -> None:
    lake = EmbeddedLake(tmp_path / "lake")
    lake.root.mkdir()
    lake.catalog.path.write_bytes(b"this is not a database, it is a note that someone put here " * 20)
    with pytest.raises(IcefieldError) as caught:
        lake.pointers()
    assert str(lake.catalog.path) in str(caught.value)


def test_a_process_that_is_stopped_is_not_dead(lake: EmbeddedLake) -> None:
    process = Process.start_script(
        [LAKES, "publish", str(lake.root), "sleeper", "a.one=2"], {"ICEFIELD_FAILPOINTS": "run.opened=pause"}
    )
    until(lambda: process.stopped, what="the process pauses itself")
    assert lake.clear_dead() == []
    process.signal(signal.SIGCONT)
    assert process.end().code == 0
    assert lake.published("sleeper")
