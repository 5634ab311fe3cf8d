"""Rows that are set aside: with their bytes, where they stood, why, and what becomes of them.

Those that were picked lie in scratch files already: Arrow gathers them in a fraction of the time that a query takes to
be planned, in batches. Where they are more than a limit, Spark's tasks gather them, and none comes to the driver.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructField, StructType, TimestampType

from icefield.engine import limits
from icefield.engine.batch import Batch, evaluate, keep
from icefield.engine.origin import (
    ARRIVAL,
    FATE,
    IDENTITY,
    LINE,
    MALFORMED,
    PROBLEM,
    RAW,
    REASONS,
    TRAVELLING,
)
from icefield.engine.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from icefield.engine.intake.port import InSpark, Landed

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
    """Rows in a scratch folder, each with what was decided about it, in the order of `Batch.batches`."""

    rows: Batch
    decisions: NDArray[np.int64]
    verdicts: Sequence[Verdict]

    def set_aside(self) -> Iterator[pa.Table]:
        """The rows that are not kept, in batches."""
        for batch, decisions in self._batches():
            for decision in np.unique(decisions[decisions != KEPT]):
                chosen = batch.filter(pa.array(decisions == decision))
                yield chosen if decision == FAILING else _judged(chosen, self.verdicts[decision])

    def kept(self, like: DataFrame, place: Path) -> Batch:
        """The rows that are kept, with the columns of a frame."""
        parts = (batch.filter(pa.array(decisions == KEPT)) for batch, decisions in self._batches())
        return keep(like.sparkSession, like.schema, parts, place)

    def kept_parts(self, columns: list[str]) -> Iterator[pa.Table]:
        """Columns of the rows that are kept, in batches."""
        for batch, decisions in self._batches():
            yield batch.select(columns).filter(pa.array(decisions == KEPT))

    @property
    def gone(self) -> bool:
        """Whether any row is not kept."""
        return bool(np.any(self.decisions != KEPT))

    def passed(self) -> int:
        """How many rows fail no check of rows."""
        return int(np.count_nonzero(self.decisions != FAILING))

    def _batches(self) -> Iterator[tuple[pa.Table, NDArray[np.int64]]]:
        at = 0
        for batch in self.rows.batches():
            yield batch, self.decisions[at : at + len(batch)]
            at += len(batch)


@dataclass(frozen=True, slots=True)
class JudgedBySpark:
    """Rows that are not kept, each with its reasons and its fate, in a scratch folder."""

    rows: Batch

    @property
    def gone(self) -> bool:
        """Whether there are any."""
        return self.rows.count() > 0

    def set_aside(self) -> Iterator[pa.Table]:
        """All of them, in batches."""
        return self.rows.batches()


def gather(
    spark: SparkSession, output: StructType, judged: Judged | JudgedBySpark | None, landed: Landed | None, place: Path
) -> Batch:
    """Everything that is set aside: rows of the function's output by what was decided, and lines it never saw."""
    schema = _schema(output, has_lines=landed is not None)
    by_tasks = isinstance(judged, JudgedBySpark) or (landed is not None and _are_many(landed.malformed))
    far = landed.in_spark() if landed is not None and by_tasks else None
    near: list[Iterable[pa.Table]] = []
    frames: list[DataFrame] = []
    if isinstance(judged, JudgedBySpark) and (landed is None or far is not None):
        frames.append(_with_bytes_by_tasks(judged.rows.frame, far))
    elif judged is not None:
        near.append(_with_bytes(rows, landed) for rows in judged.set_aside())
    if far is not None and landed is not None and _are_many(landed.malformed):
        frames.append(_malformed_by_spark(far.unreadable))
    elif landed is not None:
        near.append(map(_malformed, landed.unreadable()))
    if not frames:
        return keep(spark, schema, chain(*near), place)
    if near:
        frames.append(keep(spark, schema, chain(*near), place / "near").frame)
    return _stored(frames, schema, landed, place / "all")


