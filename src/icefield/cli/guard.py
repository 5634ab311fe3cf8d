"""What holds for every command: errors as one paragraph, and exit codes."""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING

import typer

from icefield import interrupt
from icefield.cli import output
from icefield.errors import CheckError, IcefieldError, Interrupted, PlanRefused, RunError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ParamSpec

    Arguments = ParamSpec("Arguments")

FAILED, COULD_NOT_RUN = 1, 2


def guarded(command: Callable[Arguments, int | None]) -> Callable[Arguments, None]:
    """A command whose errors are told as one paragraph and whose return value is the exit code."""

    @functools.wraps(command)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        raise typer.Exit(_code_of(functools.partial(command, *args, **kwargs)))

    return run


def _code_of(command: Callable[[], int | None]) -> int:
    try:
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
        if interrupt.asked() and not isinstance(error, Interrupted):  # whatever broke, broke on the way out
            output.note("Interrupted. Nothing was changed.")
            return COULD_NOT_RUN
        output.error(error)
        return exit_code(error)


def exit_code(error: BaseException) -> int:
    """1: what was asked for was tried and failed; 2: it could not be tried."""
    if isinstance(error, RunError | CheckError) and not isinstance(error, Interrupted | PlanRefused):
        return FAILED
    return FAILED if isinstance(error, IcefieldError) and error.code == "ICE-000" else COULD_NOT_RUN
