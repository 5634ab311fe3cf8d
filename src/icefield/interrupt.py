"""Ctrl-C and a polite kill of a command: heard at any moment, answered where it is safe, and within seconds.

A KeyboardInterrupt wherever Python happens to be lands in imports and finalizers, which swallow it or leave half a
module behind. So the signal itself raises nothing. It ends the process at once where nothing has to be put in order
(whatever is on disk is safe from that, as it is from a power cut); elsewhere it is noted, and the work looks at that
in places of its own: `stop_if_asked`.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

EXIT_CODE = 2
#: How long work may take to put its things in order. What is cut off here is cleared by the next run, so nothing is
#: lost but the tidiness.
GRACE_SECONDS = 4.0
_asked = False
_ended_with: int | None = None
#: What is said if there is no time to tidy up, and the exit code then.
_tidying: list[tuple[str, int]] = []


def listen() -> None:
    """From here on this process is ended by Ctrl-C and by a polite kill in the way that is described above."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _hear)


def command_ended(code: int) -> None:
    """There is nothing left to say: Ctrl-C only cuts short what Python does before it exits."""
    global _ended_with
    _ended_with = code


@contextmanager
def tidying(otherwise: str, *, code: int = EXIT_CODE) -> Iterator[None]:
    """Work that wants to put its things in order; `otherwise` is what is said if there is no time for it.

    The exit code is then that of the outermost work: 0 where being ended is how it is meant to end.
    """
    mine = (otherwise, code)
    _tidying.append(mine)
    try:
        yield
    finally:
        _tidying.remove(mine)  # not the last one: another thread may have begun since


def asked() -> bool:
    """Whether the user has asked to stop."""
    return _asked


def ask() -> None:
    """Asks to stop as Ctrl-C does, for a process that works for another one."""
    _hear(signal.SIGINT, None)


def stop_if_asked() -> None:
    """A place where work can safely be left."""
    if _asked:
        raise KeyboardInterrupt


def _hear(_number: int, _frame: FrameType | None) -> None:
    global _asked
    if _asked or not _tidying:  # asked twice, or nothing to do first
        _end()
    _asked = True
    _thread.start_new_thread(_end_later, ())  # threading takes locks, which the work may hold just now


def _end_later() -> None:
    time.sleep(GRACE_SECONDS)
    _end()


def _end() -> NoReturn:
    if _ended_with is None:
        told = f"Interrupted. {_tidying[-1][0] if _tidying else 'Nothing was changed.'}\n"
        # Over what a terminal was drawn on last, whose cursor may be hidden; not by sys.stderr, which may be in use.
        over = "\r\033[K\033[?25h" if sys.stderr.isatty() else ""
        with suppress(OSError):
            os.write(2, (over + told).encode())
    unfinished = _tidying[0][1] if _tidying else EXIT_CODE
    os._exit(unfinished if _ended_with is None else _ended_with)
