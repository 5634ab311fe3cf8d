"""Named places where a test can make a process fail: `ICEFIELD_FAILPOINTS="publish.before-commit=kill"`.

Every durable step has one before and one after it, so that "what if it stops right here" is a test and not a worry.
Actions: `raise` (an error), `kill` (SIGKILL to the whole process group), `pause` (SIGSTOP to this process).
A name may carry the table it is about (`stage.written@gold.daily_metrics`); without one, it fires at the first.
"""

from __future__ import annotations

import os
import signal

POINTS = (
    "run.opened",
    "stage.landed",
    "stage.before-write",
    "stage.written",
    "audit.before",
    "audit.after",
    "ops.before",
    "ops.appended",
    "publish.metadata-written",
    "publish.before-commit",
    "publish.before-answer",
    "publish.committed",
    "publish.cleaned",
    "upkeep.compacted",
    "upkeep.published",
    "upkeep.removing",
)


class FailpointError(RuntimeError):
    """Raised by a failpoint that was set to `raise`."""


def failpoint(name: str, table: str = "") -> None:
    """Does nothing, unless the environment asks for a failure here."""
    wanted = os.environ.get("ICEFIELD_FAILPOINTS")
    if wanted:
        _fire(wanted, name, table)


def _fire(wanted: str, name: str, table: str) -> None:
    assert name in POINTS, name
    for entry in wanted.split(","):
        where, _, action = entry.partition("=")
        if where.strip() not in (name, f"{name}@{table}"):
            continue
        match action:
            case "kill":
                os.killpg(os.getpgid(0), signal.SIGKILL)
            case "pause":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "raise":
                raise FailpointError(f"failpoint {where}")
            case _:
                raise ValueError(f"unknown failpoint action {action!r}")
