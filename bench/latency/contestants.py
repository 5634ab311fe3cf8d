"""Who takes part: icefield with the sensors project, and Spark Structured Streaming; both on one topic's readings."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measure import CommandFailed, Family

from icefield.engine.session.jars import Jar, ensure_jars

HERE = Path(__file__).parent
SENSORS = HERE.parents[1] / "pipelines" / "sensors"
TOPIC = "sensor-readings"
ICEFIELD, STREAMING = "icefield", "Structured Streaming"
STOP_SECONDS = 120
#: What Spark needs to read Kafka; only this benchmark fetches them. The token provider, which has nothing to do where
#: nobody authenticates, is of a version before the others: its last ones are missing from the repository.
KAFKA_JARS = (
    Jar(
        group="org.apache.spark",
        artifact="spark-sql-kafka-0-10_2.13",
        version="4.1.3",
        sha256="cb31ffd9c8f5527dba061db8af671d295562092e4f3f5ff42fc249fab8a8fde6",
    ),
    Jar(
        group="org.apache.spark",
        artifact="spark-token-provider-kafka-0-10_2.13",
        version="4.1.0-preview1",
        sha256="ab6e27a8a47ce63348dd0ecbd5543dc6212b4783180305cde5749e79684ea97b",
    ),
    Jar(
        group="org.apache.kafka",
        artifact="kafka-clients",
        version="3.9.1",
        sha256="7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9",
    ),
    Jar(
        group="org.apache.commons",
        artifact="commons-pool2",
        version="2.12.1",
        sha256="5273c8bc8c0dca2211175c0d27efbd7228efae99689aac001a8e1ef8e872e9ef",
    ),
)


@dataclass(slots=True)
class Program:
    """A process with a group of its own; what it prints goes to a file."""

    process: subprocess.Popen[bytes]
    output: Path
    family: Family = field(init=False)

    def __post_init__(self) -> None:
        self.family = Family(self.process.pid)

    @classmethod
    def start(cls, command: list[str], output: Path, environment: Mapping[str, str] | None = None) -> Program:
        with output.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, *command],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        return cls(process, output)

    def require_alive(self) -> None:
        """Fails with the end of what it printed if it has ended."""
        if self.process.poll() is not None:
            raise CommandFailed(f"a process ended too early:\n{self.tail()}")

    def require_success(self, seconds: float) -> None:
        """Waits until it has ended well."""
        if self.process.wait(seconds) != 0:
            raise CommandFailed(f"exit code {self.process.returncode}:\n{self.tail()}")

    def stop(self, *, by: signal.Signals | None = signal.SIGINT) -> None:
        """Asks it to end, by a signal or by the end of its input, and waits until it and its children have."""
        if self.process.poll() is None:
            assert self.process.stdin is not None
            if by is None:
                self.process.stdin.close()
            else:
                self.process.send_signal(by)
        try:
            self.process.wait(STOP_SECONDS)
            self.family.wait_until_gone()
        except subprocess.TimeoutExpired:
            raise CommandFailed(f"a process did not end in {STOP_SECONDS} s:\n{self.tail()}") from None
        finally:
            self.kill()

    def kill(self) -> None:
        """Ends at once what is left of it."""
        self.family.stop()
        if self.process.poll() is None or self.family.is_alive():
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def tail(self) -> str:
        """The end of what it printed."""
        return self.output.read_text(encoding="utf-8", errors="replace")[-3000:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """One way to keep the minutes up to date."""

    name: str
    start: Callable[[str, Path], Program]
    #: The folder with the SQL catalog, and the name of the published catalog in it.
    lake: Callable[[Path], Path]
    catalog: str
    #: Of each of its runs or batches: rows and seconds.
    runs: Callable[[Path], list[dict[str, Any]]]


def icefield() -> Contestant:
    """`icefield run --watch` on the sensors project as it is."""

    def start(brokers: str, place: Path) -> Program:
        left = shutil.ignore_patterns("lake*", ".icefield", "__pycache__")
        shutil.copytree(SENSORS, place / "sensors", ignore=left)
        command = ["-m", "icefield", "run", "-p", str(place / "sensors"), "--profile", "kafka", "--watch", "--json"]
        return Program.start(command, place / "watch.jsonl", {"KAFKA_BROKERS": brokers})

    def runs(place: Path) -> list[dict[str, Any]]:
        lines = (place / "watch.jsonl").read_text(encoding="utf-8").splitlines()
        told = [json.loads(line) for line in lines if line.startswith("{")]
        if failures := [one["error"] for one in told if one["event"] == "failure"]:
            raise CommandFailed(failures[0])
        wanted = ("rows", "seconds", "lag", "phases")
        return [{key: one[key] for key in wanted} for one in told if one["event"] == "run"]

    return Contestant(
        name=ICEFIELD, start=start, lake=lambda place: place / "sensors" / "lake-kafka", catalog="lake", runs=runs
    )


def streaming() -> Contestant:
    """Spark Structured Streaming into Iceberg."""

    def start(brokers: str, place: Path) -> Program:
        jars = [str(jar) for jar in (*ensure_jars(), *ensure_jars(KAFKA_JARS))]
        script = str(HERE / "structured_streaming.py")
        command = [script, brokers, TOPIC, str(place / "tables"), str(place / "progress.jsonl"), *jars]
        return Program.start(command, place / "streaming.txt")

    def runs(place: Path) -> list[dict[str, Any]]:
        lines = (place / "progress.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    return Contestant(name=STREAMING, start=start, lake=lambda place: place / "tables", catalog="lake", runs=runs)
