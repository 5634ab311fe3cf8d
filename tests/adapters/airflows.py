"""A real Airflow in an environment of its own, without icefield's dependencies, that parses and tests DAGs."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

from projects import SOURCES

DRIVER = Path(__file__).with_name("airflow_driver.py")
MARK = "@@answer "
#: The command of the environment that has icefield.
ICEFIELD = Path(sys.executable).with_name("icefield")
#: A parse or a DAG run that takes longer than this hangs.
SECONDS = 300


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a command, and what Airflow logged meanwhile."""

    told: dict[str, Any]
    log: str

    def __getitem__(self, name: str) -> Any:
        assert name in self.told, f"{self.told.get('raised')}\n{self.log[-5000:]}"
        return self.told[name]


@dataclass(slots=True)
class Airflow:
    """One process with Airflow, a metadata database of its own, and a folder of DAGs as its one bundle."""

    home: Path
    python: Path
    _process: subprocess.Popen[str] = field(init=False)
    _listener: threading.Thread = field(init=False)
    _lines: queue.Queue[str | None] = field(default_factory=queue.Queue)

    def __post_init__(self) -> None:
        self.dags.mkdir(parents=True)
        bundle = {
            "name": "dags",
            "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
            "kwargs": {"path": str(self.dags)},
        }
        settings = {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([bundle]),
            "ICEFIELD_CACHE": str(self.home / "cache"),
            "PATH": os.pathsep.join([str(ICEFIELD.parent), os.environ["PATH"]]),
            "PYTHONPATH": str(SOURCES),  # as `pip install --no-deps icefield` would have it
        }
        self._process = subprocess.Popen(
            [str(self.python), str(DRIVER), str(self.dags)],
            env={**os.environ, **settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self.answer()

    @property
    def dags(self) -> Path:
        return self.home / "dags"

    @property
    def pid(self) -> int:
        return self._process.pid

    def declare(self, name: str, source: str) -> Path:
        """A file of DAGs."""
        file = self.dags / f"{name}.py"
        file.write_text(dedent(source))
        return file

    def ask(self, do: str, **arguments: Any) -> Answer:
        self.begin(do, **arguments)
        return self.answer()

    def begin(self, do: str, **arguments: Any) -> None:
        """A command whose answer is not waited for."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Answer:
        log: list[str] = []
        while (line := self._lines.get(timeout=SECONDS)) is not None:
            if line.startswith(MARK):
                return Answer(json.loads(line.removeprefix(MARK)), "".join(log))
            log.append(line)
        raise AssertionError(f"Airflow ended: {''.join(log)[-5000:]}")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)
