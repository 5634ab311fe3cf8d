"""What a command and an engine say to one another.

The first question and its answer are JSON, which any version understands. Then, between equal versions of one user,
values as Python pickles them.
"""

from __future__ import annotations

import json
import pickle
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icefield.errors import IcefieldError

if TYPE_CHECKING:
    import socket

_LENGTH = struct.Struct(">Q")
#: A question is short; whoever sends more is no command of ours.
_LONGEST_QUESTION = 1 << 20
#: The one thing that a command says while it waits: it was asked to stop.
STOP = b"s"


class Gone(Exception):
    """The other side is no longer there."""


@dataclass(frozen=True, slots=True)
class Told:
    """Something for one of those who hear of the work."""

    hearer: str
    value: Any


@dataclass(frozen=True, slots=True)
class Printed:
    """What the project's code printed: by `print`, say."""

    stream: str
    text: str


@dataclass(frozen=True, slots=True)
class Done:
    """What came of the work."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The work ended by an error."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Broke:
    """The work ended by an error that is not icefield's: its kind and its text, since it may not travel."""

    kind: str
    text: str

    def error(self) -> Exception:
        """An error that reads like it."""
        made: Exception = type(self.kind, (Exception,), {})(self.text)
        return made


Message = Told | Printed | Done | Raised | Broke


def ended_by(error: BaseException) -> Raised | Broke:
    """An error as it can be sent."""
    if isinstance(error, IcefieldError | KeyboardInterrupt):
        return Raised(error)
    return Broke(type(error).__name__, str(error))


def ask(link: socket.socket, question: dict[str, Any]) -> dict[str, Any]:
    """The answer to a question; what cannot be understood is like nobody there."""
    say(link, question)
    return hear(link)


def say(link: socket.socket, content: dict[str, Any]) -> None:
    """Sends JSON."""
    _send(link, json.dumps(content).encode())


def hear(link: socket.socket) -> dict[str, Any]:
    """Receives JSON."""
    try:
        found = json.loads(_receive(link, _LONGEST_QUESTION))
    except ValueError as problem:
        raise Gone from problem
    if not isinstance(found, dict):
        raise Gone
    return found


def send(link: socket.socket, value: object) -> None:
    """Sends a value."""
    _send(link, pickle.dumps(value))


def receive(link: socket.socket) -> Any:
    """Receives a value, from a process of the same user: whoever can open the socket could do anything anyway."""
    return pickle.loads(_receive(link))


def _send(link: socket.socket, content: bytes) -> None:
    try:
        link.sendall(_LENGTH.pack(len(content)) + content)
    except OSError as problem:
        raise Gone from problem


def _receive(link: socket.socket, longest: int | None = None) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(link, _LENGTH.size))
    if longest is not None and length > longest:
        raise Gone
    return _exactly(link, length)


def _exactly(link: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        try:
            part = link.recv(min(size, 1 << 20))
        except OSError as problem:
            raise Gone from problem
        if not part:
            raise Gone
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
