"""Prepares this checkout: an isolated environment in .venv, the packages, the jars, Java when there is none.

    python3 scripts/setup.py           # what running icefield needs
    python3 scripts/setup.py --dev     # and what its tests and checks need
    python3 scripts/setup.py --force   # start over

Needs nothing but Python's standard library, and is written so that even an old Python can read it and say what is
missing. Packages are installed by uv, which is fetched like any other package, or by pip where uv cannot be had. A
second call finds its stamp and returns at once.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
VENV_PYTHON = os.path.join(VENV, "bin", "python")
VENV_PIP = [VENV_PYTHON, "-m", "pip", "--disable-pip-version-check", "install"]
VENV_UV = os.path.join(VENV, "bin", "uv")
LOG = os.path.join(VENV, "setup.log")
UV = "0.13.8"
# pyspark is published as source only. Compressing its 400 MB of jars into a wheel, only to unpack them again, would
# take most of the time; pyproject.toml tells uv the same.
STORED = "--config-settings=--build-option=--compression=stored"
NEEDED = (3, 11)
OLDEST_PIP = (22, 3)  # the first with `pip --python`
BEAT_SECONDS = 10


class SetupError(Exception):
    """Set-up cannot go on; the text is for the person at the terminal."""


def main() -> int:
    force = "--force" in sys.argv[1:]
    if sys.version_info < NEEDED:
        return run_on_another_python()
    began = time.time()
    done = []
    try:
        for part in (RUN, DEV) if "--dev" in sys.argv[1:] else (RUN,):
            if force or read(part.stamp) != part.fingerprint():
                done.append(part.prepare(fresh=force))
            force = False
    except SetupError as error:
        sys.stderr.write("\nsetup failed: %s\n" % error)
        return 2
    if done:
        say("ready after %d s: %s" % (time.time() - began, "; ".join(done)))
    return 0


class Part:
    """A part of the environment: what its lock lists, and what has to be done beside that."""

    def __init__(self, name: str, lock: str, prepare: Callable[..., str]) -> None:
        self.stamp = os.path.join(VENV, "icefield-%s.stamp" % name)
        self.lock = os.path.join(ROOT, lock)
        self._prepare = prepare

    def prepare(self, *, fresh: bool) -> str:
        """Does it all, and says what is there then."""
        told = self._prepare(self, fresh=fresh)
        write(self.stamp, self.fingerprint())
        return told

    def fingerprint(self) -> str:
        """What it depends on: the lock, the metadata, this script, and where the checkout is."""
        digest = hashlib.sha256(ROOT.encode())
        for name in (self.lock, os.path.join(ROOT, "pyproject.toml"), os.path.abspath(__file__)):
            with open(name, "rb") as file:
                digest.update(file.read())
        return digest.hexdigest()


def prepare_run(part: Part, *, fresh: bool) -> str:
    say("setting up in %s" % VENV)
    make_environment(fresh=fresh)
    install(part)
    watched("installing icefield", [*installer(), "--no-deps", "-e", ROOT])
    fetch_jars()
    return ".venv/bin/icefield, %s" % check_java()


def prepare_dev(part: Part, *, fresh: bool) -> str:  # the first part has made the environment anew
    install(part)
    return ".venv/bin/pytest"


RUN = Part("setup", "requirements.lock", prepare_run)
DEV = Part("dev", "requirements-dev.lock", prepare_dev)


# --- the environment -------------------------------------------------------------------------------------------------


def make_environment(*, fresh: bool) -> None:
    """Five ways to an environment with pip, because Debian's Python comes without the usual one."""
    if not fresh and works(VENV_PYTHON):
        return
    for way in (by_venv, by_borrowed_pip, by_virtualenv, by_uv, by_another_python):
        shutil.rmtree(VENV, ignore_errors=True)
        if way() and works(VENV_PYTHON):
            return
    shutil.rmtree(VENV, ignore_errors=True)
    raise SetupError(
        "no isolated environment could be made. %s has no working `venv` module (on Debian and Ubuntu it is a package "
        "of its own), and neither pip 22.3+, virtualenv, uv nor another Python 3.11+ was found. Install one of them, "
        "for example: sudo apt install python3-venv, then run this again." % sys.executable
    )


def by_venv() -> bool:
    return quiet([sys.executable, "-m", "venv", VENV])


def by_borrowed_pip() -> bool:
    if not quiet([sys.executable, "-m", "venv", "--without-pip", VENV]):
        return False
    for pip in ([sys.executable, "-m", "pip"], ["pip3"], ["pip"], ["python3", "-m", "pip"]):
        version = re.match(r"pip (\d+)\.(\d+)", output([*pip, "--version"]))
        if version and (int(version.group(1)), int(version.group(2))) >= OLDEST_PIP:
            say("this Python has no ensurepip: borrowing %s" % version.group())
            if quiet([*pip, "--python", VENV_PYTHON, "install", "pip"]):
                return True
    return False


def by_virtualenv() -> bool:
    return any(quiet([*command, VENV]) for command in ([sys.executable, "-m", "virtualenv"], ["virtualenv"]))


