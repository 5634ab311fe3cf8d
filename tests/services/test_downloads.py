"""What servers are made of is cached whole or not at all, and a server that cannot be had says why."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from servers.downloads import cached
from servers.service import ServiceError, free_ports, wait_until

ROOT = Path(__file__).parents[2]
A_TEST = "tests/services/test_servers.py::test_postgres_answers_and_can_be_captured"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICEFIELD_CACHE", str(tmp_path))


def test_a_folder_is_made_once(tmp_path: Path) -> None:
    calls: list[Path] = []

    def make(folder: Path) -> None:
        calls.append(folder)
        (folder / "file").write_text("content")

    assert cached("thing", make) == cached("thing", make) == tmp_path / "services" / "thing"
    assert len(calls) == 1
    assert (tmp_path / "services" / "thing" / "file").read_text() == "content"


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "file").write_text("half")
        raise ServiceError("no network")

    with pytest.raises(ServiceError, match="no network"):
        cached("thing", fail)
    assert list((tmp_path / "services").iterdir()) == []


def test_two_at_once_do_not_mix(tmp_path: Path) -> None:
    both = threading.Barrier(2)

    def make(folder: Path) -> None:
        both.wait()
        (folder / folder.name).write_text("content")
        both.wait()

    threads = [threading.Thread(target=cached, args=("thing", make)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.name for path in (tmp_path / "services").iterdir()] == ["thing"]
    assert len(list((tmp_path / "services" / "thing").iterdir())) == 1


def test_ports_differ() -> None:
    assert len(set(free_ports(5))) == 5


def test_waiting_in_vain_names_what_was_waited_for() -> None:
    with pytest.raises(ServiceError, match="in vain for the end of the world"):
        wait_until(lambda: False, 0.01, "the end of the world")


@pytest.mark.parametrize(("ci", "outcome"), [("", "1 skipped"), ("true", "1 error")])
def test_a_server_that_cannot_be_had_says_why(tmp_path: Path, ci: str, outcome: str) -> None:
    environment = {**os.environ, "ICEFIELD_OFFLINE": "1", "CI": ci}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib -ra"]
    done = subprocess.run([*command, A_TEST], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert outcome in done.stdout
    assert "Postgres could not be started: The wheel of postgres.lock is not in the cache" in done.stdout
