"""A server on this machine: how it is started, known to answer, killed, started again on its data, and stopped."""

from __future__ import annotations

import os
import random
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

HOST = "127.0.0.1"
POLL_SECONDS = 0.05
STOP_SECONDS = 20
LOG_TAIL = 3000
#: Below the ports that systems give to outgoing connections, so that nobody takes one while its server is restarted.
PORTS = range(10_000, 32_000)


class ServiceError(Exception):
    """A server could not be fetched, started or used; the text says which and why."""


@dataclass(kw_only=True)
class Service(ABC):
    """One server with its folder, which holds its data, settings and log. It keeps its ports when started again."""

    folder: Path
    #: The user it runs as, where that is not the current one.
    user: Mapping[str, Any] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)
    _lifeline: int = field(default=-1, init=False, repr=False)

    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    start_seconds: ClassVar[float] = 90

    @abstractmethod
    def command(self) -> list[str]:
        """The command line that starts it."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it serves requests now. OSError and ValueError also mean no; ServiceError gives up."""

    @abstractmethod
    def describe(self) -> str:
        """Its addresses, for a person."""

    def environment(self) -> Mapping[str, str] | None:
        """The environment variables it gets; None for those of this process."""
        return None

    @property
    def pid(self) -> int:
        """The id of its process, which is also that of its process group."""
        if self._process is None:
            raise ServiceError(f"{self.name} is not running.")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether its process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> Path:
        """What it has written to its output, over all its starts."""
        return self.folder / f"{self.name}.log"

    def start(self) -> Self:
        """Starts it on the data in its folder, and returns when it answers."""
        if self.running:
            raise ServiceError(f"{self.name} is already running as process {self.pid}.")
        self._launch()
        try:
            wait_until(self._ready, self.start_seconds, f"{self.name} to answer")
        except BaseException as error:
            self.kill()
            if isinstance(error, ServiceError):
                raise ServiceError(f"{error}\nIts log ends with:\n{self._log_tail()}") from error
            raise
        return self

    def kill(self) -> None:
        """`kill -9` for it and its child processes; its data stay, and `start` continues with them."""
        if self._process is not None and not self._has_ended(within=0):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            if not self._has_ended(within=STOP_SECONDS):
                raise ServiceError(f"{self.name} (process {self._process.pid}) survived being killed.")
        self._forget()

    def stop(self) -> None:
        """Asks it to shut down, and kills what is left of it after a while; its data stay."""
        if self.running:
            os.kill(self.pid, self.stop_signal)
            self._has_ended(within=STOP_SECONDS)
        self.kill()

    def close(self) -> None:
        """Stops it and removes its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _launch(self) -> None:
        # Every process of the server inherits the writing end of a pipe: when reading ends, none of them is left.
        self._lifeline, inherited = os.pipe()
        try:
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    self.command(),
                    cwd=self.folder,
                    env=self.environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is for whoever started it
                    pass_fds=[inherited],
                    **self.user,
                )
        except OSError as error:
            os.close(self._lifeline)
            raise ServiceError(f"{self.name} could not be started: {error}") from error
        finally:
            os.close(inherited)

    def _ready(self) -> bool:
        if not self.running:
            code = self._process.returncode if self._process else None
            raise ServiceError(f"{self.name} ended with exit code {code} before it answered.")
        with suppress(OSError, ValueError):
            return self.answers()
        return False

    def _has_ended(self, within: float) -> bool:
        """Whether no process of it is left, child processes included."""
        ended, _, _ = select.select([self._lifeline], [], [], within)
        return bool(ended)

    def _forget(self) -> None:
        if self._process is not None:
            self._process.wait()
            os.close(self._lifeline)
        self._process = None

    def _log_tail(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL:]


def new_folder(name: str) -> Path:
    """A temporary folder for a server; not inside the checkout, which another user may not be able to reach."""
    return Path(tempfile.mkdtemp(prefix=f"icefield-{name}-"))


def free_ports(count: int) -> list[int]:
    """Different ports on which nobody listens."""
    found: list[int] = []
    with ExitStack() as open_sockets:
        for port in random.sample(PORTS, len(PORTS)):
            listener = open_sockets.enter_context(socket.socket())
            with suppress(OSError):
                listener.bind((HOST, port))
                found.append(port)
            if len(found) == count:
                return found
    raise ServiceError(f"There are no {count} free ports between {PORTS.start} and {PORTS.stop}.")


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Returns when the condition holds; an error names what was waited for."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise ServiceError(f"Waited {seconds:.0f} s in vain for {what}.")
        time.sleep(POLL_SECONDS)


def write_properties(path: Path, settings: Mapping[str, object]) -> Path:
    """Writes a Java properties file."""
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
    return path
