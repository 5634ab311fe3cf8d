"""Splits rows by their checks: what is kept, what waits in quarantine with its reasons, what the author said to drop.

A predicate fails only where it is FALSE. Row checks come first and every reason is listed; `unique` is decided among
the rows that passed them, and the first arrival stays.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from icefield.declare import Unique
from icefield.engine.origin import ARRIVAL, FATE, IDENTITY, MALFORMED, PROBLEM, RAW, REASONS, ROW
from icefield.engine.repair import discard, mend
from icefield.engine.repeats import Keys, flagged, hashes_of, late, small
from icefield.engine.scratch import store
from icefield.engine.tables import quoted, text
from icefield.errors import RowsLost

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from icefield.declare import Check, RowCheck
    from icefield.engine.intake import Landed
    from icefield.engine.repair import Decided
    from icefield.engine.tables import Published
    from icefield.graph import Node

SPLITTING = ("quarantine", "drop")
_FAILED, _FETCHED = "_icefield_failed", "_icefield_fetched"
_MARKS = (_FAILED, REASONS, FATE)
_BETWEEN = "\x1f"


@dataclass(slots=True)
class Split:
    """Rows of one refresh, split; `bad` are the ones that are not kept, with their reasons and fate.

    `unfetched` tells file and line of those whose bytes are not at hand.
    """

    good: DataFrame
    bad: DataFrame | None = None
    passing: DataFrame | None = None
    unfetched: pa.Table | None = None
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
    old: Published | None,
    scratch: Path,
    decided: Decided | None = None,
) -> Split:
    """Splits the rows that a table's function gave; `old` are the rows already in the table."""
    row_checks, unique_checks = splitting(node)
    marked = _marked(output, row_checks)
    replayed = decided is not None and bool(decided.of("replay"))
    if replayed and decided is not None:
        marked = _mended(marked, decided, _all_hold(row_checks), scratch)
    passing = marked.where(f"NOT {_FAILED}").drop(*_MARKS)
    result = Split(good=passing, passing=passing)
    told = [] if landed is None else [(MALFORMED, "quarantine", landed.malformed)]
    frames = [] if landed is None or landed.problems is None else [_malformed(landed, landed.problems, output)]
    if row_checks or unique_checks:
        untouched = None if replayed or landed is None else landed
        repeats = [_Late(check, n, passing, untouched, old, scratch) for n, check in enumerate(unique_checks)]
        picked = _Picked(marked, repeats, scratch / "picked")
        frames += [picked.failing, *(one.frame for one in picked.late)]
        told += picked.told
        result.unfetched = picked.origins
        result.good = reduce(lambda rows, one: one.taken_out_of(rows), picked.late, passing)
        result.duplicates = sum(one.count for one in picked.late)
    if frames:
        result.bad = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
    if result.bad is not None and decided is not None and decided.of("discard"):
        result.bad = store(discard(result.bad, decided, output.schema, scratch), scratch / "bad").frame
        told = _told(pq.read_table(scratch / "bad", columns=[REASONS, FATE]))
    _count(result, told)
    return result


def kept(node: Node, rows: DataFrame) -> DataFrame:
    """The rows that no check takes out; for tables without a source, where rows stand alone."""
    return rows.where(_all_hold(splitting(node)[0]))


def _all_hold(checks: tuple[RowCheck, ...]) -> str:
    return " AND ".join(f"(({check.predicate}) IS NOT FALSE)" for check in checks) or "true"


def _marked(output: DataFrame, checks: tuple[RowCheck, ...]) -> DataFrame:
    """Every row, with whether it fails a check, which ones, and what becomes of it then."""
    marks = {
        _FAILED: F.expr(f"NOT ({_all_hold(checks)})"),
        REASONS: F.expr(_reasons(checks)),
        FATE: F.expr(_fate(checks)),
    }
    return output.withColumns(marks)


def _mended(marked: DataFrame, decided: Decided, all_hold: str, scratch: Path) -> DataFrame:
    """The same with repairs applied: rows that pass now are no longer marked."""
    failing = store(marked.where(_FAILED), scratch / "waiting").frame
    mended, still = mend(failing, decided, all_hold, scratch)
    sound = {_FAILED: F.lit(False)}  # noqa: FBT003 - Spark's literal
    return marked.where(f"NOT {_FAILED}").unionByName(mended.withColumns(sound)).unionByName(still)


