"""Takes arrived files in: read once, typed, and kept in the run's scratch space with the origin of every line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from icefield.declare import format_columns
from icefield.engine import parse
from icefield.engine.parse import ORIGIN, PROBLEM
from icefield.errors import FileUnreadable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from icefield.declare import Files
    from icefield.engine.landing import Intake

#: Characters that Java leaves as they are in the path of a URI; `_metadata.file_path` is spelled so.
_URI_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-!.~'()*,;:$&+=@/")
_GLOB_SIGNS = str.maketrans({sign: f"\\{sign}" for sign in "*?[]{}\\"})
HEADER = "header"


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """Lines taken in, materialised: `rows` are what the author's function is handed, `problems` the malformed lines."""

    rows: DataFrame
    problems: DataFrame
    all_lines: DataFrame
    intakes: Sequence[Intake]

    def line_offsets(self) -> dict[tuple[int, int], int]:
        """For each (file, block): what to add to a line's running number to get its place in the file, from 1."""
        counted = self.all_lines.groupBy(f"{ORIGIN}.arrival", f"{ORIGIN}.block").agg(
            F.min(f"{ORIGIN}.row").alias("first"), F.max(f"{ORIGIN}.row").alias("last")
        )
        offsets: dict[tuple[int, int], int] = {}
        before: dict[int, int] = {}
        for row in sorted(counted.collect(), key=lambda r: (r["arrival"], r["block"])):
            earlier = before.get(row["arrival"], 0)
            offsets[(row["arrival"], row["block"])] = earlier - row["first"] + 1
            before[row["arrival"]] = earlier + row["last"] - row["first"] + 1
        return offsets

    def rows_per_file(self) -> dict[int, int]:
        """How many rows each file brought, malformed ones included, its header and blank lines not."""
        counted = self.all_lines.where(f"NOT ({PROBLEM} <=> '')").groupBy(f"{ORIGIN}.arrival").count()
        found = {row["arrival"]: row["count"] - 1 for row in counted.collect()}
        for taken in self.intakes:
            if taken.file.size and taken.arrival not in found:
                raise FileUnreadable(
                    f"{taken.file.path} was listed, but Spark read nothing from it",
                    where=taken.file.path,
                    remedy="see whether the file is still there; if it is, its name holds a sign that Spark reads differently",
                )
        return found


def land(spark: SparkSession, root: Path, source: Files, intakes: Sequence[Intake], scratch: Path) -> Landed:
    """Reads the files once into the scratch folder; everything after reads from there."""
    frames = [_csv(spark, root, source, header, group) for header, group in _by_header(intakes).items()]
    if frames:
        together = frames[0]
        for frame in frames[1:]:
            together = together.unionByName(frame)
        # Dictionaries cost more than they save in files that live for a minute.
        writer = together.write.mode("overwrite").option("compression", "lz4").option("parquet.enable.dictionary", "false")
        writer.parquet(str(scratch))
        lines = spark.read.schema(together.schema).parquet(str(scratch))
    else:
        lines = empty(spark, source)
    return Landed(
        rows=lines.where(f"{PROBLEM} IS NULL").drop(PROBLEM),
        problems=lines.where(f"{PROBLEM} <> ''"),
        all_lines=lines,
        intakes=intakes,
    )


def empty(spark: SparkSession, source: Files) -> DataFrame:
    """The columns of `all_lines`, without rows."""
    origin = f"{ORIGIN} STRUCT<arrival: BIGINT, block: BIGINT, row: BIGINT, raw: BINARY>, {PROBLEM} STRING"
    columns = [column for column in source.columns if column.name != "source_line"]
    return spark.createDataFrame([], f"{format_columns(columns)}, {origin}")


def with_line(frame: DataFrame, offsets: dict[tuple[int, int], int], name: str) -> DataFrame:
    """Adds the physical line of each row's origin."""
    known = [(arrival, block, offset) for (arrival, block), offset in offsets.items()]
    table = frame.sparkSession.createDataFrame(known, "_arrival BIGINT, _block BIGINT, _offset BIGINT")
    joined = frame.join(
        F.broadcast(table),
        (F.col(f"{ORIGIN}.arrival") == F.col("_arrival")) & (F.col(f"{ORIGIN}.block") == F.col("_block")),
        "left",
    )
    return joined.withColumn(name, F.expr(f"{ORIGIN}.row + _offset")).drop("_arrival", "_block", "_offset")


def _by_header(intakes: Sequence[Intake]) -> dict[tuple[str, ...], list[Intake]]:
    groups: dict[tuple[str, ...], list[Intake]] = {}
    for intake in intakes:
        if intake.file.size:
            groups.setdefault(intake.header, []).append(intake)
    return groups


def _csv(spark: SparkSession, root: Path, source: Files, header: tuple[str, ...], intakes: Sequence[Intake]) -> DataFrame:
    cells = parse.csv_cells(header, source.schema)
    lines = parse.csv_fields(_lines(spark, root, intakes), source, header)
    malformed = parse.problem(source.schema, cells, len(header))
    reason = F.when(F.expr("value = ''"), F.lit("")).when(F.expr("value = _header"), F.lit(HEADER)).otherwise(malformed)
    fits = F.expr(f"size(_fields) = {len(header)}")
    typed = [F.when(fits, parse.typed(cells[c.name], c)).alias(c.name) for c in source.schema]
    return lines.select(*typed, *_provenance(source), _origin(), reason.alias(PROBLEM))


def _lines(spark: SparkSession, root: Path, intakes: Sequence[Intake]) -> DataFrame:
    """Every physical line with the file it is in and a number that grows along each block of the file."""
    paths = [str(root / intake.file.path).translate(_GLOB_SIGNS) for intake in intakes]
    lines = spark.read.option("lineSep", "\n").text(paths).select(
        F.expr("rtrim('\\r', value)").alias("value"),
        F.col("_metadata.file_path").alias("_path"),
        F.col("_metadata.file_block_start").alias("_block"),
        F.monotonically_increasing_id().alias("_row"),
    )
    return lines.join(F.broadcast(_files(spark, root, intakes)), "_path")


def _files(spark: SparkSession, root: Path, intakes: Iterable[Intake]) -> DataFrame:
    rows = []
    parts: tuple[str, ...] = ()
    for intake in intakes:
        parts = tuple(name for name, _ in intake.file.parts)
        values = tuple(value for _, value in intake.file.parts)
        rows.append((_uri(root / intake.file.path), intake.arrival, intake.file.path, intake.taken_ms, intake.header_line, *values))
    schema = "_path STRING, _arrival BIGINT, source_file STRING, _taken_ms BIGINT, _header STRING" + "".join(f", `{p}` STRING" for p in parts)
    return spark.createDataFrame(rows, schema)


def _provenance(source: Files) -> list[object]:
    return [*source.parts, "source_file", F.timestamp_millis("_taken_ms").alias("ingested_at")]


def _origin() -> object:
    raw = F.expr(f"substring(CAST(value AS BINARY), 1, {parse.LINE_LIMIT})")
    return F.struct(
        F.col("_arrival").alias("arrival"), F.col("_block").alias("block"), F.col("_row").alias("row"), raw.alias("raw")
    ).alias(ORIGIN)


def _uri(path: Path) -> str:
    return "file:" + "".join(
        sign if sign in _URI_SAFE or ord(sign) > 127 else "".join(f"%{byte:02X}" for byte in sign.encode()) for sign in str(path)
    )
