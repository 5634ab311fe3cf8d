"""What failed, for people elsewhere: without the rows and values that icefield's own messages show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icefield.errors import IcefieldError
from icefield.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterable

    from icefield.engine.checks.results import CheckResult

#: Kinds of checks that count rows.
COUNTING = ("row", "unique", "references", "rejected")


def why_failed(error: str, checks: Iterable[CheckResult] = ()) -> str:
    """The first line of an error; where checks did not hold, these, without examples."""
    bad = [check for check in checks if check.stops]
    if not bad:
        return error.split("\n", 1)[0]
    return f"{code_of(error)} {'; '.join(f'{check.table}: {told(check)}' for check in bad)}".strip()


def raised(error: BaseException) -> str:
    """An error that ended a run, as `ops.runs` has it, in one line."""
    return why_failed(str(error) if isinstance(error, IcefieldError) else f"{type(error).__name__}: {error}")


def told(check: CheckResult) -> str:
    """What came of a check that did not hold."""
    if check.status == "error":
        return f"check `{check.check}` could not be evaluated"
    if check.kind in COUNTING:
        return f"check `{check.check}` failed for {plural(check.failed_rows, 'row')}"
    return f"check `{check.check}` failed"


def code_of(error: str) -> str:
    """The code that an error of icefield's begins with; of others the first word, which is their kind."""
    return error.split(maxsplit=1)[0].rstrip(":") if error.strip() else ""
