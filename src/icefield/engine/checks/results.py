"""Results of checks: plain values, which need no Spark."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icefield.declare import FreshWithin, Reconciles, References, RowCheck, Unique
from icefield.words import lasting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from icefield.declare import Check
    from icefield.graph import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check."""

    table: str
    check: str
    kind: str
    otherwise: str
    status: str
    failed_rows: int = 0
    detail: str = ""
    seconds: float = 0.0
    #: Some of the failing rows, where they stop the run.
    examples: tuple[Mapping[str, Any], ...] = ()

    @property
    def stops(self) -> bool:
        """Whether this result forbids publishing the table."""
        return self.status in ("failed", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a check found: how many rows fail (of so many, where that matters), and what was seen."""

    failed: int = 0
    total: int = 0
    told: str = ""
    examples: tuple[Mapping[str, Any], ...] = ()

    def holds(self, check: Check) -> bool:
        """Whether no more rows fail than may."""
        return not self.failed if check.at_most is None else check.at_most.allows(self.failed, self.total)

    def stops(self, check: Check) -> bool:
        """Whether this forbids publishing."""
        return not self.holds(check) and check.otherwise != "warn"


def freshness(check: FreshWithin, newest_ms: int | None, now_ms: int) -> Found:
    """Judges the newest value of a column by the clock; None: there is no value."""
    if newest_ms is None:
        return Found(failed=1, told="the table has no rows")
    age = dt.timedelta(milliseconds=now_ms - newest_ms)
    return Found(failed=int(age > check.limit), told=f"the newest is {lasting(age)} old")


def result_of(node: Node, check: Check, found: Found, seconds: float, *, error: str = "") -> CheckResult:
    """What a check found, as its result; `error`: it could not be evaluated."""
    holds = found.holds(check)
    status = "error" if error else "passed" if holds else "warned" if check.otherwise == "warn" else "failed"
    limit = f"at most {check.at_most} may fail" if check.at_most is not None and found.failed else ""
    return CheckResult(
        table=node.name,
        check=check.name,
        kind=kind_of(check),
        otherwise=str(check.otherwise),
        status=status,
        failed_rows=found.failed,
        detail=error or "; ".join(filter(None, [found.told, limit])),
        seconds=seconds,
        examples=found.examples,
    )


def kind_of(check: Check) -> str:
    """The kind of a check, as `ops.checks` has it."""
    match check:
        case RowCheck():
            return "row"
        case Unique():
            return "unique"
        case References():
            return "references"
        case FreshWithin():
            return "fresh"
        case Reconciles():
            return "reconciles"
        case _:
            return "table"
