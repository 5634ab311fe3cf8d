"""Watchers and producers of the sensors project as processes, to be killed and to be waited for."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from icefield.lake.embedded import EmbeddedLake
from projects import SOURCES, ask
from servers import Kafka

PIPELINES = Path(__file__).parents[2] / "pipelines"
PATIENCE = 240


def copied(name: str, root: Path) -> Path:
    """A reference project in a folder of a test."""
    left = shutil.ignore_patterns("lake*", "landing", ".icefield", "__pycache__")
    return Path(shutil.copytree(PIPELINES / name, root, ignore=left))


#: What tests have started; whatever a test leaves behind is ended after it.
STARTED: list[Running] = []


@dataclass(slots=True)
class Running:
    """A process with a group of its own, and what it printed."""

    process: subprocess.Popen[bytes]
    log: Path
    children: list[int] = field(default_factory=list)

    @classmethod
    def start(cls, arguments: list[str], log: Path, **environment: str) -> Running:
        inherited = {**os.environ, "PYTHONPATH": str(SOURCES), **environment}
        with log.open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, *arguments], stdout=out, stderr=out, env=inherited, start_new_session=True
            )
        started = cls(process, log)
        STARTED.append(started)
        return started

    def kill(self) -> None:
        """Ends it and everything that it started, at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def stop(self) -> int:
        """Asks it to end, as Ctrl-C does; its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE)

    def require_alive(self) -> None:
        """Fails with what it printed if it has ended."""
        assert self.process.poll() is None, self.log.read_text(errors="replace")[-3000:]


def produce(root: Path, kafka: Kafka, log: Path, *arguments: str) -> Running:
    """The sensors project's producer."""
    brokers = str(kafka.client()["bootstrap.servers"])
    return Running.start([str(root / "produce.py"), "--brokers", brokers, *arguments], log)


def watch(root: Path, kafka: Kafka, log: Path, *arguments: str) -> Running:
    """`icefield run --watch` with the profile of a broker."""
    brokers = str(kafka.client()["bootstrap.servers"])
    command = ["-m", "icefield", "run", "-p", str(root), "--profile", "kafka", "--watch", *arguments]
    return Running.start(command, log, KAFKA_BROKERS=brokers)


def published(lake: EmbeddedLake) -> int:
    """How many runs a lake has published."""
    pointers = lake.pointers() if lake.exists else {}
    if "ops.runs" not in pointers:
        return 0
    return int(
        ask({"ops.runs": pointers["ops.runs"]}, "SELECT count(*) FROM ops.runs WHERE status = 'published'")[0][0]
    )


def wait_for(condition: Callable[[], bool], what: str, *alive: Running, patience: float = PATIENCE) -> None:
    """Waits until something holds, as long as the processes that bring it about are alive."""
    until = time.monotonic() + patience
    while not condition():
        for one in alive:
            one.require_alive()
        told = alive[0].log.read_text(errors="replace")[-3000:] if alive else ""
        assert time.monotonic() < until, f"{what} did not happen in {patience:.0f} s\n{told}"
        time.sleep(0.1)
