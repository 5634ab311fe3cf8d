"""What holds for every command: errors as one paragraph, exit codes, and Ctrl-C that is answered within seconds."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from icefield.cli import output
from icefield.errors import CheckError, IcefieldError, Interrupted, RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import ParamSpec

    Arguments = ParamSpec("Arguments")

FAILED, COULD_NOT_RUN = 1, 2
#: How long a command may take to put its things in order after Ctrl-C. A run that is cut off here is cleared by the
#: next one, so nothing is lost but the tidiness.
GRACE_SECONDS = 4.0


def guarded(command: Callable[Arguments, int | None]) -> Callable[Arguments, None]:
    """A command whose errors are told as one paragraph and whose return value is the exit code."""

    @functools.wraps(command)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        raise typer.Exit(_code_of(functools.partial(command, *args, **kwargs)))

    return run


def _code_of(command: Callable[[], int | None]) -> int:
    try:
        with _interruptible():
            return command() or 0
    except (typer.Exit, typer.Abort):
        raise
    except BrokenPipeError:  # `icefield sql ... | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        output.note("Interrupted. Nothing was changed.")
        return COULD_NOT_RUN
    except Exception as error:
        output.error(error)
        return exit_code(error)


def exit_code(error: BaseException) -> int:
    """1: what was asked for was tried and failed; 2: it could not be tried."""
    if isinstance(error, RunError | CheckError) and not isinstance(error, Interrupted):
        return FAILED
    return FAILED if isinstance(error, IcefieldError) and error.code == "ICE-000" else COULD_NOT_RUN


@contextmanager
def _interruptible() -> Iterator[None]:
    """Turns Ctrl-C and a polite kill into KeyboardInterrupt, and ends the process if that is not answered in time."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, _interrupt) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if any(isinstance(thread, threading.Timer) and thread.name == "grace" for thread in threading.enumerate()):
        _end()  # asked twice
    timer = threading.Timer(GRACE_SECONDS, _end)
    timer.name, timer.daemon = "grace", True
    timer.start()
    raise KeyboardInterrupt


def _end() -> None:
    output.note("Interrupted. Nothing was published, the lake is as it was; the next run clears what this one left.")
    os._exit(COULD_NOT_RUN)
