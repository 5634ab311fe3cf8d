"""A standalone Spark cluster on this machine, from the pyspark package: a master and two workers, on free ports."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from icefield.engine.session.java import find_java
from projects import SOURCES

SPARK = Path(pyspark.__file__).parent
_SECONDS = 120


@contextmanager
def standalone(
    folder: Path, workers: int = 2, *, hidden: Path | None = None, visible: Sequence[Path] = ()
) -> Iterator[str]:
    """The address of a cluster whose workers have folders of their own for their work; all end with the block.

    Of a `hidden` folder, workers see the `visible` folders inside of it and nothing else, as if they were other
    machines on which these are mounted.
    """
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(SOURCES), os.environ.get("PYTHONPATH")])),
    }
    started: list[subprocess.Popen[bytes]] = []
    try:
        log = folder / "master.log"
        master = "org.apache.spark.deploy.master.Master --host 127.0.0.1 --port 0 --webui-port 0"
        started.append(_start(master.split(), log, environment))
        address = _said(log, r"Starting Spark master at (spark://\S+)", started[0])
        for number in range(workers):
            place = folder / f"worker-{number}"
            place.mkdir()
            worker = f"--host 127.0.0.1 --cores 1 --memory 1g --webui-port 0 --work-dir {place} {address}"
            own = {**environment, "SPARK_LOCAL_DIRS": str(place)}
            log = folder / f"worker-{number}.log"
            apart = _apart(place, hidden, visible) if hidden is not None else []
            started.append(_start(["org.apache.spark.deploy.worker.Worker", *worker.split()], log, own, apart))
            _said(log, r"Successfully registered with master (\S+)", started[-1])
        yield address
    finally:
        for process in reversed(started):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _apart(place: Path, hidden: Path, visible: Sequence[Path]) -> list[str]:
    """A command that runs another one in a mount namespace of its own."""
    kept = {shlex.quote(str(folder)): place / f"mounted-{number}" for number, folder in enumerate(visible)}
    for folder in kept.values():
        folder.mkdir()
    script = "\n".join(
        [
            "set -e",
            *(f"mount --bind {folder} {shlex.quote(str(aside))}" for folder, aside in kept.items()),
            f"mount -t tmpfs tmpfs {shlex.quote(str(hidden))}",
            *(f"mkdir -p {folder}" for folder in kept),
            *(f"mount --bind {shlex.quote(str(aside))} {folder}" for folder, aside in kept.items()),
            'exec "$@"',
        ]
    )
    own_user = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", *own_user, "--mount", "sh", "-c", script, "sh"]


def _start(
    command: list[str], log: Path, environment: dict[str, str], apart: list[str] | None = None
) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(
            [*(apart or []), str(SPARK / "bin" / "spark-class"), *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _said(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> str:
    """What a process has said in its log, once it has."""
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        text = log.read_text(errors="replace")
        if found := re.search(pattern, text):
            return found[1]
        if process.poll() is not None:
            raise AssertionError(f"it ended with {process.returncode}:\n{text[-3000:]}")
        time.sleep(0.05)
    raise AssertionError(f"{pattern!r} was not said within {_SECONDS} s:\n{log.read_text(errors='replace')[-3000:]}")
