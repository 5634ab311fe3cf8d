"""Evaluates checks on staged tables, before anyone can see a row.

Counts come from the rows that were written, read back, not from a side channel of the write: they are true also after
task retries, over sorted tables and for empty inputs.
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from icefield.declare import ExpectTable, FreshWithin, Reconciles, References, RowCheck, Unique
from icefield.engine.promises.analyse import first_line
from icefield.engine.quality import SPLITTING, failing_checks
from icefield.engine.references import Held, missing
from icefield.engine.repeats import Keys, repeated_rows
from icefield.engine.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame

    from icefield.declare import Check
    from icefield.engine.seen import Seen
    from icefield.graph import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What came of one check."""

    table: str
    check: str
    kind: str
    otherwise: str
    status: str
    failed_rows: int = 0
    detail: str = ""
    seconds: float = 0.0

    @property
    def stops(self) -> bool:
        """Whether this result forbids publishing the table."""
        return self.status in ("failed", "error")


def split_results(node: Node, failures: Mapping[str, int]) -> list[CheckResult]:
    """Results of the checks that rows were split by, counted from the rows that were set aside."""
    results = []
    malformed = sum(count for reason, count in failures.items() if reason.startswith("malformed"))
    if node.source is not None:
        results.append(_split_result(node, "every line can be read", "row", "quarantine", malformed))
    for check in (*node.row_checks, *node.table_checks):
        if check.otherwise in SPLITTING:
            results.append(
                _split_result(node, check.name, _kind(check), str(check.otherwise), failures.get(check.name, 0))
            )
    return results


def _split_result(node: Node, name: str, kind: str, otherwise: str, count: int) -> CheckResult:
    done = {"quarantine": "quarantined", "drop": "dropped"}[otherwise]
    status = done if count else "passed"
    return CheckResult(table=node.name, check=name, kind=kind, otherwise=otherwise, status=status, failed_rows=count)


def own_results(
    node: Node, new_rows: Seen, whole: Seen, now_ms: int, scratch: Path, *, by_key: bool = False
) -> list[CheckResult]:
    """Checks that need only the table itself: rows by what this run wrote, the table by all that it holds.

    `by_key`: the new rows are all that the table has of their keys.
    """
    results = _row_results(node, new_rows.frame)
    for number, check in enumerate(node.table_checks):
        if check.otherwise in SPLITTING:
            continue
        match check:
            case Unique():
                # What repeats another row has the same key as it, and the other keys were found unique before.
                among = (
                    new_rows if by_key and check.otherwise == "fail" and set(node.keys) <= {*check.columns} else whole
                )
                results.append(_timed(node, check, partial(_repeated, check, among, scratch / f"check-{number}")))
            case ExpectTable():
                results.append(_timed(node, check, partial(_aggregate, check, whole)))
            case FreshWithin():
                results.append(_timed(node, check, partial(_fresh, check, whole.frame, now_ms)))
            case _:
                pass
    return results


def cross_result(
    node: Node,
    number: int,
    read: Callable[[str], Seen | None],
    scratch: Path,
    held: Held | None = None,
    due: Collection[str] = (),
) -> CheckResult:
    """One of the checks that compare tables; deferred, which is no pass, where one was never built.

    `due` are tables that should be there: without one of these the check could not be carried out.
    """
    check = cross_checks(node)[number]
    found = {name: read(name) for name in (*check.named_tables, node.name)}
    absent = [name for name, seen in found.items() if seen is None]
    if absent:
        status = "deferred" if set(absent).isdisjoint(due) else "error"
        return _result(node, check, status, 0, f"{', '.join(absent)} is not there", 0.0)
    present = {name: seen for name, seen in found.items() if seen is not None}
    place = scratch / f"across-{number}"
    return _timed(node, check, partial(_compare, node, check, present, held or Held(), place))


def cross_checks(node: Node) -> list[References | Reconciles]:
    """The checks of a table that name other tables."""
    return [check for check in node.table_checks if isinstance(check, References | Reconciles)]


# -- each kind: how many rows fail, and what was seen