class _Picked:
    """The few rows that fail a check or may repeat a key, found in one pass over all of them."""

    def __init__(self, marked: DataFrame, late: Sequence[_Late], place: Path) -> None:
        suspicious = marked
        for one in late:
            suspicious = one.flag(suspicious)
        wanted = " OR ".join([_FAILED, *(one.flag_name for one in late)])
        rows = store(suspicious.where(wanted).select(*(quoted(c) for c in marked.columns)), place).frame
        has_origin = set(IDENTITY) <= set(rows.columns)
        keys = {column for one in late for column in one.check.columns}
        known = [*IDENTITY, *keys] if has_origin else []
        table = pq.read_table(place, columns=[*dict.fromkeys(known), *_MARKS])
        failed = table[_FAILED].to_numpy()
        self.failing = rows.where(_FAILED).drop(_FAILED)
        self.told = _told(table.filter(pa.array(failed)))
        self.late = []
        alive = ~failed
        gone = [table.filter(pa.array(failed))]
        for one in late:
            found = one.decide(rows.where(f"NOT {_FAILED}").drop(*_MARKS), table, alive)
            if one.count:
                self.late.append(one)
                self.told.append((one.check.name, str(one.check.otherwise), one.count))
                alive[found] = False
                gone.append(table.take(pa.array(found)))
        self.origins = pa.concat_tables(gone).select(list(IDENTITY)) if has_origin else None


class _Late:
    """Rows that came later than another with the same key."""

    def __init__(
        self,
        check: Unique,
        number: int,
        passing: DataFrame,
        landed: Landed | None,
        old: Published | None,
        scratch: Path,
    ) -> None:
        self.check = check
        self.flag_name = f"_icefield_suspect_{number}"
        self.count = 0
        self._folder = scratch / f"unique-{number}"
        keys = Keys(passing, check.columns, self._folder)
        at_hand = None if landed is None else landed.repeated(check.columns, passing)
        if at_hand is not None and landed is not None:
            self._value, self._wanted = F.col(quoted(check.columns[0])).cast("bigint"), at_hand
            count = sum(landed.counts.values())
        else:
            self._value, (count, self._wanted) = keys.hash, keys.repeated()
        self._known = (
            None if old is None else self._seen_before(old, keys, count, landed if at_hand is not None else None)
        )
        if self._known is not None:
            more = hashes_of(self._known) if at_hand is None else self._known[check.columns[0]].to_numpy()
            self._wanted = np.union1d(self._wanted, more)

    def _seen_before(self, old: Published, keys: Keys, count: int, landed: Landed | None) -> pa.Table:
        """The keys that are in the table already; read by Arrow where reading the files saw the new ones."""
        if landed is None:
            return keys.known(old.rows, count)
        (column,) = self.check.columns
        return old.among(column, landed.values(column))

    def flag(self, rows: DataFrame) -> DataFrame:
        """The rows, with a flag where a key may be repeated."""
        return flagged(rows, self._value, self._wanted, self.flag_name, self._folder / "suspects.parquet")

    def decide(self, rows: DataFrame, table: pa.Table, alive: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Which of the rows are late, among those that are not out already; they are looked at in `table`."""
        at = np.flatnonzero(alive)
        found = at[late(table.take(pa.array(at)), self.check.columns, self._known)]
        self.count = len(found)
        place = self._folder / "late.parquet"
        self._folder.mkdir(parents=True, exist_ok=True)
        names = [*IDENTITY, *self.check.columns]
        pq.write_table(table.select(names).take(pa.array(found)), place)
        schema = rows.select(*(quoted(name) for name in names)).schema
        self._rows = small(rows.sparkSession.read.schema(schema).parquet(str(place)), self.count)
        reasons, fate = F.array(F.lit(self.check.name)).alias(REASONS), F.lit(str(self.check.otherwise)).alias(FATE)
        same = rows.join(self._rows, names, "left_semi")
        self.frame = same.select(*(quoted(column) for column in rows.columns), reasons, fate)
        return found

    def taken_out_of(self, rows: DataFrame) -> DataFrame:
        """The rows without the late ones."""
        kept = rows.join(self._rows, [*IDENTITY, *self.check.columns], "left_anti")
        return kept.select(*(quoted(column) for column in rows.columns))


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


def _told(bad: pa.Table) -> list[tuple[str, str, int]]:
    """Reasons (together, where a row has several), fate, and how many rows have them."""
    joined = pc.binary_join(bad[REASONS].cast(pa.list_(pa.string())), _BETWEEN)
    counted = (
        pa.table({"reasons": joined, "fate": bad[FATE]}).group_by(["reasons", "fate"]).aggregate([([], "count_all")])
    )
    return [(row["reasons"], row["fate"], row["count_all"]) for row in counted.to_pylist()]


def _count(result: Split, told: Sequence[tuple[str, str, int]]) -> None:
    """Counts every reason and every fate, from the rows that were set aside."""
    for reasons, fate, count in told:
        if fate == "discard":  # a person's decision, not a check's: it is told in ops.repairs
            result.dropped += count
            continue
        for reason in reasons.split(_BETWEEN):
            # What exactly is wrong with a line is for its row to say.
            name = MALFORMED if reason.startswith(f"{MALFORMED}: ") else reason
            if count:
                result.failures[name] = result.failures.get(name, 0) + count
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
