"""What is worth a notification: differences between what a run found and what the lake says of the runs before it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from icefield.adapters.wording import COUNTING, code_of, told, why_failed
from icefield.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from icefield.engine.checks.results import CheckResult
    from icefield.run.events import RunResult, TableOutcome

#: What failed: the code of the error and the tables that failed. The same failure again is no news.
Failure = tuple[str, frozenset[str]]
_BAD, _GOOD = ("warned", "failed", "error"), ("passed", "quarantined", "dropped")
#: What is done to a table where all of its rows are looked at, not only new ones.
_WHOLE = ("build", "rebuild", "refresh")


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One thing to tell: that something began, or that it is over."""

    kind: Literal["failure", "check", "quarantine", "test"]
    status: Literal["firing", "resolved"]
    message: str
    table: str = ""
    check: str = ""

    def as_data(self) -> dict[str, Any]:
        """As JSON, without what is empty."""
        return {key: value for key, value in asdict(self).items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What the lake says of the runs before one: why the last one failed, the last status of checks, and the last share
    of rows that went to quarantine. `recorded`: it tells of the run itself as well.
    """

    recorded: bool = False
    failure: Failure | None = None
    checks: Mapping[tuple[str, str], str] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)


def failure_of(result: RunResult) -> Failure | None:
    """What failed in a run."""
    failed = frozenset(outcome.table for outcome in result.tables if outcome.status == "failed")
    return (code_of(result.error), failed) if result.status == "failed" or failed else None


def failures(result: RunResult, before: Before) -> Iterator[Notice]:
    """That a run failed, unless the one before failed in the same way; or that runs succeed again."""
    failure = failure_of(result)
    if failure is not None and failure != before.failure:
        yield Notice(kind="failure", status="firing", message=_failed(result))
    elif failure is None and before.failure is not None:
        yield Notice(kind="failure", status="resolved", message="runs succeed again")


def _failed(result: RunResult) -> str:
    errors = [result.error] if result.error else [one.error for one in result.tables if one.status == "failed"]
    published = "published the other tables, but failed" if result.status == "published" else "failed"
    return f"run {result.run} {published}: {why_failed(next(iter(errors), ''), result.checks)}"


def turned(results: Iterable[CheckResult], before: Before) -> Iterator[Notice]:
    """Checks that held before and do not now, and the other way round."""
    for result in results:
        was_bad = before.checks.get((result.table, result.check)) in _BAD
        about = {"table": result.table, "check": result.check}
        if result.status in _BAD and not was_bad:
            yield Notice(kind="check", status="firing", message=f"{result.table}: {_bad(result)}", **about)
        elif result.status in _GOOD and was_bad:
            again = f"{result.table}: check `{result.check}` passes again"
            yield Notice(kind="check", status="resolved", message=again, **about)


def _bad(result: CheckResult) -> str:
    if result.status != "warned":
        return told(result)
    rows = f" for {plural(result.failed_rows, 'row')}" if result.kind in COUNTING else ""
    return f"check `{result.check}` warns{rows}"


def quarantined(outcomes: Iterable[TableOutcome], limit: float, before: Before) -> Iterator[Notice]:
    """Tables of which more rows went to quarantine than the share that is allowed for, and no more."""
    for outcome in outcomes:
        kept = outcome.rows_total if outcome.action in _WHOLE else outcome.rows_added
        now = share(outcome.rows_quarantined, outcome.rows_quarantined + outcome.rows_dropped + kept)
        if outcome.status != "published" or now is None:
            continue
        was_above = before.shares.get(outcome.table, 0.0) > limit
        if now > limit and not was_above:
            rows = plural(outcome.rows_quarantined, "row")
            told = f"{outcome.table}: {rows} quarantined, {now:.1%} of this run's rows (limit {limit:.1%})"
            yield Notice(kind="quarantine", status="firing", message=told, table=outcome.table)
        elif now <= limit and was_above:
            told = f"{outcome.table}: {now:.1%} of this run's rows quarantined, no longer above {limit:.1%}"
            yield Notice(kind="quarantine", status="resolved", message=told, table=outcome.table)


def share(aside: int, rows: int) -> float | None:
    """The share of rows in quarantine; None where there were no rows."""
    return aside / rows if rows else None
