"""What people decided about rows in quarantine, applied: columns set anew and checked again, or rows let go.

Conditions and values are Spark SQL over the columns that quarantine shows, so what was seen there can be typed here. A
decision is about the very rows that waited when it was made, known by file and line: a condition such as `true` would
also hold for whatever comes to wait later, and nobody has looked at that.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from icefield.engine.origin import ARRIVAL, FATE, LINE, MALFORMED, REASONS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from icefield.graph.state import Repair

_ORIGINAL, _DECIDED = "_icefield_original", "_icefield_decided"
#: Columns of the rows that decisions are about.
ABOUT = ("number", "arrival", "line")


def _no_rows() -> pa.Table:
    return pa.table({name: pa.array([], pa.int64()) for name in ABOUT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A table's repairs by their numbers, and the rows that they are about: number, arrival and line."""

    repairs: Mapping[int, Repair]
    rows: pa.Table = field(default_factory=_no_rows)
    #: The last number that was ever given for a table of this name.
    last: int = 0
    #: Repairs that do not fit the table's columns any more, and are not applied.
    unfit: frozenset[int] = frozenset()

    def of(self, kind: str) -> dict[int, Repair]:
        """The repairs of one kind that are applied, in order."""
        return {n: repair for n, repair in self.repairs.items() if repair.kind == kind and n not in self.unfit}

    def next_number(self) -> int:
        """The number that the next decision gets."""
        return max(self.repairs, default=self.last) + 1

    def plus(self, repair: Repair, about: pa.Table) -> Decided:
        """The same and one more, about the rows of these files and lines."""
        number = self.next_number()
        numbers = pa.array([number] * about.num_rows, pa.int64())
        rows = pa.table([numbers, about[ARRIVAL].combine_chunks(), about[LINE].combine_chunks()], names=list(ABOUT))
        return replace(self, repairs={**self.repairs, number: repair}, rows=pa.concat_tables([self.rows, rows]))

    def without_files(self, arrivals: Collection[int]) -> Decided:
        """The same without the rows of some files."""
        gone = pc.is_in(self.rows["arrival"], value_set=pa.array(list(arrivals), pa.int64()))
        return replace(self, rows=self.rows.filter(pc.invert(gone)))

    def fitted(self, fits: Callable[[Repair], bool]) -> Decided:
        """The same, applying only what fits."""
        return replace(self, unfit=frozenset(n for n, repair in self.repairs.items() if not fits(repair)))


@dataclass(frozen=True, slots=True)
class Mended:
    """Rows that pass after their repair, and those that still wait, as they were.

    `failing`: what still fails of the rows that the last repair is about, as arrays of reasons.
    """

    rows: DataFrame
    waiting: DataFrame
    failing: DataFrame

    def reasons(self) -> dict[str, int]:
        """Why rows still wait after the last repair, and how many."""
        told = self.failing.select(F.explode(self.failing.columns[0]).alias("reason")).groupBy("reason").count()
        return {row["reason"]: int(row["count"]) for row in told.collect()}


def mend(waiting: DataFrame, decided: Decided, all_hold: str, reasons: str, scratch: Path) -> Mended:
    """Applies repairs to rows that fail a check; `all_hold` and `reasons` tell in SQL whether and why they still do."""
    columns = waiting.columns
    frame = waiting.withColumn(_ORIGINAL, F.struct(*(f"`{name}`" for name in columns)))
    replays = decided.of("replay")
    # Each condition was typed for the values that quarantine showed, so none sees what another repair has set.
    frame = _with_hits(_shown(frame), replays, decided.rows, scratch / "replayed.parquet")
    for number, repair in replays.items():
        hit = F.col(_hit(number))
        kinds = {name: waiting.schema[name].dataType for name, _ in repair.assign}
        values = {n: F.when(hit, F.expr(value).cast(kinds[n])).otherwise(F.col(f"`{n}`")) for n, value in repair.assign}
        frame = frame.withColumns(values)
    any_hit = reduce(lambda a, b: a | b, (F.col(_hit(number)) for number in replays))
    passes = any_hit & F.coalesce(F.expr(all_hold), F.lit(False))  # noqa: FBT003
    last = F.col(_hit(max(replays)))
    return Mended(
        rows=frame.where(passes).select(*(f"`{name}`" for name in columns)),
        waiting=frame.where(~passes).select(f"{_ORIGINAL}.*"),
        failing=frame.where(last & ~passes).select(F.expr(reasons).alias(REASONS)),
    )


def discard(bad: DataFrame, decided: Decided, schema: StructType, scratch: Path) -> DataFrame:
    """Marks the rows that a person let go; `schema` has the columns of the table."""
    discards = decided.of("discard")
    frame = _with_hits(with_columns(_shown(bad), schema), discards, decided.rows, scratch / "discarded.parquet")
    let_go = reduce(lambda a, b: a | b, (F.col(_hit(number)) for number in discards))
    marked = frame.withColumn(FATE, F.when(let_go, F.lit("discard")).otherwise(F.col(FATE)))
    return marked.select(*(f"`{name}`" for name in bad.columns))


def with_columns(frame: DataFrame, schema: StructType) -> DataFrame:
    """A frame with all columns of a table, NULL where it lacks them: lines that cannot be read have no values."""
    missing = [column for column in schema if column.name not in frame.columns]
    return frame.withColumns({column.name: F.lit(None).cast(column.dataType) for column in missing})


def is_malformed(reasons: str) -> Expression:
    """Whether a row is a line that could not be read."""
    return F.coalesce(F.col(f"`{reasons}`")[0].startswith(MALFORMED), F.lit(False))  # noqa: FBT003


def _with_hits(frame: DataFrame, repairs: Mapping[int, Repair], about: pa.Table, place: Path) -> DataFrame:
    """Adds for each repair whether it is about the row."""
    if not {ARRIVAL, LINE} <= set(frame.columns):  # the function lets go of the origin, and nothing can be told apart
        return frame.withColumns({_hit(number): F.lit(False) for number in repairs})  # noqa: FBT003
    place.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(about, place)
    rows = frame.sparkSession.read.schema("number BIGINT, arrival BIGINT, line BIGINT").parquet(str(place))
    own = [F.col("arrival").alias(ARRIVAL), F.col("line").alias(LINE)]
    numbers = rows.groupBy(*own).agg(F.collect_set("number").alias(_DECIDED))
    joined = frame.join(numbers, [ARRIVAL, LINE], "left")
    conditions = {number: F.array_contains(_DECIDED, number) & F.expr(r.where) for number, r in repairs.items()}
    return joined.withColumns({_hit(n): F.coalesce(c, F.lit(False)) for n, c in conditions.items()})  # noqa: FBT003


def _hit(number: int) -> str:
    return f"_icefield_hit_{number}"


def _shown(frame: DataFrame) -> DataFrame:
    """Adds `reasons` and `line` under the names that quarantine shows them by."""
    own = {"reasons": REASONS, "line": LINE}
    return frame.withColumns({n: F.col(c) for n, c in own.items() if n not in frame.columns and c in frame.columns})
