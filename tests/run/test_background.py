"""What a command and an engine tell one another, and what makes an engine the right one."""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import pytest

from icefield.errors import CheckFailed, IcefieldError, LakeMoved, PlanRefused, UnknownSelector
from icefield.project.config import Profile
from icefield.run.background.code import LoadedCode
from icefield.run.background.identity import identity
from icefield.run.background.place import place_of
from icefield.run.background.wire import Broke, ended_by

ERRORS: list[IcefieldError] = [
    UnknownSelector("no table", where="here", remedy="look"),
    LakeMoved(made_at="/a", now_at="/b"),
    CheckFailed("not published", rows=["id=1"]),
    PlanRefused([LakeMoved(made_at="/a", now_at="/b"), UnknownSelector("x")]),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_arrive_as_they_were(error: IcefieldError) -> None:
    arrived = pickle.loads(pickle.dumps(error))
    assert (type(arrived), str(arrived), arrived.code) == (type(error), str(error), error.code)


def test_other_errors_arrive_as_their_kind_and_text() -> None:
    broke = ended_by(ZeroDivisionError("by zero"))
    assert isinstance(broke, Broke)
    assert f"{type(broke.error()).__name__}: {broke.error()}" == "ZeroDivisionError: by zero"


def test_an_engine_is_another_for_other_settings_and_variables_but_not_for_another_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = Profile(name="local", lake=tmp_path)
    known = identity(profile)
    monkeypatch.setenv("TERM", "other")
    monkeypatch.setenv("SSH_TTY", "/dev/pts/9")
    assert identity(profile) == known
    assert identity(Profile(name="local", lake=tmp_path, spark={"spark.sql.ansi.enabled": "false"})) != known
    monkeypatch.setenv("KAFKA_BROKERS", "elsewhere:9092")
    assert identity(profile) != known
    monkeypatch.delenv("KAFKA_BROKERS")
    monkeypatch.chdir(tmp_path)
    assert identity(profile) != known


def test_a_folder_that_others_may_enter_is_no_place_for_an_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(prefix="ice") as short:  # the path of a test may be too long for a socket
        monkeypatch.setenv("ICEFIELD_CACHE", short)
        place = place_of(tmp_path, "local")
        assert place is not None
        assert place.socket.parent.stat().st_mode & 0o777 == 0o700
        assert place != place_of(tmp_path, "other")
        place.socket.parent.chmod(0o755)
        assert place_of(tmp_path, "local") is None


def test_a_long_path_of_the_cache_still_gives_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ICEFIELD_CACHE", str(tmp_path / ("long" * 40)))
    with tempfile.TemporaryDirectory(prefix="ice") as short:
        monkeypatch.setattr("tempfile.tempdir", short)
        place = place_of(tmp_path, "local")
        assert place is not None
        assert place.socket.is_relative_to(short)


def test_changed_files_of_loaded_modules_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, module = tmp_path / "helper.py", ModuleType("helper")
    file.write_text("x = 1\n")
    os.utime(file, (1, 1))
    module.__file__ = str(file)
    code = LoadedCode()
    monkeypatch.setitem(sys.modules, "helper", module)
    code.note()
    assert not code.changed()
    file.write_text("x = 10\n")
    assert code.changed()
