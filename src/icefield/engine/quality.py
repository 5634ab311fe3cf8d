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
import pyarrow.parquet as pq
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from icefield.declare import Unique
from icefield.engine.aside import FAILING, KEPT, Judged, Verdict, count_told, gather
from icefield.engine.origin import FATE, IDENTITY, REASONS, short_reason, visible
from icefield.engine.promises.spark_plans import hands_through
from icefield.engine.repair import discard, mend
from icefield.engine.repeats import Keys, flagged, hashes_of, late, small
from icefield.engine.scratch import store
from icefield.engine.sql import quoted, text
from icefield.engine.tables import FEW_ROWS
from icefield.errors import RowsLost
from icefield.lake.numbers import distinct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from icefield.declare import RowCheck
    from icefield.engine.intake.port import Known, Landed
    from icefield.engine.repair import Decided, Mended
    from icefield.engine.scratch import Stored
    from icefield.engine.tables import Published
    from icefield.graph import Node

SPLITTING = ("quarantine", "drop")
_FAILED = "_icefield_failed"
_MARKS = (_FAILED, REASONS, FATE)


@dataclass(slots=True)
class Split:
    """Rows of one refresh, split; `bad` are the ones that are not kept, with their bytes, reasons and fate.

    `stored` are the good ones where they lie in a scratch folder already.
    """

    good: DataFrame
    bad: Stored | None = None
    stored: Stored | None = None
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
    marked = _marked(output, row_checks)
    replayed = decided is not None and bool(decided.of("replay"))
    mended = None
    if replayed and decided is not None:
        failing = store(marked.where(_FAILED), scratch / "waiting").frame
        mended = mend(failing, decided, all_hold(row_checks), reasons_of(row_checks), scratch)
        marked = _with_mended(marked, mended)
    passing = marked.where(f"NOT {_FAILED}").drop(*_MARKS)
    result = Split(good=passing, passed=passing.count, unfit=decided.unfit if decided else frozenset())
    result.mended = mended
    few = landed is not None and landed.count <= FEW_ROWS
    picked = None
    if row_checks or unique_checks or few:
        untouched = None if replayed or landed is None else landed
        repeats = [_Late(check, n, passing, untouched, old, scratch, few=few) for n, check in enumerate(unique_checks)]
        picked = _Picked(marked, repeats, scratch / "picked", everything=few)
        result.duplicates = sum(one.count for one in repeats)
        if few:  # all of them are evaluated, and only once
            result.stored = picked.judged.kept(visible(passing), scratch / "kept")
            result.good, result.passed = result.stored.frame, picked.judged.passed
        else:
            result.good = reduce(lambda rows, one: one.taken_out_of(rows), repeats, passing)
    if (picked and picked.gone) or (landed and landed.malformed):
        judged = picked.judged if picked else None
        result.bad = gather(output.sparkSession, output.schema, judged, landed, scratch / "aside")
        if decided is not None and decided.of("discard"):
            result.bad = store(discard(result.bad.frame, decided, output.schema, scratch), scratch / "bad")
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


def _at_hand(landed: Landed, check: Unique, output: DataFrame) -> Known | None:
    """What reading saw of the keys of a check, where the function hands them through."""
    if len(check.columns) != 1 or (known := landed.known(check.columns[0])) is None:
        return None
    return known if hands_through(landed.rows, output, check.columns[0]) else None


class _Picked:
    """The few rows that fail a check or may repeat a key, found in one pass over all of them.

    `everything`: where all rows are few, all of them, with what was decided about each.
    """

    def __init__(self, marked: DataFrame, late: Sequence[_Late], place: Path, *, everything: bool) -> None:
        rows = marked
        if not everything:
            for one in late:
                rows = one.flag(rows)
            rows = rows.where(" OR ".join([_FAILED, *(one.flag_name for one in late)]))
        stored = store(rows.select(*(quoted(column) for column in marked.columns)), place)
        keys = {column for one in late for column in one.check.columns}
        table = stored.arrow([_FAILED, *(dict.fromkeys([*IDENTITY, *keys]) if late else [])])
        decisions = np.where(table[_FAILED].to_numpy(), FAILING, KEPT)
        for number, one in enumerate(late):
            decisions[one.decide(marked.schema, table, decisions == KEPT)] = number
        verdicts = [Verdict(one.check.name, str(one.check.otherwise)) for one in late]
        self.judged = Judged(stored, decisions, verdicts)

    @property
    def gone(self) -> bool:
        """Whether any row is not kept."""
        return bool(np.any(self.judged.decisions != KEPT))


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
    ) -> None:
        self.check = check
        self.flag_name = f"_icefield_suspect_{number}"
        self.count = 0
        self._folder = scratch / f"unique-{number}"
        keys = Keys(passing, check.columns, self._folder)
        looked_up = landed is not None and (old is None or old.can_be_read)
        at_hand = _at_hand(landed, check, passing) if landed is not None and looked_up else None
        if at_hand is not None and landed is not None:
            self._value, self._wanted = F.col(quoted(check.columns[0])).cast("bigint"), at_hand.repeated
            count = landed.count
        elif few:  # whoever repeats another is found among all of them
            self._value, self._wanted, count = keys.hash, np.array([], np.int64), FEW_ROWS
        else:
            on_driver = landed is None or landed.on_driver
            self._value, (count, self._wanted) = keys.hash, keys.repeated(in_memory=on_driver)
        self._known = None if old is None else self._seen_before(old, keys, count, at_hand)
        if self._known is not None:
            more = hashes_of(self._known) if at_hand is None else self._known[check.columns[0]].to_numpy()
            self._wanted = distinct(np.concatenate([self._wanted, more]))

    def _seen_before(self, old: Published, keys: Keys, count: int, at_hand: Known | None) -> pa.Table:
        """The keys that are in the table already; read by Arrow where reading the files saw the new ones."""
        if at_hand is None:
            return keys.known(old.rows, count)
        (column,) = self.check.columns
        return old.among(column, at_hand.spans, at_hand.values)

    def flag(self, rows: DataFrame) -> DataFrame:
        """The rows, with a flag where a key may be repeated."""
        return flagged(rows, self._value, self._wanted, self.flag_name, self._folder / "suspects.parquet")

    def decide(self, schema: StructType, table: pa.Table, alive: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Which of the rows are late, among those that are not out already; they are looked at in `table`."""
        at = np.flatnonzero(alive)
        found = at[late(table.take(pa.array(at)), self.check.columns, self._known)]
        self.count = len(found)
        self._late = table.select([*IDENTITY, *self.check.columns]).take(pa.array(found))
        self._schema = StructType([schema[name] for name in self._late.column_names])
        return found

    def taken_out_of(self, rows: DataFrame) -> DataFrame:
        """The rows without the late ones."""
        if not self.count:
            return rows
        place = self._folder / "late.parquet"
        self._folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(self._late, place)
        gone = small(rows.sparkSession.read.schema(self._schema).parquet(str(place)), self.count)
        kept = rows.join(gone, self._late.column_names, "left_anti")
        return kept.select(*(quoted(column) for column in rows.columns))


def reasons_of(checks: tuple[RowCheck, ...]) -> str:
    listed = ", ".join(f"CASE WHEN ({c.predicate}) IS FALSE THEN {text(c.name)} END" for c in checks)
    return f"array_compact(array({listed}))"


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


def failing_checks(node: Node) -> tuple[RowCheck, ...]:
    """The checks of rows that are counted rather than split by: `warn` and `fail`."""
    return tuple(check for check in node.row_checks if check.otherwise not in SPLITTING)
