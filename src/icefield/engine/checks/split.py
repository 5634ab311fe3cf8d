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
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from icefield.declare import Unique
from icefield.engine import limits
from icefield.engine.batch import collected, evaluate
from icefield.engine.checks.duplicates import Hashes, Keys, flagged, late, marked_late, small
from icefield.engine.checks.rejects import FAILING, KEPT, Judged, JudgedBySpark, Verdict, count_told, gather
from icefield.engine.folders import Folder
from icefield.engine.origin import FATE, IDENTITY, REASONS, short_reason, visible
from icefield.engine.promises.spark_plans import hands_through
from icefield.engine.quarantine.repair import discard, mend
from icefield.engine.sql import quoted, text
from icefield.engine.tables import FEW_ROWS
from icefield.errors import RowsLost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame

    from icefield.declare import RowCheck
    from icefield.engine.batch import Batch, InMemory
    from icefield.engine.intake.port import Known, Landed
    from icefield.engine.quarantine.repair import Decided, Mended
    from icefield.engine.versions import Published
    from icefield.graph import Node

SPLITTING = ("quarantine", "drop")
_FAILED = "_icefield_failed"
_MARKS = (_FAILED, REASONS, FATE)
#: Which `unique` check a row repeats a key of, where Spark decides.
_LATE, _IS_LATE = "_icefield_late", "_icefield_is_late"


