"""Splits rows by their checks: what is kept, what waits in quarantine with its reasons, what the author said to drop.

A predicate fails only where it is FALSE. Row checks come first and every reason is listed; `unique` is decided among
the rows that passed them, and the first arrival stays.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from icefield.declare import Unique
from icefield.engine import intake
from icefield.engine.parse import ORIGIN, PROBLEM
from icefield.engine.tables import quoted, text
from icefield.errors import RowsLost

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from icefield.declare import Check, RowCheck
    from icefield.engine.intake import Landed
    from icefield.graph import Node

REASONS, FATE = "_icefield_reasons", "_icefield_fate"
_IDENTITY = ("arrival", "block", "row")
SPLITTING = ("quarantine", "drop")


@dataclass(slots=True)
class Split:
    """Rows of one refresh, split; `bad` is materialised and holds reasons and fate of what is not kept."""

    good: DataFrame
    bad: DataFrame | None = None
    passed: int | None = None
    duplicates: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    quarantined: int = 0
    dropped: int = 0

    def require_nothing_lost(self, node: Node, written: int) -> None:
        """Compares what was written with what passed; a function that gives other rows each time is found out here."""
        if self.passed is not None and written + self.duplicates != self.passed:
            raise RowsLost(
                f"{node.name}: {self.passed} rows passed the checks, but {written} were written"
                f" and {self.duplicates} set aside as duplicates",
                where=str(node.location),
                remedy="the function gives other rows each time it is evaluated: take rand(), uuid() and clocks out of it",
            )


def splitting(node: Node) -> tuple[tuple[RowCheck, ...], tuple[Unique, ...]]:
    """The checks of a table that take rows out of it."""
    rows = tuple(check for check in node.row_checks if check.otherwise in SPLITTING)
    unique = tuple(c for c in node.table_checks if isinstance(c, Unique) and c.otherwise in SPLITTING)
    return rows, unique


def split(node: Node, output: DataFrame, landed: Landed | None, old: DataFrame | None, scratch: Path) -> Split:
    """Splits the rows that a table's function gave; `old` are the rows already in the table."""
    row_checks, unique_checks = splitting(node)
    passing = output.where(_all_hold(row_checks)) if row_checks else output
    result = Split(good=passing)
    losers: list[DataFrame] = []
    if unique_checks:
        for number, check in enumerate(unique_checks):
            found = _duplicates(check, result.good, old, scratch / f"unique-{number}", result)
            if found is not None:
                losers.append(found)
                result.good = _without(result.good, found)
    elif landed is not None or row_checks:
        result.passed = passing.count()
    bad = _bad_rows(node, output, row_checks, losers, landed)
    if bad is not None:
        bad.write.mode("overwrite").parquet(str(scratch / "bad"))
        result.bad = output.sparkSession.read.schema(bad.schema).parquet(str(scratch / "bad"))
        _count(result)
    return result


def _all_hold(checks: tuple[RowCheck, ...]) -> str:
    return " AND ".join(f"(({check.predicate}) IS NOT FALSE)" for check in checks) or "true"


# -- unique


def _duplicates(check: Unique, rows: DataFrame, old: DataFrame | None, scratch: Path, result: Split) -> DataFrame | None:
    """The rows that came later than another with the same key, or None; also counts the rows, in the same pass."""
    keys = [quoted(column) for column in check.columns]
    counted = rows.groupBy(*keys).count()
    has_key = " AND ".join(f"{key} IS NOT NULL" for key in keys)
    suspects = counted.where(f"`count` > 1 AND {has_key}").select(*keys, F.lit(False).alias("_known"))  # noqa: FBT003
    if old is not None:
        fresh = rows.where(has_key).select(*keys).distinct()
        known = old.select(*keys).join(F.broadcast(fresh), list(check.columns), "left_semi").distinct()
        suspects = suspects.unionByName(known.select(*keys, F.lit(True).alias("_known")))  # noqa: FBT003
    suspects.groupBy(*keys).agg(F.max("_known").alias("_known")).write.mode("overwrite").parquet(str(scratch))
    if result.passed is None:
        result.passed = counted.agg(F.sum("count")).first()[0] or 0
    stored = rows.sparkSession.read.parquet(str(scratch))
    if stored.isEmpty():
        return None
    arrival = Window.partitionBy(*keys).orderBy(*(f"{ORIGIN}.{part}" for part in _IDENTITY))
    ranked = rows.join(F.broadcast(stored), list(check.columns)).withColumn("_nth", F.row_number().over(arrival))
    late = ranked.where("_known OR _nth > 1").drop("_known", "_nth").select(*rows.columns)
    reason = F.array(F.lit(check.name)).alias(REASONS)
    late.select("*", reason, F.lit(check.otherwise).alias(FATE)).write.mode("overwrite").parquet(str(scratch) + "-late")
    found = rows.sparkSession.read.parquet(str(scratch) + "-late")
    result.duplicates += found.count()
    return found