def _row_results(node: Node, rows: DataFrame) -> list[CheckResult]:
    checks = failing_checks(node)
    if not checks:
        return []
    begun = time.monotonic()
    counts = [F.count_if(F.expr(f"({check.predicate}) IS FALSE")) for check in checks if isinstance(check, RowCheck)]
    try:
        found = rows.agg(*counts).first()
    except PySparkException as error:
        return [_result(node, check, "error", 0, first_line(error), time.monotonic() - begun) for check in checks]
    assert found is not None
    seconds = (time.monotonic() - begun) / len(checks)
    return [_result(node, c, _status(c, bool(n)), int(n), "", seconds) for c, n in zip(checks, found, strict=True)]


def _repeated(check: Unique, rows: Seen, scratch: Path) -> tuple[int, str]:
    keys = [quoted(column) for column in check.columns]
    columns = rows.columns(check.columns)
    if columns is not None:
        extra, distinct, example = repeated_rows(columns)
    else:
        _, suspicious = Keys(rows.frame, check.columns, scratch).repeated()
        if not len(suspicious):
            return 0, ""
        has_key = " AND ".join(f"{key} IS NOT NULL" for key in keys)
        repeated = rows.frame.where(has_key).groupBy(*keys).count().where("`count` > 1")
        found = repeated.agg(F.sum(F.col("count") - 1), F.count("*"), F.first(F.struct(*keys))).first()
        assert found is not None
        extra, distinct, example = int(found[0] or 0), int(found[1]), tuple(found[2] or ())
    return (extra, f"{distinct} keys occur more than once, such as {example}") if extra else (0, "")


def _aggregate(check: ExpectTable, whole: Seen) -> tuple[int, str]:
    holds = whole.amount(f"boolean({check.aggregate})")
    return (0, "") if holds else (1, f"{check.aggregate} is {holds}")


def _fresh(check: FreshWithin, whole: DataFrame, now_ms: int) -> tuple[int, str]:
    found = whole.agg(F.unix_millis(F.max(F.col(quoted(check.column)).cast("timestamp")))).first()
    newest = None if found is None else found[0]
    if newest is None:
        return 1, "the table has no rows"
    age = dt.timedelta(milliseconds=now_ms - newest)
    return int(age > check.limit), f"the newest is {age} old"


def _compare(
    node: Node, check: References | Reconciles, seen: Mapping[str, Seen], held: Held, scratch: Path
) -> tuple[int, str]:
    if isinstance(check, References):
        count, example = missing(check, seen[check.of or node.name], seen[check.to], held, scratch)
        return count, f"such as {example}" if count else ""
    found = {table: seen[table].amount(amount) for table, amount in check.amounts.items()}
    told = ", ".join(f"{table}: {value}" for table, value in found.items())
    amounts = list(found.values())
    apart = any(not _agree(amounts[0], amount, check.within) for amount in amounts[1:])
    return int(apart), told


def _agree(one: object, other: object, within: float) -> bool:
    if one is None or other is None:
        return (one or 0) == (other or 0)  # a sum over no rows is NULL, and agrees with 0
    if within == 0:
        return one == other
    return abs(float(one) - float(other)) <= within  # type: ignore[arg-type]


# -- results


def _timed(node: Node, check: Check, evaluate: Callable[[], tuple[int, str]]) -> CheckResult:
    begun = time.monotonic()
    try:
        failed, told = evaluate()
    except PySparkException as error:  # a check that could not run is a failure, never a pass
        return _result(node, check, "error", 0, first_line(error), time.monotonic() - begun)
    return _result(node, check, _status(check, bool(failed)), failed, told, time.monotonic() - begun)


def _status(check: Check, failed: bool) -> str:  # noqa: FBT001 - private, one call shape
    if not failed:
        return "passed"
    return "warned" if check.otherwise == "warn" else "failed"


def _result(node: Node, check: Check, status: str, failed: int, told: str, seconds: float) -> CheckResult:
    return CheckResult(
        table=node.name,
        check=check.name,
        kind=_kind(check),
        otherwise=str(check.otherwise),
        status=status,
        failed_rows=failed,
        detail=told,
        seconds=seconds,
    )


def _kind(check: Check) -> str:
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


def stopping(results: Iterable[CheckResult]) -> list[CheckResult]:
    """The results that forbid publishing."""
    return [result for result in results if result.stops]
