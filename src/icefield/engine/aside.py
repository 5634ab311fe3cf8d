"""Rows that are set aside, gathered into one scratch file with their bytes and reasons.

They are few, and lie in scratch files already: Arrow gathers them in a fraction of the time that a query takes to be
planned. They are handled in batches, so that memory does not grow with them where they are many.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructField, StructType, TimestampType

from icefield.engine.origin import ARRIVAL, FATE, IDENTITY, LINE, PROBLEM, RAW, REASONS, TRAVELLING
from icefield.engine.scratch import keep

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from icefield.engine.intake.port import Landed
    from icefield.engine.scratch import Stored

_BETWEEN = "\x1f"
#: What a picked row is: kept, or failing a check of rows (which its own columns tell). Others number a `Verdict`.
KEPT, FAILING = -1, -2


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why rows are set aside, and what becomes of them."""

    reason: str
    fate: str


@dataclass(frozen=True, slots=True)
class Judged:
    """Rows in a scratch folder, each with what was decided about it, in the order of `Stored.batches`."""

    rows: Stored
    decisions: NDArray[np.int64]
    verdicts: Sequence[Verdict]

    def set_aside(self) -> Iterator[pa.Table]:
        """The rows that are not kept, in batches."""
        for batch, decisions in self._batches():
            for decision in np.unique(decisions[decisions != KEPT]):
                chosen = batch.filter(pa.array(decisions == decision))
                yield chosen if decision == FAILING else _judged(chosen, self.verdicts[decision])

    def kept(self, like: DataFrame, place: Path) -> Stored:
        """The rows that are kept, with the columns of a frame."""
        parts = (batch.filter(pa.array(decisions == KEPT)) for batch, decisions in self._batches())
        return keep(like.sparkSession, like.schema, parts, place)

    def passed(self) -> int:
        """How many rows fail no check of rows."""
        return int(np.count_nonzero(self.decisions != FAILING))

    def _batches(self) -> Iterator[tuple[pa.Table, NDArray[np.int64]]]:
        at = 0
        for batch in self.rows.batches():
            yield batch, self.decisions[at : at + len(batch)]
            at += len(batch)


def gather(
    spark: SparkSession, output: StructType, judged: Judged | None, landed: Landed | None, place: Path
) -> Stored:
    """Everything that is set aside: rows of the function's output by what was decided, and lines it never saw."""
    rows = () if judged is None else (_with_bytes(rows, landed) for rows in judged.set_aside())
    lines = () if landed is None else map(_malformed, landed.unreadable())
    return keep(spark, _schema(output, has_lines=landed is not None), chain(rows, lines), place)


def _schema(output: StructType, *, has_lines: bool) -> StructType:
    """A line that cannot be read has no values, so that every column may be NULL, whatever the function promises."""
    origin = [StructField(name, LongType()) for name in TRAVELLING if has_lines and name not in output.names]
    told = [StructField(REASONS, ArrayType(StringType())), StructField(FATE, StringType())]
    values = [StructField(field.name, field.dataType) for field in output]
    return StructType([*values, *origin, StructField(RAW, BinaryType()), *told])


def _judged(rows: pa.Table, verdict: Verdict) -> pa.Table:
    reasons = pa.array([[verdict.reason]] * len(rows), pa.list_(pa.string()))
    fate = pa.array([verdict.fate] * len(rows), pa.string())
    return rows.drop_columns([REASONS, FATE]).append_column(REASONS, reasons).append_column(FATE, fate)


def _malformed(lines: pa.Table) -> pa.Table:
    """A line that cannot be read has no values, only its bytes and where it stands."""
    reasons = pa.array([[problem] for problem in lines[PROBLEM].to_pylist()], pa.list_(pa.string()))
    fate = pa.array(["quarantine"] * len(lines), pa.string())
    return lines.append_column(REASONS, reasons).append_column(FATE, fate)


def _with_bytes(rows: pa.Table, landed: Landed | None) -> pa.Table:
    if landed is None or not set(IDENTITY) <= set(rows.column_names):
        return rows
    return rows.append_column(RAW, landed.raw(rows.select(list(IDENTITY))))


def count_told(rows: Stored) -> list[tuple[list[str], str, int]]:
    """Reasons (together, where a row has several), fate, and how many rows have them."""
    told = rows.arrow([REASONS, FATE])
    joined = pc.binary_join(told[REASONS].cast(pa.list_(pa.string())), _BETWEEN)
    counted = (
        pa.table({"reasons": joined, "fate": told[FATE]}).group_by(["reasons", "fate"]).aggregate([([], "count_all")])
    )
    return [(row["reasons"].split(_BETWEEN), row["fate"], row["count_all"]) for row in counted.to_pylist()]


def to_quarantine(bad: Stored, run: str, started_ms: int, place: Path) -> Stored:
    """What goes to quarantine: the row, its bytes, why, by which run, and its origin."""
    own = [field for field in bad.frame.schema if not field.name.startswith("_icefield")]
    names = quarantine_names([field.name for field in own])
    schema = StructType([*own, *(StructField(names[name], kind) for name, kind in _TOLD.items())])
    known = {RAW: names["raw"], REASONS: names["reasons"], LINE: names["line"], ARRIVAL: names["arrival"]}

    def waiting() -> Iterator[pa.Table]:
        for batch in bad.batches():
            rows = batch.filter(pc.equal(batch[FATE], "quarantine"))
            rows = rows.rename_columns([known.get(name, name) for name in rows.column_names])
            at = pa.scalar(started_ms * 1000, pa.timestamp("us", "UTC"))
            yield rows.append_column(names["run"], pa.repeat(pa.scalar(run), len(rows))).append_column(
                names["quarantined_at"], pa.repeat(at, len(rows))
            )

    return keep(bad.frame.sparkSession, schema, waiting(), place)


def quarantine_schema(rows: StructType) -> StructType:
    """The columns of a table's quarantine, from those of the table."""
    own = [StructField(field.name, field.dataType) for field in rows if not field.name.startswith("_icefield")]
    names = quarantine_names([field.name for field in own])
    return StructType([*own, *(StructField(names[name], kind) for name, kind in _TOLD.items())])


def quarantine_names(own: list[str]) -> dict[str, str]:
    """How quarantine names its own columns; the author's columns keep theirs where both would have the same."""
    taken = {column.lower() for column in own}
    return {name: f"quarantine_{name}" if name in taken else name for name in _TOLD}


#: The columns that quarantine adds to those of the rows.
_TOLD = {
    "raw": BinaryType(),
    "reasons": ArrayType(StringType()),
    "run": StringType(),
    "line": LongType(),
    "arrival": LongType(),
    "quarantined_at": TimestampType(),
}
