"""Errors of a run as its user is to read them: which table, where it is declared, what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icefield.engine.promises.user_errors import is_sparks, line_of, told
from icefield.errors import BadFunction, CheckFailed, DiskFull, IcefieldError, Overtaken, TableFailed
from icefield.failpoint import FailpointError
from icefield.graph import quarantine_of
from icefield.words import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from icefield.engine.checks.results import CheckResult


def check_failed(bad: Sequence[CheckResult], table: str, location: str, run: str, *, keep_going: bool) -> CheckFailed:
    """The error for checks that did not hold, with the first rows that fail."""
    look = f'icefield sql --run {run} "SELECT * FROM {_looked_at(table, bad)} LIMIT 20"'
    if keep_going:  # what it staged is gone once anything else is published
        look = f"run `icefield run -s {table}` without --keep-going; its message contains the command"
    return CheckFailed(
        f"{table} was not published: {'; '.join(map(_failed, bad))}",
        where=f"{table}, {location}, run {run}",
        remedy=f"inspect the rows that the run staged: {look}",
        rows=[_shown(row) for result in bad for row in result.examples],
    )


def _failed(result: CheckResult) -> str:
    """What is wrong, in the words of one check."""
    if result.status == "error":
        return f"check `{result.check}` could not be evaluated: {result.detail}"
    detail = f", {result.detail}" if result.detail else ""
    if result.kind in ("row", "unique", "references"):
        return f"check `{result.check}` failed for {plural(result.failed_rows, 'row')}{detail}"
    return f"check `{result.check}` failed{detail}"


def _looked_at(table: str, bad: Sequence[CheckResult]) -> str:
    """The table whose rows tell why: rejected ones wait in quarantine."""
    return quarantine_of(table) if all(result.kind == "rejected" for result in bad) else table


def _shown(row: Mapping[str, object]) -> str:
    """A row in one line: what it holds, without what it does not."""
    told = [f"{name}={_value(value)}" for name, value in row.items() if value is not None]
    return ", ".join(told)


def _value(value: object) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes | bytearray) else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


#: Signs of a value that are shown at most.
_LONGEST = 60


def as_users_error(error: BaseException, table: str, location: str, log: str, root: Path) -> BaseException:
    """What went wrong while a table was made, in one paragraph that names it."""
    if isinstance(error, IcefieldError | FailpointError | KeyboardInterrupt | Overtaken):
        return error
    if "No space left on device" in str(error) or "Disk quota exceeded" in str(error):
        return DiskFull(
            f"the disk filled up while {table} was being written",
            where=f"{table}, {log}",
            remedy="free some space and run again; the lake is unchanged, and the next run removes what this one wrote",
        )
    line = line_of(error, root)
    if line and not is_sparks(error):
        return BadFunction(
            f"the function of {table} raised {told(error)}",
            where=f"{table}, {line}",
            remedy="fix that line; the function was called with the rows of this run",
        )
    return TableFailed(
        f"{table} could not be computed: {told(error)}",
        where=f"{table}, {line or location}",
        remedy=f"fix the function or the data in question; Spark's log is {log}",
    )
