"""Errors of a run as its user is to read them: which table, where it is declared, what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icefield.errors import CheckFailed, DiskFull, IcefieldError, Overtaken, TableFailed
from icefield.failpoint import FailpointError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from icefield.engine.audit import CheckResult


def check_failed(bad: Sequence[CheckResult], table: str, location: str, run: str) -> CheckFailed:
    """The error for checks that did not hold."""
    told = "; ".join(f"`{r.check}` ({r.failed_rows} rows{', ' + r.detail if r.detail else ''})" for r in bad)
    return CheckFailed(
        f"{table}: {told} did not hold, so nothing of it was published",
        where=f"{table}, {location}, run {run}",
        remedy=f'look at the rows as the run staged them: icefield sql --run {run} "SELECT * FROM {table} LIMIT 20"',
    )


def as_users_error(error: BaseException, table: str, location: str, log: str) -> BaseException:
    """What went wrong while a table was made, in one paragraph that names it."""
    if isinstance(error, IcefieldError | FailpointError | KeyboardInterrupt | Overtaken):
        return error
    if "No space left on device" in str(error) or "Disk quota exceeded" in str(error):
        return DiskFull(
            f"the disk filled up while {table} was being written",
            where=f"{table}, {log}",
            remedy="free some space and run again; what this run wrote is removed then, and the lake is as it was",
        )
    lines = [line.strip() for line in str(error).strip().splitlines()] or [type(error).__name__]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    told = causes[-1] if causes and lines[0].startswith("An error occurred while calling") else lines[0]
    return TableFailed(
        f"{table} could not be made: {told}",
        where=f"{table}, {location}",
        remedy=f"correct the function or the data it names; Spark's own log is {log}",
    )