def by_uv() -> bool:
    return quiet(["uv", "venv", "--seed", "--python", sys.executable, VENV])


def by_another_python() -> bool:
    return any(quiet([python, "-m", "venv", VENV]) for python in other_pythons())


def other_pythons() -> list[str]:
    found = []
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        for minor in range(14, NEEDED[1] - 1, -1):
            python = os.path.join(folder, "python3.%d" % minor)
            if os.access(python, os.X_OK) and quiet([python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]):
                found.append(python)
    return found


def run_on_another_python() -> int:
    version = "%d.%d" % sys.version_info[:2]
    for python in other_pythons():
        say("%s is Python %s: going on with %s" % (sys.executable, version, python))
        return subprocess.call([python, *sys.argv])
    sys.stderr.write(
        "setup failed: icefield needs Python 3.11 or newer, and %s is %s; no newer one is on PATH. Install one (for "
        "example: sudo apt install python3.11 python3.11-venv, or brew install python@3.12), then run this again with "
        "PYTHON=python3.11 set.\n" % (sys.executable, version)
    )
    return 2


def works(python: str) -> bool:
    return os.path.exists(python) and quiet([python, "-m", "pip", "--version"])


# --- what goes into it -----------------------------------------------------------------------------------------------


def install(part: Part) -> None:
    count = sum(1 for line in read(part.lock).splitlines() if "==" in line and not line.startswith("#"))
    what = "installing %d packages" % count
    command = ["--require-hashes", "-r", part.lock]
    if has_uv():
        try:
            return watched(what, [*installer(), *command])
        except SetupError:  # a proxy or an index that pip is told about in a way of its own
            os.remove(VENV_UV)
    return watched("%s by pip" % what, [*installer(), STORED, *command])


def installer() -> list[str]:
    """What installs packages into the environment: uv, or pip where that cannot be had."""
    if os.path.exists(VENV_UV):
        # What it takes to build pyspark would leave 3 GB behind in the home of someone who never asked for uv.
        cache = [] if os.environ.get("UV_CACHE_DIR") else ["--no-cache"]
        return [VENV_UV, "pip", "install", *cache, "--python", VENV_PYTHON]
    return [*VENV_PIP, "--progress-bar", "off"]


def has_uv() -> bool:
    """Whether uv is there, or could be fetched; a plain wheel, so that pip has it in a second or two."""
    if not os.path.exists(VENV_UV):
        quiet([*VENV_PIP, "--no-deps", "--only-binary=:all:", "uv==%s" % UV])
    return quiet([VENV_UV, "--version"])


def fetch_jars() -> None:
    watched("fetching Iceberg and SQLite for Spark", [VENV_PYTHON, "-m", "icefield.engine.session.jars"])


def check_java() -> str:
    code = (
        "from icefield.engine.session.java import find_java as f; j = f(); "
        "print('Java %d (%s)' % (j.version, 'from its wheel' if j.bundled else j.home))"
    )
    done = subprocess.run([VENV_PYTHON, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        raise SetupError(done.stderr.decode(errors="replace").strip().splitlines()[-1])
    return done.stdout.decode().strip()


# --- talking and running ---------------------------------------------------------------------------------------------


def say(text: str) -> None:
    print("  " + text, flush=True)


def for_uv() -> dict[str, str]:
    """The environment with what pip is told of indexes and certificates in the words of uv, which does not read it."""
    told = dict(os.environ)
    names = {"PIP_INDEX_URL": "UV_DEFAULT_INDEX", "PIP_EXTRA_INDEX_URL": "UV_INDEX", "PIP_CERT": "SSL_CERT_FILE"}
    for theirs, ours in names.items():
        if told.get(theirs):
            told.setdefault(ours, told[theirs])
    return told


def watched(what: str, command: list[str]) -> None:
    """Runs a slow command with its output in a log, and says every few seconds that it is still at it."""
    began = last = time.time()
    say("%s ..." % what)
    with open(LOG, "ab") as log:
        start = log.tell()
        process = subprocess.Popen(
            command, cwd=ROOT, env=for_uv(), stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
        try:
            while True:
                try:
                    code = process.wait(timeout=0.2)
                    break
                except subprocess.TimeoutExpired:
                    if time.time() - last >= BEAT_SECONDS:
                        last = time.time()
                        say("%s ... %d s" % (what, last - began))
        except BaseException:
            process.kill()
            raise
    if code:
        with open(LOG, "rb") as log:
            log.seek(start)
            tail = log.read().decode(errors="replace").strip().splitlines()[-15:]
        raise SetupError("%s ended with %d. The whole log is %s, its end:\n%s" % (what, code, LOG, "\n".join(tail)))


def quiet(command: list[str]) -> bool:
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    except OSError:
        return False
    return done.returncode == 0


def output(command: list[str]) -> str:
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
        ).stdout.decode(errors="replace")
    except OSError:
        return ""


def read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


if __name__ == "__main__":
    sys.exit(main())