@dataclass(slots=True)
class Split:
    """Rows of one refresh, split; `bad` are the ones that are not kept, with their bytes, reasons and fate.

    `stored` are the good ones where they lie in a scratch folder already.
    """

    good: DataFrame
    bad: Batch | None = None
    stored: Batch | None = None
    #: Counts the rows that passed the checks of rows.
    passed: Callable[[], int] | None = None
    duplicates: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    quarantined: int = 0
    dropped: int = 0
    #: Rows that checks took out: those in quarantine and those dropped, without what people let go.
    rejected: int = 0
    #: Repairs that were recorded, and do not fit any more.
    unfit: frozenset[int] = frozenset()
    #: What came of repairs, where there were any.
    mended: Mended | None = None
    #: How many of the good rows fail each check that warns or fails, where the query that evaluated them told.
    failing: Mapping[str, int] | None = None

    def require_nothing_lost(self, node: Node, written: int, read: int | None) -> None:
        """Every row that passed the checks was written or set aside as a repeat.

        Where a function neither adds nor drops rows, the rows that were `read` are all accounted for, and nothing is
        left to count. Otherwise the rows that passed are counted: a function that gives other rows each time it is
        evaluated is found out here.
        """
        if self.passed is None or written + self.quarantined + self.dropped == read:
            return
        passed = self.passed()
        if written + self.duplicates != passed:
            raise RowsLost(
                f"{node.name}: {passed} rows passed the checks, but {written} were written"
                f" and {self.duplicates} rejected as duplicates",
                where=str(node.location),
                remedy="the function returns different rows each time: remove rand(), uuid() and current times from it",
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
    code = f"{node.fingerprint} {node.checks_fingerprint}"
    marked = _marked(output, row_checks)
    few = landed is not None and landed.count <= min(FEW_ROWS, limits.LIMITS.driver_rejects)
    replayed = decided is not None and bool(decided.of("replay"))
    mended = None
    if replayed and decided is not None:
        failing = evaluate(marked.where(_FAILED), scratch / "waiting").frame
        mended = mend(failing, decided, all_hold(row_checks), reasons_of(row_checks), scratch)
        marked = _with_mended(marked, mended)
    if few:
        marked = marked.withColumns(_flags(node))  # of the values that rows have after their repair
    passing = marked.where(f"NOT {_FAILED}").drop(*_MARKS, *(_flags(node) if few else ()))
    result = Split(good=passing, passed=passing.count, unfit=decided.unfit if decided else frozenset())
    result.mended = mended
    picked = None
    if row_checks or unique_checks or few:
        untouched = None if replayed or landed is None else landed
        repeats = [
            _Late(check, n, passing, untouched, old, scratch, few=few, code=code)
            for n, check in enumerate(unique_checks)
        ]
        picked = _picked(marked, repeats, scratch / "picked", everything=few)
        result.duplicates = sum(one.count for one in repeats)
        if few and isinstance(picked, Judged):  # all of them are evaluated, and only once
            result.stored = picked.kept(visible(passing), scratch / "kept")
            result.good, result.passed = result.stored.frame, picked.passed
            result.failing = failing_counts(node, pa.concat_tables(picked.kept_parts(list(_flags(node)))))
        else:
            result.good = reduce(lambda rows, one: one.taken_out_of(rows), repeats, passing)
    if (picked and picked.gone) or (landed and landed.malformed):
        result.bad = gather(output.sparkSession, output.schema, picked, landed, scratch / "aside")
        if decided is not None and decided.of("discard"):
            result.bad = evaluate(discard(result.bad.frame, decided, output.schema, scratch), scratch / "bad")
        _count(result, count_told(result.bad))
    return result


def kept(node: Node, rows: DataFrame) -> DataFrame:
    """The rows that no check takes out; for tables without a source, where rows stand alone."""
    return rows.where(all_hold(splitting(node)[0]))


def all_hold(checks: tuple[RowCheck, ...]) -> str:
    return " AND ".join(f"(({check.predicate}) IS NOT FALSE)" for check in checks) or "true"


def _marked(output: DataFrame, checks: tuple[RowCheck, ...]) -> DataFrame:
    """Every row, with whether it fails a check, which ones, and what becomes of it then."""
    marks = {
        _FAILED: F.expr(f"NOT ({all_hold(checks)})"),
        REASONS: F.expr(reasons_of(checks)),
        FATE: F.expr(_fate(checks)),
    }
    return output.withColumns(marks)


def _with_mended(marked: DataFrame, mended: Mended) -> DataFrame:
    """The same with repairs applied: rows that pass now are no longer marked."""
    sound = {_FAILED: F.lit(False)}  # noqa: FBT003 - Spark's literal
    fine = marked.where(f"NOT {_FAILED}")
    return fine.unionByName(mended.rows.withColumns(sound)).unionByName(mended.waiting)


def _at_hand(landed: Landed, check: Unique, output: DataFrame, code: str) -> Known | None:
    """What reading saw of the keys of a check, where the function hands them through."""
    if len(check.columns) != 1 or (known := landed.known(check.columns[0])) is None:
        return None
    return known if hands_through(landed.rows, output, check.columns[0], code) else None


def _picked(marked: DataFrame, late: Sequence[_Late], place: Path, *, everything: bool) -> Judged | JudgedBySpark:
    """The few rows that fail a check or may repeat a key, found in one pass over all of them, and what was decided.

    `everything`: where all rows are few, all of them. Where those that are picked are many, Spark decides.
    """
    rows = marked
    if not everything:
        for one in late:
            rows = one.flag(rows)
        rows = rows.where(" OR ".join([_FAILED, *(one.flag_name for one in late)]))
    stored = evaluate(rows.select(*(quoted(column) for column in marked.columns)), place)
    if stored.count() > limits.LIMITS.driver_rejects:
        return _judged_by_spark(stored, late, place.with_name("judged"))
    keys = {column for one in late for column in one.check.columns}
    table = stored.arrow([_FAILED, *(dict.fromkeys([*IDENTITY, *keys]) if late else [])])
    decisions = np.where(table[_FAILED].to_numpy(), FAILING, KEPT)
    for number, one in enumerate(late):
        decisions[one.decide(marked.schema, table, decisions == KEPT)] = number
    return Judged(stored, decisions, [one.verdict for one in late])


def _judged_by_spark(picked: Batch, late: Sequence[_Late], place: Path) -> JudgedBySpark:
    rows = picked.frame.withColumn(_LATE, F.lit(None).cast("int"))
    for number, one in enumerate(late):
        rows = one.mark(rows, ~F.col(_FAILED) & F.col(_LATE).isNull(), number)
    aside = evaluate(rows.where(f"{_FAILED} OR {_LATE} IS NOT NULL"), place)
    counts = {row[_LATE]: row["count"] for row in aside.frame.groupBy(_LATE).count().collect()} if late else {}
    for number, one in enumerate(late):
        one.found(aside.frame.where(F.col(_LATE) == number), counts.get(number, 0))
    return JudgedBySpark(aside)


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
        *,
        few: bool,
        code: str,
    ) -> None:
        self.check = check
        self.verdict = Verdict(check.name, str(check.otherwise))
        self.flag_name = f"_icefield_suspect_{number}"
        self.count = 0
        self._folder, self._spark = scratch / f"unique-{number}", passing.sparkSession
        keys = Keys(passing, check.columns, self._folder)
        looked_up = landed is not None and (old is None or old.can_be_read)
        at_hand = _at_hand(landed, check, passing, code) if landed is not None and looked_up else None
        if at_hand is not None and landed is not None:
            self._value, self._wanted = F.col(quoted(check.columns[0])).cast("bigint"), Hashes(at_hand.repeated)
            count = landed.count
        elif few:  # whoever repeats another is found among all of them
            self._value, self._wanted, count = keys.hash, Hashes(), FEW_ROWS
        else:
            on_driver = landed is None or landed.on_driver
            self._value, (count, self._wanted) = keys.hash, keys.repeated(in_memory=on_driver)
        #: Where the keys are that are in the table already.
        self._known = None if old is None else self._seen_before(old, keys, count, at_hand)
        if self._known is not None:
            read = at_hand is not None
            seen = Hashes(self._known_keys()[check.columns[0]].to_numpy()) if read else Hashes.found(self._known)
            self._wanted = self._wanted.plus(seen)

    def _seen_before(self, old: Published, keys: Keys, count: int, at_hand: Known | None) -> Path:
        """The keys that are in the table already; read by Arrow where reading the files saw the new ones."""
        if at_hand is None:
            return keys.known(old.rows, count)
        (column,) = self.check.columns
        place = self._folder / "known"
        place.mkdir(parents=True, exist_ok=True)
        pq.write_table(old.among(column, at_hand.spans, at_hand.values), place / "0.parquet")
        return place

    def _known_keys(self) -> pa.Table:
        assert self._known is not None
        return pq.read_table(self._known, columns=list(self.check.columns))

    def flag(self, rows: DataFrame) -> DataFrame:
        """The rows, with a flag where a key may be repeated."""
        return flagged(rows, self._value, self._wanted, self.flag_name, self._folder / "suspects.parquet")

    def decide(self, schema: StructType, table: pa.Table, alive: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Which of the rows are late, among those that are not out already; they are looked at in `table`."""
        at = np.flatnonzero(alive)
        known = None if self._known is None else self._known_keys()
        found = at[late(table.take(pa.array(at)), self.check.columns, known)]
        gone = table.select([*IDENTITY, *self.check.columns]).take(pa.array(found))
        if len(found):
            self._folder.mkdir(parents=True, exist_ok=True)
            place = self._folder / "late.parquet"
            pq.write_table(gone, place)
            own = StructType([schema[name] for name in gone.column_names])
            self.found(self._spark.read.schema(own).parquet(str(place)), len(found))
        return found

    def mark(self, rows: DataFrame, alive: Column, number: int) -> DataFrame:
        """The same by Spark: all rows, the late ones with the number and the verdict of this check."""
        names = list(self.check.columns)
        known = None
        if self._known is not None:
            kinds = {name: rows.schema[name].dataType for name in names}
            stored = self._spark.read.parquet(str(self._known))
            typed = stored.select(*(F.col(quoted(name)).cast(kinds[name]).alias(name) for name in names))
            known = small(typed, Folder(self._known).count())
        flagged = marked_late(rows, alive, names, known, _IS_LATE)
        told = {
            _LATE: F.when(F.col(_IS_LATE), number).otherwise(F.col(_LATE)),
            REASONS: F.when(F.col(_IS_LATE), F.array(F.lit(self.verdict.reason))).otherwise(F.col(REASONS)),
            FATE: F.when(F.col(_IS_LATE), F.lit(self.verdict.fate)).otherwise(F.col(FATE)),
        }
        return flagged.withColumns(told).drop(_IS_LATE)

    def found(self, rows: DataFrame, count: int) -> None:
        """Remembers which rows are late."""
        self._gone, self.count = rows.select(*IDENTITY, *map(quoted, self.check.columns)), count

    def taken_out_of(self, rows: DataFrame) -> DataFrame:
        """The rows without the late ones."""
        if not self.count:
            return rows
        kept = rows.join(small(self._gone, self.count), self._gone.columns, "left_anti")
        return kept.select(*(quoted(column) for column in rows.columns))


def reasons_of(checks: tuple[RowCheck, ...]) -> str:
    listed = ", ".join(f"CASE WHEN ({c.predicate}) IS FALSE THEN {text(c.name)} END" for c in checks)
    return f"CAST(array_compact(array({listed})) AS ARRAY<STRING>)"


def _fate(checks: tuple[RowCheck, ...]) -> str:
    held = " OR ".join(f"({c.predicate}) IS FALSE" for c in checks if c.otherwise == "quarantine") or "false"
    return f"CASE WHEN {held} THEN 'quarantine' ELSE 'drop' END"


def _count(result: Split, told: Sequence[tuple[list[str], str, int]]) -> None:
    """Counts every reason and every fate, from the rows that were set aside."""
    for reasons, fate, count in told:
        if fate == "discard":  # a person's decision, not a check's: it is told in ops.repairs
            result.dropped += count
            continue
        result.rejected += count
        for name in map(short_reason, reasons):
            if count:
                result.failures[name] = result.failures.get(name, 0) + count
        if fate == "quarantine":
            result.quarantined += count
        else:
            result.dropped += count


def _flags(node: Node) -> dict[str, Column]:
    """Whether a row fails each of the checks that are counted."""
    checks = enumerate(failing_checks(node))
    return {f"_icefield_fails_{n}": F.expr(f"({check.predicate}) IS FALSE") for n, check in checks}


def with_flags(node: Node, rows: DataFrame, *, appended: bool = False) -> InMemory | None:
    """Rows in memory, each with the checks that it fails; None where they are too large.

    A check that cannot be evaluated is left out here, and fails where it is looked at.
    """
    flags = _flags(node)
    try:
        return collected(rows.withColumns(flags) if flags else rows, appended=appended)
    except PySparkException:
        if not flags:
            raise
        return collected(rows, appended=appended)


def failing_counts(node: Node, rows: pa.Table) -> Mapping[str, int] | None:
    """How many rows fail each of the checks that are counted; None where their flags are not there."""
    names = dict(zip(_flags(node), (check.name for check in failing_checks(node)), strict=True))
    if not set(names) <= set(rows.column_names):
        return None
    return {name: pc.sum(rows[flag]).as_py() or 0 for flag, name in names.items()}


def failing_checks(node: Node) -> tuple[RowCheck, ...]:
    """The checks of rows that are counted rather than split by: `warn` and `fail`."""
    return tuple(check for check in node.row_checks if check.otherwise not in SPLITTING)
