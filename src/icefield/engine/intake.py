"""Takes arrived files in: read once, typed, and kept in the run's scratch space with the origin of every line."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from icefield.declare import format_columns
from icefield.engine import formats
from icefield.engine.frames import empty_frame, small_frame
from icefield.engine.parse import ARRIVAL, BLOCK, ORIGIN, PROBLEM, ROW
from icefield.errors import FileUnreadable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession

    from icefield.declare import Files
    from icefield.engine.landing import Intake


@dataclass(frozen=True, kw_only=True)  # no slots: what is counted once is kept
class Landed:
    """Lines taken in, materialised: `rows` are what the author's function is handed, `problems` the malformed lines."""

    rows: DataFrame
    problems: DataFrame
    all_lines: DataFrame
    intakes: Sequence[Intake]
    provenance: tuple[str, ...]

    @cached_property
    def blocks(self) -> Sequence[Row]:
        """For each block of each file: its first and last line's running number, and how many lines are not blank."""
        counted = self.all_lines.groupBy(F.col(ARRIVAL).alias("arrival"), F.col(BLOCK).alias("block")).agg(
            F.min(ROW).alias("first"),
            F.max(ROW).alias("last"),
            F.count_if(F.expr(f"NOT ({PROBLEM} <=> '')")).alias("lines"),
        )
        return sorted(counted.collect(), key=lambda row: (row["arrival"], row["block"]))

    def line_offsets(self) -> dict[tuple[int, int], int]:
        """For each (file, block): what to add to a line's running number to get its place in the file, from 1."""
        offsets: dict[tuple[int, int], int] = {}
        before: dict[int, int] = {}
        for row in self.blocks:
            earlier = before.get(row["arrival"], 0)
            offsets[(row["arrival"], row["block"])] = earlier - row["first"] + 1
            before[row["arrival"]] = earlier + row["last"] - row["first"] + 1
        return offsets

    def rows_per_file(self) -> dict[int, int]:
        """How many rows each file brought, malformed ones included, its header and blank lines not."""
        found = {taken.arrival: -1 if taken.format == "csv" else 0 for taken in self.intakes if taken.file.size}
        seen = {row["arrival"] for row in self.blocks}
        for row in self.blocks:
            found[row["arrival"]] += row["lines"]
        for taken in self.intakes:
            if taken.format == "csv" and taken.file.size and taken.arrival not in seen:
                raise FileUnreadable(
                    f"{taken.file.path} was listed, but Spark read nothing from it",
                    where=taken.file.path,
                    remedy="see whether the file is still there; if so, Spark reads a sign in its name differently",
                )
        return found


def land(spark: SparkSession, root: Path, source: Files, intakes: Sequence[Intake], scratch: Path) -> Landed:
    """Reads the files once into the scratch folder; everything after reads from there."""
    frames = [formats.read(spark, root, source, group) for group in _alike(intakes)]
    if frames:
        together = frames[0]
        for frame in frames[1:]:
            together = together.unionByName(frame)
        # Dictionaries cost more than they save in files that live for a minute.
        writer = (
            together.write.mode("overwrite").option("compression", "lz4").option("parquet.enable.dictionary", "false")
        )
        writer.parquet(str(scratch))
        lines = spark.read.schema(together.schema).parquet(str(scratch))
    else:
        lines = empty(spark, source)
    return Landed(
        rows=lines.where(f"{PROBLEM} IS NULL").drop(PROBLEM),
        problems=lines.where(f"{PROBLEM} <> ''"),
        all_lines=lines,
        intakes=intakes,
        provenance=(*source.parts, "source_file", "ingested_at"),
    )


def empty(spark: SparkSession, source: Files) -> DataFrame:
    """The columns of `all_lines`, without rows."""
    columns = [column for column in source.columns if column.name != "source_line"]
    return empty_frame(spark, f"{format_columns(columns)}, {ORIGIN}, {PROBLEM} STRING")


def with_line(frame: DataFrame, offsets: dict[tuple[int, int], int], name: str) -> DataFrame:
    """Adds the physical line of each row's origin."""
    known = [(arrival, block, offset) for (arrival, block), offset in offsets.items()]
    columns = {"_arrival": "BIGINT", "_block": "BIGINT", "_offset": "BIGINT"}
    table = small_frame(frame.sparkSession, columns, known)
    joined = frame.join(
        F.broadcast(table),
        (F.col(ARRIVAL) == F.col("_arrival")) & (F.col(BLOCK) == F.col("_block")),
        "left",
    )
    return joined.withColumn(name, F.col(ROW) + F.col("_offset")).drop("_arrival", "_block", "_offset")


def _alike(intakes: Sequence[Intake]) -> list[list[Intake]]:
    """Files that can be read together: of one format, with one header; empty files have nothing to read."""
    groups: dict[tuple[object, ...], list[Intake]] = {}
    for taken in intakes:
        if taken.file.size:
            groups.setdefault((taken.format, taken.header), []).append(taken)
    return list(groups.values())
