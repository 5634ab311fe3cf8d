"""Splits rows by their checks: what is kept, what waits in quarantine with its reasons, what the author said to drop.

A predicate fails only where it is FALSE. Row checks come first and every reason is listed; `unique` is decided among
the rows that passed them, and the first arrival stays.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Window
from pyspark.sql import functions as F

from icefield.declare import Unique
from icefield.engine.origin import ARRIVAL, FATE, IDENTITY, MALFORMED, PROBLEM, RAW, REASONS, ROW
from icefield.engine.repair import discard, mend
from icefield.engine.repeats import Repeats, small
from icefield.engine.tables import quoted, text
from icefield.errors import RowsLost

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

    from icefield.declare import Check, RowCheck
    from icefield.engine.intake import Landed
    from icefield.graph import Node
    from icefield.graph.state import Repair

SPLITTING = ("quarantine", "drop")
_FETCHED, _IS_KNOWN, _NTH = "_icefield_fetched", "_icefield_known", "_icefield_nth"
#: Where in a table's scratch folder the rows are that are not kept.
BAD = "bad"
_BETWEEN = "\x1f"


@dataclass(slots=True)
class Split:
    """Rows of one refresh, split; `bad` is materialised and holds reasons and fate of what is not kept."""

    good: DataFrame
    bad: DataFrame | None = None
    passing: DataFrame | None = None
    duplicates: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    quarantined: int = 0
    dropped: int = 0

    def require_nothing_lost(self, node: Node, written: int, read: int | None) -> None:
        """Every row that passed the checks was written or set aside as a repeat.

        Where a function neither adds nor drops rows, the rows that were `read` are all accounted for, and nothing is
        left to count. Otherwise the rows that passed are counted: a function that gives other rows each time it is
        evaluated is found out here.
        """
        if self.passing is None or written + self.quarantined + self.dropped == read:
            return
        passed = self.passing.count()
        if written + self.duplicates != passed:
            raise RowsLost(
                f"{node.name}: {passed} rows passed the checks, but {written} were written"
                f" and {self.duplicates} set aside as duplicates",
                where=str(node.location),
                remedy="the function gives other rows each time: take rand(), uuid() and clocks out of it",
            )


def splitting(node: Node) -> tuple[tuple[RowCheck, ...], tuple[Unique, ...]]:
    """The checks of a table that take rows out of it."""
    rows = tuple(check for check in node.row_checks if check.otherwise in SPLITTING)
    unique = tuple(c for c in node.table_checks if isinstance(c, Unique) and c.otherwise in SPLITTING)
    return rows, unique


def split(
    node: Node,
    output: DataFrame,
    landed: Landed | None,
    old: DataFrame | None,
    scratch: Path,
    repairs: Sequence[Repair] = (),
) -> Split:
    """Splits the rows that a table's function gave; `old` are the rows already in the table."""
    row_checks, unique_checks = splitting(node)
    passing = output.where(_all_hold(row_checks)) if row_checks else output
    waiting = _waiting(output, row_checks, landed)
    if waiting is not None and any(repair.kind == "replay" for repair in repairs):
        stored = _stored(waiting, scratch / "waiting")
        mended, waiting = mend(stored, repairs, _all_hold(row_checks))
        passing = passing.unionByName(mended.select(*(quoted(column) for column in output.columns)))
    late, remaining = [], passing
    for number, check in enumerate(unique_checks):
        if (found := _late(check, remaining, old, scratch / f"unique-{number}")) is not None:
            late.append(found)
            remaining = _without(remaining, found)
    result = Split(good=passing, passing=passing)
    frames = [*late, *([] if waiting is None else [waiting])]
    if frames:
        together = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
        result.bad = _stored(discard(together, repairs), scratch / BAD)
        _count(result, scratch / BAD, {check.name for check in unique_checks})
    if result.duplicates:
        assert result.bad is not None
        names = ", ".join(text(check.name) for check in unique_checks)
        losers = result.bad.where(f"{REASONS}[0] IN ({names})")
        result.good = _without(passing, small(losers, result.duplicates))
    return result


def _all_hold(checks: tuple[RowCheck, ...]) -> str:
    return " AND ".join(f"(({check.predicate}) IS NOT FALSE)" for check in checks) or "true"


# -- unique


def _late(check: Unique, rows: DataFrame, old: DataFrame | None, scratch: Path) -> DataFrame | None:
    """The rows that came later than another with the same key; a row with a NULL in its key repeats nothing."""
    keys = [quoted(column) for column in check.columns]
    keyed = rows.where(" AND ".join(f"{key} IS NOT NULL" for key in keys))
    repeats = Repeats(keyed, keys, scratch)
    known, hashes = repeats.known(old) if old is not None else (None, None)
    if not len(repeats.repeated) and (hashes is None or not len(hashes)):
        return None
    suspects = repeats.suspects(hashes).withColumn(_IS_KNOWN, F.lit(False))  # noqa: FBT003 - Spark's literal
    if known is not None and hashes is not None:
        marked = small(known.withColumn(_IS_KNOWN, F.lit(True)), len(hashes))  # noqa: FBT003
        suspects = suspects.drop(_IS_KNOWN).join(marked, list(check.columns), "left")
    nth = F.row_number().over(Window.partitionBy(*keys).orderBy(*IDENTITY))
    late = suspects.withColumn(_NTH, nth).where(f"{_IS_KNOWN} OR {_NTH} > 1")
    reasons, fate = F.array(F.lit(check.name)).alias(REASONS), F.lit(check.otherwise).alias(FATE)
    return late.select(*(quoted(column) for column in rows.columns), reasons, fate)


