"""The engine's side: a process that does one command's work after the other with one warm Spark, until it is idle.

The main thread works. Another one answers questions meanwhile, and one hears when the command is asked to stop or dies.
"""

from __future__ import annotations

import io
import os
import socket
import threading
import time
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from icefield import interrupt
from icefield.errors import EngineError, IcefieldError
from icefield.project import open_project
from icefield.project.config import FILE
from icefield.run.background.code import LoadedCode
from icefield.run.background.wire import Done, Gone, Message, Printed, Told, ended_by, hear, receive, say, send
from icefield.version import VERSION

if TYPE_CHECKING:
    from pathlib import Path

    from icefield.run.background.place import Place
    from icefield.run.background.work import Work

#: How long a command may take to say what it wants.
_QUESTION_SECONDS = 1.0
#: How often an idle engine looks whether it can still be reached.
_LOOK_SECONDS = 2.0


@dataclass(slots=True, kw_only=True)
class Engine:
    """One project's engine."""

    root: Path
    profile: str
    place: Place
    identity: str
    keep_warm: float
    listening: socket.socket
    begun: float = field(default_factory=time.time)
    done: int = 0
    _used: float = field(default_factory=time.monotonic)
    _busy: bool = False
    #: It takes no more work.
    _ending: bool = False
    #: Commands whose work waits; None: something else is to be looked at.
    _work: SimpleQueue[socket.socket | None] = field(default_factory=SimpleQueue)
    #: Commands that wait for its end.
    _waiting: list[socket.socket] = field(default_factory=list)
    _code: LoadedCode = field(default_factory=LoadedCode)
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _file: int = 0

    def serve(self) -> None:
        """Works until nothing has come for a while, or it is told to end."""
        self._file = self.place.socket.stat().st_ino
        self._code.note()
        threading.Thread(target=self._answer_questions, daemon=True).start()
        while not self._is_over():
            with suppress(Empty):
                link = self._work.get(timeout=min(_LOOK_SECONDS, self.keep_warm))
                if link is not None:
                    self._carry_out(link)
        with self.place.reserved() as ours:
            if ours and self._is_reachable():
                self.place.socket.unlink()

    def _is_over(self) -> bool:
        with self._guard:
            if self._busy:  # a command was told that it may hand over its work
                return False
            idle = time.monotonic() - self._used >= self.keep_warm
            self._ending = self._ending or idle or not self._is_reachable() or not (self.root / FILE).exists()
            return self._ending

    def _is_reachable(self) -> bool:
        """Whether its socket is still the one that commands find."""
        try:
            return self.place.socket.stat().st_ino == self._file
        except OSError:
            return False

    # -- answering

    def _answer_questions(self) -> None:
        while True:
            link = self.listening.accept()[0]
            link.settimeout(_QUESTION_SECONDS)
            try:
                self._answer(link, hear(link))
            except (Gone, KeyError, TypeError, ValueError):  # it left, or is no command of ours
                link.close()

    def _answer(self, link: socket.socket, question: dict[str, Any]) -> None:
        with self._guard:
            match question.get("verb"):
                case "work":
                    answer = self._admit(question)
                    say(link, {"answer": answer})
                    if answer == "ready":
                        self._busy = True
                        self._work.put(link)
                        return
                case "stop":
                    say(link, {**self._status(), "answer": "stopping"})
                    self._ending = True
                    self._waiting.append(link)  # closed as the process ends
                    self._work.put(None)
                    return
                case "status":
                    say(link, {**self._status(), "answer": "status"})
        link.close()

    def _admit(self, question: dict[str, Any]) -> str:
        if self._busy:
            return "busy"
        if question.get("identity") != self.identity or self._code.changed():
            self._ending = True
        if self._ending:
            self._work.put(None)
            return "ending"
        self.keep_warm = float(question["keep_warm"])
        return "ready"

    def _status(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "version": VERSION,
            "started": self.begun,
            "busy": self._busy,
            "commands": self.done,
            "idle_seconds": 0.0 if self._busy else round(time.monotonic() - self._used, 1),
            "keep_warm_seconds": self.keep_warm,
            "log": str(self.place.log),
        }

    # -- working

    def _carry_out(self, link: socket.socket) -> None:
        """Does a command's work. What may have left Spark or this process in disorder is the end of the engine."""
        client = _Client(link)
        spent = False
        try:
            work: Work = receive(link)
            link.settimeout(None)
            client.begin()
            outcome, spent = self._outcome(work, client)
            client.end(outcome)
        except Gone:  # it died: what it asked for has been abandoned, or was over
            pass
        finally:
            link.close()
        self._code.note()
        with self._guard:
            self.done += 1
            self._busy = False
            self._used = time.monotonic()
            self._ending = self._ending or spent or interrupt.asked()

    def _outcome(self, work: Work, client: _Client) -> tuple[Message, bool]:
        with redirect_stdout(_Stream(client, "stdout")), redirect_stderr(_Stream(client, "stderr")):
            try:
                project = open_project(self.root, self.profile)
                return Done(work.carry_out(project, client)), False
            except BaseException as error:
                return ended_by(error), isinstance(error, EngineError) or not isinstance(error, IcefieldError)


class _Client(dict[str, Any]):
    """The command whose work is done: whoever it names hears of what happens there."""

    def __init__(self, link: socket.socket) -> None:
        super().__init__()
        self._link = link
        self._sending = threading.Lock()
        self._over = False

    def __missing__(self, hearer: str) -> Any:
        return lambda value: self.tell(Told(hearer, value))

    def begin(self) -> None:
        """From now on it may ask to stop."""
        threading.Thread(target=self._listen, daemon=True).start()

    def tell(self, message: Message) -> None:
        """Tells it something, from any thread; if it is dead, the work is being abandoned."""
        with suppress(Gone), self._sending:
            send(self._link, message)

    def end(self, outcome: Message) -> None:
        """Tells it what came of the work."""
        self._over = True
        with self._sending:
            send(self._link, outcome)

    def _listen(self) -> None:
        """What it says is that it was asked to stop; its death means the same."""
        heard = b"?"
        while heard:
            try:
                heard = self._link.recv(1)
            except OSError:
                heard = b""
            if self._over:
                return
            interrupt.ask()


class _Stream(io.TextIOBase):
    """What the project's code prints, printed by the command."""

    def __init__(self, client: _Client, name: str) -> None:
        self._tell = partial(Printed, name)
        self._client = client

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._client.tell(self._tell(text))
        return len(text)