def _without(rows: DataFrame, losers: DataFrame) -> DataFrame:
    gone = losers.select(*(F.col(f"{ORIGIN}.{part}").alias(f"_{part}") for part in _IDENTITY))
    same = reduce(lambda a, b: a & b, (F.col(f"{ORIGIN}.{part}") == F.col(f"_{part}") for part in _IDENTITY))
    return rows.join(F.broadcast(gone), same, "left_anti")


# -- what is not kept


def _bad_rows(
    node: Node, output: DataFrame, checks: tuple[RowCheck, ...], losers: list[DataFrame], landed: Landed | None
) -> DataFrame | None:
    frames = list(losers)
    if checks:
        failing = output.where(f"NOT ({_all_hold(checks)})")
        frames.append(failing.select("*", F.expr(_reasons(checks)).alias(REASONS), F.expr(_fate(checks)).alias(FATE)))
    if landed is not None:
        frames.append(_malformed(landed, output))
    if not frames:
        return None
    return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)


def _reasons(checks: tuple[RowCheck, ...]) -> str:
    listed = ", ".join(f"CASE WHEN ({c.predicate}) IS FALSE THEN {text(c.name)} END" for c in checks)
    return f"array_compact(array({listed}))"


def _fate(checks: tuple[RowCheck, ...]) -> str:
    held = " OR ".join(f"({c.predicate}) IS FALSE" for c in checks if c.otherwise == "quarantine") or "false"
    return f"CASE WHEN {held} THEN 'quarantine' ELSE 'drop' END"


def _malformed(landed: Landed, output: DataFrame) -> DataFrame:
    """Lines that never reached the function, with as much of them as could be read."""
    here = [column for column in output.columns if column in landed.problems.columns]
    reasons = F.array(F.col(PROBLEM)).alias(REASONS)
    return landed.problems.select(*(quoted(column) for column in here), reasons, F.lit("quarantine").alias(FATE))


def _count(result: Split) -> None:
    assert result.bad is not None
    reason = F.explode(REASONS).alias("reason")
    for row in result.bad.select(reason, FATE).where(f"reason <> '{intake.HEADER}'").groupBy("reason").count().collect():
        result.failures[row["reason"]] = row["count"]
    rows = result.bad.where(f"{REASONS}[0] <> '{intake.HEADER}'").groupBy(FATE).count().collect()
    fates = {row[FATE]: row["count"] for row in rows}
    result.quarantined, result.dropped = fates.get("quarantine", 0), fates.get("drop", 0)


def quarantine_rows(split: Split, landed: Landed | None, run: str, started_ms: int) -> DataFrame | None:
    """What goes to quarantine: the row, its bytes, why, by which run, and where it came from."""
    if split.bad is None:
        return None
    waiting = split.bad.where(f"{FATE} = 'quarantine'")
    own = [column for column in waiting.columns if not column.startswith("_icefield")]
    has_origin = ORIGIN in waiting.columns
    if landed is not None and has_origin:
        waiting = intake.with_line(waiting, landed.line_offsets(), "_icefield_line")
        waiting = waiting.where(f"NOT ({REASONS}[0] = '{intake.HEADER}' AND _icefield_line = 1)")
        again = F.array(F.lit("malformed: the header line again"))
        waiting = waiting.withColumn(REASONS, F.when(F.col(REASONS)[0] == intake.HEADER, again).otherwise(F.col(REASONS)))
    told = {
        "raw": F.col(f"{ORIGIN}.raw") if has_origin else F.lit(None).cast("binary"),
        "reasons": F.col(REASONS),
        "run": F.lit(run),
        "line": F.col("_icefield_line") if landed is not None and has_origin else F.lit(None).cast("bigint"),
        "arrival": F.col(f"{ORIGIN}.arrival") if has_origin else F.lit(None).cast("bigint"),
        "quarantined_at": F.timestamp_millis(F.lit(started_ms)),
    }
    names = quarantine_names(own)
    return waiting.select(*(quoted(column) for column in own), *(value.alias(names[key]) for key, value in told.items()))


def quarantine_names(own: list[str]) -> dict[str, str]:
    """How quarantine names its own columns; the author's columns keep theirs where both would have the same."""
    told = ("raw", "reasons", "run", "line", "arrival", "quarantined_at")
    taken = {column.lower() for column in own}
    return {name: f"quarantine_{name}" if name in taken else name for name in told}


def failing_checks(node: Node) -> tuple[Check, ...]:
    """The checks of rows that are counted rather than split by: `warn` and `fail`."""
    return tuple(check for check in node.row_checks if check.otherwise not in SPLITTING)
