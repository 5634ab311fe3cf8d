"""Evaluates checks on staged tables, before anyone can see a row.

Counts come from the rows that were written, read back, not from a side channel of the write: they are true also after
task retries, over sorted tables and for empty inputs.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial, reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from icefield.declare import ExpectTable, FreshWithin, Reconciles, References, RowCheck, Unique
from icefield.engine.checks.duplicates import Keys, repeated_rows
from icefield.engine.checks.references import Held, missing
from icefield.engine.checks.results import CheckResult, Found, freshness, kind_of, result_of
from icefield.engine.checks.split import SPLITTING, failing_checks
from icefield.engine.promises.analyse import first_line
from icefield.engine.sql import quoted
from icefield.graph import READABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame

    from icefield.declare import Check
    from icefield.engine.checks.view import TableView
    from icefield.graph import Node


#: Rows of a failed check that are shown.
_SHOWN = 3


def split_results(node: Node, failures: Mapping[str, int]) -> list[CheckResult]:
    """Results of the checks that rows were split by, counted from the rows that were set aside."""
    results = []
    malformed = sum(count for reason, count in failures.items() if reason.startswith("malformed"))
    if node.source is not None:
        results.append(_split_result(node, READABLE, "row", "quarantine", malformed))
    for check in (*node.row_checks, *node.table_checks):
        if check.otherwise in SPLITTING:
            results.append(
                _split_result(node, check.name, kind_of(check), str(check.otherwise), failures.get(check.name, 0))
            )
    return results


def rejected_result(node: Node, rejected: int, kept: int, waiting: Callable[[], DataFrame]) -> list[CheckResult]:
    """Whether no more rows were rejected than the table allows; `waiting` gives those that are in quarantine."""
    limit, total = node.max_rejected, rejected + kept
    if limit is None:
        return []
    fine = limit.allows(rejected, total)
    share = f", {100 * rejected / total:.1f}%" if total else ""
    return [
        CheckResult(
            table=node.name,
            check=node.rejected_check,
            kind="rejected",
            otherwise="fail",
            status="passed" if fine else "failed",
            failed_rows=rejected,
            detail="" if fine else f"{rejected:,} of {total:,} rows were rejected{share}",
            examples=() if fine else _some(waiting()),
        )
    ]


def _split_result(node: Node, name: str, kind: str, otherwise: str, count: int) -> CheckResult:
    done = {"quarantine": "quarantined", "drop": "dropped"}[otherwise]
    status = done if count else "passed"
    return CheckResult(table=node.name, check=name, kind=kind, otherwise=otherwise, status=status, failed_rows=count)


def own_results(
    node: Node, new_rows: TableView, whole: TableView, now_ms: int, scratch: Path, *, by_key: bool = False
) -> list[CheckResult]:
    """Checks that need only the table itself: rows by what this run wrote, the table by all that it holds.

    `by_key`: the new rows are all that the table has of their keys.
    """
    results = _row_results(node, new_rows)
    for number, check in enumerate(node.table_checks):
        if check.otherwise in SPLITTING:
            continue
        match check:
            case Unique():
                # What repeats another row has the same key as it, and the other keys were found unique before.
                strict = check.otherwise == "fail" and check.at_most is None
                among = new_rows if by_key and strict and set(node.keys) <= {*check.columns} else whole
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
    read: Callable[[str], TableView | None],
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
        told = f"{', '.join(absent)} has not been built"
        result = result_of(node, check, Found(), 0.0, error=told)
        return replace(result, status="deferred") if set(absent).isdisjoint(due) else result
    present = {name: seen for name, seen in found.items() if seen is not None}
    place = scratch / f"across-{number}"
    return _timed(node, check, partial(_compare, node, check, present, held or Held(), place))


def cross_checks(node: Node) -> list[References | Reconciles]:
    """The checks of a table that name other tables."""
    return [check for check in node.table_checks if isinstance(check, References | Reconciles)]


# -- each kind: how many rows fail, and what was seen


def _row_results(node: Node, new_rows: TableView) -> list[CheckResult]:
    checks = failing_checks(node)
    if not checks:
        return []
    begun, told = time.monotonic(), new_rows.failing
    if told is not None and new_rows.count is not None:
        return [_row_result(node, c, told[c.name], new_rows.count, new_rows, 0.0) for c in checks]
    rows = new_rows.frame
    counts = [F.count_if(F.expr(f"({check.predicate}) IS FALSE")) for check in checks]
    try:
        found = rows.agg(F.count("*"), *counts).first()
        assert found is not None
        total, *failed = map(int, found)
        seconds = (time.monotonic() - begun) / len(checks)
        return [_row_result(node, c, n, total, new_rows, seconds) for c, n in zip(checks, failed, strict=True)]
    except PySparkException as error:
        return [result_of(node, c, Found(), time.monotonic() - begun, error=first_line(error)) for c in checks]


def _row_result(node: Node, check: RowCheck, failed: int, total: int, rows: TableView, seconds: float) -> CheckResult:
    found = Found(failed=failed, total=total)
    if found.stops(check):
        found = replace(found, examples=_some(rows.frame.where(f"({check.predicate}) IS FALSE")))
    return result_of(node, check, found, seconds)


def _some(rows: DataFrame) -> tuple[dict[str, Any], ...]:
    """A few rows, to be shown."""
    return tuple(row.asDict() for row in rows.limit(_SHOWN).collect())


def _repeated(check: Unique, rows: TableView, scratch: Path) -> Found:
    keys = [quoted(column) for column in check.columns]
    columns = rows.columns(check.columns)
    if columns is not None:
        extra, distinct, example = repeated_rows(columns)
    else:
        _, suspicious = Keys(rows.frame, check.columns, scratch).repeated(in_memory=True)
        if not len(suspicious):
            return Found()
        has_key = " AND ".join(f"{key} IS NOT NULL" for key in keys)
        repeated = rows.frame.where(has_key).groupBy(*keys).count().where("`count` > 1")
        found = repeated.agg(F.sum(F.col("count") - 1), F.count("*"), F.first(F.struct(*keys))).first()
        assert found is not None
        extra, distinct, example = int(found[0] or 0), int(found[1]), tuple(found[2] or ())
    if not extra:
        return Found()
    occur = "key occurs" if distinct == 1 else "keys occur"
    told = Found(
        failed=extra, total=_total(check, rows), told=f"{distinct:,} {occur} more than once, such as {_key(example)}"
    )
    if told.stops(check):
        same = [F.col(key) == F.lit(value) for key, value in zip(keys, example, strict=True)]
        told = replace(told, examples=_some(rows.frame.where(reduce(and_, same))))
    return told


def _key(values: tuple[Any, ...]) -> str:
    return str(values[0]) if len(values) == 1 else f"({', '.join(map(str, values))})"


def _total(check: Check, rows: TableView) -> int:
    """How many rows a check looked at, where its limit is a share of them."""
    if check.at_most is None or check.at_most.percent is None:
        return 0
    return rows.frame.count() if rows.count is None else rows.count


def _aggregate(check: ExpectTable, whole: TableView) -> Found:
    holds = whole.amount(f"boolean({check.aggregate})")
    return Found() if holds else Found(failed=1, told=f"{check.aggregate} is {_spelled(holds)}")


def _spelled(holds: object) -> str:
    return "NULL" if holds is None else str(holds).upper()


def _fresh(check: FreshWithin, whole: DataFrame, now_ms: int) -> Found:
    found = whole.agg(F.unix_millis(F.max(F.col(quoted(check.column)).cast("timestamp")))).first()
    return freshness(check, None if found is None else found[0], now_ms)


def _compare(
    node: Node, check: References | Reconciles, seen: Mapping[str, TableView], held: Held, scratch: Path
) -> Found:
    if isinstance(check, References):
        rows = seen[check.of or node.name]
        count, example = missing(check, rows, seen[check.to], held, scratch)
        found = Found(failed=count, total=_total(check, rows), told=f"such as {example}" if count else "")
        if found.stops(check):
            found = replace(found, examples=_some(rows.frame.where(F.col(quoted(check.column)) == F.lit(example))))
        return found
    amounts = {table: seen[table].amount(amount) for table, amount in check.amounts.items()}
    told = ", ".join(f"{table}: {value}" for table, value in amounts.items())
    first, *rest = amounts.values()
    return Found(failed=int(any(not _agree(first, amount, check.within) for amount in rest)), told=told)


def _agree(one: object, other: object, within: float) -> bool:
    if one is None or other is None:
        return (one or 0) == (other or 0)  # a sum over no rows is NULL, and agrees with 0
    if within == 0:
        return one == other
    return abs(float(one) - float(other)) <= within  # type: ignore[arg-type]


# -- results


def _timed(node: Node, check: Check, evaluate: Callable[[], Found]) -> CheckResult:
    begun = time.monotonic()
    try:
        found = evaluate()
    except PySparkException as error:  # a check that could not run is a failure, never a pass
        return result_of(node, check, Found(), time.monotonic() - begun, error=first_line(error))
    return result_of(node, check, found, time.monotonic() - begun)