def _are_many(rows: int) -> bool:
    return rows > limits.LIMITS.driver_rejects


def _stored(frames: Sequence[DataFrame], schema: StructType, landed: Landed | None, place: Path) -> Batch:
    """All frames in one folder; columns that one lacks are NULL."""
    try:
        return evaluate(reduce(lambda a, b: a.unionByName(b), [_fitted(frame, schema) for frame in frames]), place)
    except PySparkException:
        if landed is not None:
            landed.require_unchanged()  # a task may have failed to find bytes that are no longer there
        raise


def _fitted(frame: DataFrame, schema: StructType) -> DataFrame:
    given = set(frame.columns)
    columns = [F.col(quoted(field.name)) if field.name in given else F.lit(None) for field in schema]
    return frame.select(*(c.cast(f.dataType).alias(f.name) for c, f in zip(columns, schema, strict=True)))


def _with_bytes_by_tasks(rows: DataFrame, far: InSpark | None) -> DataFrame:
    """Rows with their bytes; in the order of arrival, so that a task reads few files, each from its beginning on."""
    if far is None or not set(IDENTITY) <= set(rows.columns):
        return rows
    with_raw = StructType([*rows.schema.fields, StructField(RAW, BinaryType())])
    return rows.repartitionByRange(*IDENTITY).sortWithinPartitions(*IDENTITY).mapInArrow(_adding(far.raw), with_raw)


def _adding(raw: Callable[[pa.Table], pa.Array]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does: it holds nothing but `raw`, which is sent to it."""

    def added(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            yield from rows.append_column(RAW, raw(rows.select(list(IDENTITY)))).to_batches()

    return added


def _malformed_by_spark(lines: DataFrame) -> DataFrame:
    return lines.withColumns({REASONS: F.array(PROBLEM), FATE: F.lit("quarantine")})


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


def count_told(rows: Batch) -> list[tuple[list[str], str, int]]:
    """Reasons (together, where a row has several), fate, and how many rows have them."""
    if _are_many(rows.count()):
        return _counted_by_spark(rows.frame)
    told = rows.arrow([REASONS, FATE])
    joined = pc.binary_join(told[REASONS].cast(pa.list_(pa.string())), _BETWEEN)
    counted = (
        pa.table({"reasons": joined, "fate": told[FATE]}).group_by(["reasons", "fate"]).aggregate([([], "count_all")])
    )
    return [(row["reasons"].split(_BETWEEN), row["fate"], row["count_all"]) for row in counted.to_pylist()]


def _counted_by_spark(rows: DataFrame) -> list[tuple[list[str], str, int]]:
    """The same; what exactly is wrong with a line is left out, since every line may have something else."""
    short = F.transform(
        F.col(REASONS), lambda reason: F.when(reason.startswith(f"{MALFORMED}: "), MALFORMED).otherwise(reason)
    )
    counted = rows.groupBy(short.alias(REASONS), FATE).count().collect()
    return [(row[REASONS], row[FATE], row["count"]) for row in counted]


def to_quarantine(bad: Batch, run: str, started_ms: int, place: Path) -> Batch:
    """What goes to quarantine: the row, its bytes, why, by which run, and its origin."""
    own = [field for field in bad.frame.schema if not field.name.startswith("_icefield")]
    names = quarantine_names([field.name for field in own])
    schema = StructType([*own, *(StructField(names[name], kind) for name, kind in _TOLD.items())])
    known = {RAW: names["raw"], REASONS: names["reasons"], LINE: names["line"], ARRIVAL: names["arrival"]}
    if _are_many(bad.count()):
        rows = bad.frame.where(F.col(FATE) == "quarantine").withColumnsRenamed(known)
        told = {names["run"]: F.lit(run), names["quarantined_at"]: F.timestamp_millis(F.lit(started_ms))}
        return evaluate(_fitted(rows.withColumns(told), schema), place)

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