def _without(rows: DataFrame, losers: DataFrame) -> DataFrame:
    gone = losers.select(*(F.col(part).alias(f"_{part}") for part in IDENTITY))
    same = reduce(lambda a, b: a & b, (F.col(part) == F.col(f"_{part}") for part in IDENTITY))
    return rows.join(gone, same, "left_anti")


# -- what is not kept


def _waiting(output: DataFrame, checks: tuple[RowCheck, ...], landed: Landed | None) -> DataFrame | None:
    """Rows that failed a row check and lines that could not be read, with their reasons."""
    frames = []
    if checks:
        failing = output.where(f"NOT ({_all_hold(checks)})")
        frames.append(failing.select("*", F.expr(_reasons(checks)).alias(REASONS), F.expr(_fate(checks)).alias(FATE)))
    if landed is not None and landed.problems is not None:
        frames.append(_malformed(landed, landed.problems, output))
    if not frames:
        return None
    waiting = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
    given = [column for column in output.columns if column not in waiting.columns]
    return waiting.withColumns({column: F.lit(None).cast(output.schema[column].dataType) for column in given})


def _stored(frame: DataFrame, place: Path) -> DataFrame:
    """The frame, evaluated once."""
    frame.write.mode("overwrite").parquet(str(place))
    return frame.sparkSession.read.schema(frame.schema).parquet(str(place))


def _reasons(checks: tuple[RowCheck, ...]) -> str:
    listed = ", ".join(f"CASE WHEN ({c.predicate}) IS FALSE THEN {text(c.name)} END" for c in checks)
    return f"array_compact(array({listed}))"


def _fate(checks: tuple[RowCheck, ...]) -> str:
    held = " OR ".join(f"({c.predicate}) IS FALSE" for c in checks if c.otherwise == "quarantine") or "false"
    return f"CASE WHEN {held} THEN 'quarantine' ELSE 'drop' END"


def _malformed(landed: Landed, problems: DataFrame, output: DataFrame) -> DataFrame:
    """Lines that never reached the function; a line that cannot be read has no values, only its bytes."""
    known = [*IDENTITY, RAW, *(name for name in landed.provenance if name in output.columns)]
    reasons = F.array(F.col(PROBLEM)).alias(REASONS)
    return problems.select(*(quoted(name) for name in known), reasons, F.lit("quarantine").alias(FATE))


def _count(result: Split, place: Path, unique: set[str]) -> None:
    """Counts every reason and every fate, from the rows that were set aside."""
    stored = pq.read_table(place, columns=[REASONS, FATE])
    joined = pa.table({"reasons": pc.binary_join(stored[REASONS].cast(pa.list_(pa.string())), _BETWEEN), "fate": stored[FATE]})
    for row in joined.group_by(["reasons", "fate"]).aggregate([([], "count_all")]).to_pylist():
        # What exactly is wrong with a line is for its row to say.
        reasons = [MALFORMED if r.startswith(f"{MALFORMED}: ") else r for r in row["reasons"].split(_BETWEEN)]
        fate, count = row["fate"], row["count_all"]
        if reasons[0] in unique:
            result.duplicates += count
        if fate == "discard":  # a person's decision, not a check's: it is told in ops.repairs
            result.dropped += count
            continue
        for reason in reasons:
            result.failures[reason] = result.failures.get(reason, 0) + count
        if fate == "quarantine":
            result.quarantined += count
        else:
            result.dropped += count


def quarantine_rows(split: Split, fetched: DataFrame | None, run: str, started_ms: int) -> DataFrame | None:
    """What goes to quarantine: the row, its bytes (`fetched` or at hand), why, by which run, and its origin."""
    if split.bad is None:
        return None
    waiting = split.bad.where(f"{FATE} = 'quarantine'")
    own = [column for column in waiting.columns if not column.startswith("_icefield")]
    has_origin = set(IDENTITY) <= set(waiting.columns)
    raw = F.col(RAW) if RAW in waiting.columns else F.lit(None).cast("binary")
    if fetched is not None:
        waiting = waiting.join(fetched.withColumnRenamed(RAW, _FETCHED), list(IDENTITY), "left")
        raw = F.coalesce(raw, F.col(_FETCHED))
    told = {
        "raw": raw,
        "reasons": F.col(REASONS),
        "run": F.lit(run),
        "line": F.col(ROW) if has_origin else F.lit(None).cast("bigint"),
        "arrival": F.col(ARRIVAL) if has_origin else F.lit(None).cast("bigint"),
        "quarantined_at": F.timestamp_millis(F.lit(started_ms)),
    }
    names = quarantine_names(own)
    return waiting.select(
        *(quoted(column) for column in own), *(value.alias(names[key]) for key, value in told.items())
    )


def quarantine_names(own: list[str]) -> dict[str, str]:
    """How quarantine names its own columns; the author's columns keep theirs where both would have the same."""
    told = ("raw", "reasons", "run", "line", "arrival", "quarantined_at")
    taken = {column.lower() for column in own}
    return {name: f"quarantine_{name}" if name in taken else name for name in told}


def failing_checks(node: Node) -> tuple[Check, ...]:
    """The checks of rows that are counted rather than split by: `warn` and `fail`."""
    return tuple(check for check in node.row_checks if check.otherwise not in SPLITTING)
