"""Errors of a run as its user is to read them: which table, where it is declared, what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icefield.engine.promises.user_errors import is_sparks, line_of, told
from icefield.errors import BadFunction, CheckFailed, DiskFull, IcefieldError, Overtaken, TableFailed
from icefield.failpoint import FailpointError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from icefield.engine.audit import CheckResult


def check_failed(bad: Sequence[CheckResult], table: str, location: str, run: str, *, keep_going: bool) -> CheckFailed:
    """The error for checks that did not hold."""
    failed = "; ".join(f"`{r.check}` ({r.failed_rows} rows{', ' + r.detail if r.detail else ''})" for r in bad)
    look = f'icefield sql --run {run} "SELECT * FROM {table} LIMIT 20"'
    if keep_going:  # what it staged is gone once anything else is published
        look = f"icefield run -s {table}, without --keep-going; its message has the command"
    return CheckFailed(
        f"{table}: {failed} did not hold, so nothing of it was published",
        where=f"{table}, {location}, run {run}",
        remedy=f"look at the rows as the run staged them: {look}",
    )


def as_users_error(error: BaseException, table: str, location: str, log: str, root: Path) -> BaseException:
    """What went wrong while a table was made, in one paragraph that names it."""
    if isinstance(error, IcefieldError | FailpointError | KeyboardInterrupt | Overtaken):
        return error
    if "No space left on device" in str(error) or "Disk quota exceeded" in str(error):
        return DiskFull(
            f"the disk filled up while {table} was being written",
            where=f"{table}, {log}",
            remedy="free some space and run again; what this run wrote is removed then, and the lake is as it was",
        )
    line = line_of(error, root)
    if line and not is_sparks(error):
        return BadFunction(
            f"the function of {table} raised {told(error)}",
            where=f"{table}, {line}",
            remedy="correct that line; it was called with the rows of this run",
        )
    return TableFailed(
        f"{table} could not be made: {told(error)}",
        where=f"{table}, {line or location}",
        remedy=f"correct the function or the data it names; Spark's own log is {log}",
    )
