"""The command's side: finds the project's engine, starts or replaces it, hands over work and follows it."""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icefield.errors import EngineLost
from icefield.interrupt import asked, tidying
from icefield.run.background.identity import identity
from icefield.run.background.place import Place, place_of
from icefield.run.background.wire import STOP, Broke, Done, Gone, Message, Printed, Raised, Told, ask, receive, send
from icefield.run.events import PhaseStarted
from icefield.run.runner import ABOUT_TO_PUBLISH

if TYPE_CHECKING:
    from icefield.project import Project
    from icefield.run.background.work import Hearers, Work

#: How long an engine that runs may take to answer, and one that is just being started.
ANSWER_SECONDS, START_SECONDS = 1.0, 30.0
#: How often to look whether Ctrl-C was pressed.
_PATIENCE_SECONDS = 0.1


def hand_over(project: Project, work: Work) -> Link | None:
    """Gives work to the project's engine; None where the command had better do it by itself."""
    place = place_of(project.root, project.profile.name)
    if place is None:
        return None
    try:
        with place.reserved() as ours:
            link = _accepting(project, work, place) if ours else None
            if link is not None:
                send(link, work)
                return Link(link, str(place.log))
    except (OSError, Gone):
        pass
    return None


def ask_engine(place: Place, question: dict[str, Any]) -> tuple[socket.socket, dict[str, Any]] | None:
    """Asks the engine of a place something; None where none answers. The caller closes the connection."""
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(ANSWER_SECONDS)
    try:
        link.connect(str(place.socket))
        return link, ask(link, question)
    except (OSError, Gone):
        link.close()
        return None


def _accepting(project: Project, work: Work, place: Place) -> socket.socket | None:
    """A connection to an engine that waits for this work: the one that runs, or else a new one."""
    question = {
        "verb": "work",
        "identity": identity(project.profile),
        "keep_warm": project.profile.keep_warm,
    }
    if (found := ask_engine(place, question)) is not None:
        link, answer = found
        if answer.get("answer") == "ready":
            link.settimeout(None)
            return link
        link.close()
        if answer.get("answer") == "busy":
            return None
    if not _is_worth_an_engine(project, work):
        return None
    return _started(project, place, question)


def _is_worth_an_engine(project: Project, work: Work) -> bool:
    try:
        return work.is_worth_an_engine(project)
    except Exception:  # what is wrong is told by whoever does the work
        return False


def _started(project: Project, place: Place, question: dict[str, Any]) -> socket.socket | None:
    """Starts an engine, whose socket is open before it is."""
    place.socket.unlink(missing_ok=True)  # an engine that does not answer sees that, and ends
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place.socket))
        listening.listen()
        settings = {
            **question,
            "socket": str(place.socket),
            "handle": listening.fileno(),
            "root": str(project.root),
            "profile": project.profile.name,
            "path": sys.path,
        }
        with place.log.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "icefield.run.background"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(listening.fileno(),),
                start_new_session=True,  # neither Ctrl-C nor the end of the terminal is for it
            )
    assert process.stdin is not None
    process.stdin.write(json.dumps(settings).encode())
    process.stdin.close()
    process.returncode = 0  # it outlives this process, which need not wait for it
    link = socket.socket(socket.AF_UNIX)
    try:
        link.settimeout(START_SECONDS)
        link.connect(str(place.socket))
        if ask(link, question).get("answer") == "ready":
            link.settimeout(None)
            return link
    except (OSError, Gone):
        pass
    link.close()
    return None


@dataclass(slots=True)
class Link:
    """A connection to an engine that has taken work over."""

    _socket: socket.socket
    _log: str
    _stopping: bool = False

    def follow(self, work: Work, hearers: Hearers) -> Any:
        """What came of the work; whoever hears of it hears it here, and Ctrl-C reaches the engine."""
        with self._socket, tidying(work.otherwise), ExitStack() as publishing:
            while True:
                match self._next():
                    case Told(hearer, value):
                        if isinstance(value, PhaseStarted):
                            publishing.close()
                            if value.phase == "publish":
                                publishing.enter_context(tidying(ABOUT_TO_PUBLISH))
                        hearers[hearer](value)
                    case Printed(stream, text):
                        (sys.stdout if stream == "stdout" else sys.stderr).write(text)
                    case Done(value):
                        return value
                    case Raised(error):
                        raise error
                    case Broke() as broke:
                        raise broke.error()

    def _next(self) -> Message:
        try:
            while not select.select([self._socket], [], [], _PATIENCE_SECONDS)[0]:
                if asked() and not self._stopping:
                    self._stopping = True
                    self._socket.sendall(STOP)
            message: Message = receive(self._socket)
        except (OSError, Gone):
            if asked():  # the engine had nothing to put in order
                raise KeyboardInterrupt from None
            raise EngineLost(self._log) from None
        return message
