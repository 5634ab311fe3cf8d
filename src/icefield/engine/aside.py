"""Rows that are set aside, gathered into one scratch file with their bytes and reasons.

They are few, and lie in scratch files already: Arrow gathers them in a fraction of the time that a query takes to be
planned. They are handled in batches, so that memory does not grow with them where they are many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructField, StructType, TimestampType

from icefield.engine.origin import ARRIVAL, FATE, IDENTITY, PROBLEM, RAW, REASONS, ROW
from icefield.engine.scratch import Stored

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from icefield.engine.intake import Landed

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

    def set_aside(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """The rows that are not kept, in batches."""
        at = 0
        for batch in self.rows.batches():
            here = self.decisions[at : at + len(batch)]
            at += len(batch)
            for decision in np.unique(here[here != KEPT]):
                chosen = batch.filter(pa.array(here == decision))
                yield _fitted(chosen if decision == FAILING else _judged(chosen, self.verdicts[decision]), schema)

    def kept(self, like: DataFrame, place: Path) -> Stored:
        """The rows that are kept, with the columns of a frame."""
        schema, at = to_arrow_schema(like.schema), 0
        place.mkdir(parents=True, exist_ok=True)
        with pq.ParquetWriter(place / "0.parquet", schema) as writer:
            for batch in self.rows.batches(like.columns):
                here = self.decisions[at : at + len(batch)]
                at += len(batch)
                writer.write_table(_fitted(batch.filter(pa.array(here == KEPT)), schema))
        return Stored(place, like.sparkSession.read.schema(like.schema).parquet(str(place)))


def gather(
    spark: SparkSession, output: StructType, judged: Judged | None, landed: Landed | None, place: Path
) -> Stored:
    """Everything that is set aside: rows of the function's output by what was decided, and lines it never saw."""
    schema = _schema(output, has_lines=landed is not None)
    columns = to_arrow_schema(schema)
    place.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(place / "0.parquet", columns) as writer:
        for rows in () if judged is None else judged.set_aside(columns):
            writer.write_table(_with_bytes(rows, landed))
        for lines in () if landed is None else landed.unreadable():
            writer.write_table(_fitted(_malformed(lines), columns))
    return Stored(place, spark.read.schema(schema).parquet(str(place)))


def _schema(output: StructType, *, has_lines: bool) -> StructType:
    """A line that cannot be read has no values, so that every column may be NULL, whatever the function promises."""
    origin = [StructField(name, LongType()) for name in IDENTITY if has_lines and name not in output.names]
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
    told = lines.append_column(REASONS, reasons).append_column(FATE, fate)
    return told.append_column("source_line", lines[ROW])


def _with_bytes(rows: pa.Table, landed: Landed | None) -> pa.Table:
    if landed is None:
        return rows
    raw = landed.raw_of(rows.select(list(IDENTITY)))
    return rows.set_column(rows.column_names.index(RAW), RAW, raw)


def _fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a schema; NULL where the rows lack them."""
    given = set(rows.column_names)
    return pa.table(
        [
            rows[field.name].cast(field.type) if field.name in given else pa.nulls(len(rows), field.type)
            for field in schema
        ],
        schema=schema,
    )


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
    columns = to_arrow_schema(schema)
    place.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(place / "0.parquet", columns) as writer:
        for batch in bad.batches():
            waiting = batch.filter(pc.equal(batch[FATE], "quarantine"))
            known = {RAW: "raw", REASONS: "reasons", ROW: "line", ARRIVAL: "arrival"}
            renamed = waiting.rename_columns([names[known[n]] if n in known else n for n in waiting.column_names])
            told = {
                "run": pa.repeat(pa.scalar(run), len(waiting)),
                "quarantined_at": pa.repeat(pa.scalar(started_ms * 1000, pa.timestamp("us", "UTC")), len(waiting)),
            }
            for name, value in told.items():
                renamed = renamed.append_column(names[name], value)
            writer.write_table(_fitted(renamed, columns))
    return Stored(place, bad.frame.sparkSession.read.schema(schema).parquet(str(place)))


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
