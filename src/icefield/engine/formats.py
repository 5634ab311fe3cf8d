"""One reader for each format of files; all give the same columns, the origin of every row and what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from icefield.engine import parse
from icefield.engine.frames import Cell, small_frame
from icefield.engine.parse import ARRIVAL, BLOCK, HEADER, PROBLEM, RAW, ROW

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame, SparkSession

    from icefield.declare import Files
    from icefield.engine.landing import Intake

#: Characters that Java leaves as they are in the path of a URI; `_metadata.file_path` is spelled so.
_URI_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-!.~'()*,;:$&+=@/")
_GLOB_SIGNS = str.maketrans({sign: f"\\{sign}" for sign in "*?[]{}\\"})
_ASCII = 128


def read(spark: SparkSession, root: Path, source: Files, intakes: Sequence[Intake]) -> DataFrame:
    """Rows of files that have the same format and the same header."""
    match intakes[0].format:
        case "csv":
            return _csv(spark, root, source, intakes)
        case "json":
            return _json(spark, root, source, intakes)
        case _:
            return _parquet(spark, root, source, intakes)


def _csv(spark: SparkSession, root: Path, source: Files, intakes: Sequence[Intake]) -> DataFrame:
    header = intakes[0].header
    fields = parse.csv_fields(_lines(spark, root, intakes), source, header)
    lines = parse.with_values(fields, parse.csv_cells(header, source.schema), source.schema)
    wrong = parse.line_problem().when(
        F.expr("_fields IS NULL"), F.lit("malformed: quotes or number of fields are wrong")
    )
    wrong = wrong.when(
        F.expr(f"size(_fields) <> {len(header)}"),
        F.expr(f"concat('malformed: ', size(_fields), ' fields instead of {len(header)}')"),
    )
    malformed = parse.cell_problems(wrong, source.schema)
    reason = F.when(F.expr(_BLANK), F.lit("")).when(F.expr("value = _header"), F.lit(HEADER)).otherwise(malformed)
    return _finished(lines, source, reason)


def _json(spark: SparkSession, root: Path, source: Files, intakes: Sequence[Intake]) -> DataFrame:
    fields = parse.json_fields(_lines(spark, root, intakes), source)
    lines = parse.with_values(fields, parse.json_cells(source), source.schema)
    wrong = parse.line_problem().when(
        F.expr("_json IS NULL OR _json.bad IS NOT NULL"), F.lit("malformed: no JSON object")
    )
    if source.new_columns == "fail":
        unknown = f"array_except(json_object_keys(value), {parse.known_names(source)})"
        wrong = wrong.when(F.expr(f"size({unknown}) > 0"), F.expr(f"concat('malformed: unknown field ', {unknown}[0])"))
    reason = F.when(F.expr(_BLANK), F.lit("")).otherwise(parse.cell_problems(wrong, source.schema))
    return _finished(lines, source, reason)


def _finished(lines: DataFrame, source: Files, reason: Expression) -> DataFrame:
    return lines.select(*parse.values(source.schema), *_provenance(source), *_origin(), reason.alias(PROBLEM))


def _parquet(spark: SparkSession, root: Path, source: Files, intakes: Sequence[Intake]) -> DataFrame:
    named = {column: index for index, column in enumerate(intakes[0].header) if column}
    rows = spark.read.parquet(*_paths(root, intakes))
    physical = rows.columns
    cells = {c.name: f"`{physical[named[c.name]]}`" if c.name in named else "NULL" for c in source.schema}
    whole = rows.select(
        *(F.expr(f"try_cast({cells[c.name]} AS {c.type})").alias(c.name) for c in source.schema),
        *(F.expr(f"({cells[c.name]}) IS NOT NULL").alias(f"_has_{c.name}") for c in source.schema),
        F.to_json(F.struct(*(f"`{column}`" for column in physical))).alias("value"),
        F.col("_metadata.file_path").alias("_path"),
        F.lit(0).cast("bigint").alias("_block"),
        F.col("_metadata.row_index").alias("_row"),
    )
    found = F.when(F.lit(False), F.lit(None).cast("string"))  # noqa: FBT003
    for c in source.schema:
        found = found.when(
            F.expr(f"_has_{c.name} AND `{c.name}` IS NULL"), F.lit(f"malformed: {c.name} is no {c.type}")
        )
    joined = whole.join(F.broadcast(_files(spark, root, intakes)), "_path")
    return joined.select(*(c.name for c in source.schema), *_provenance(source), *_origin(), found.alias(PROBLEM))


_BLANK = "trim(' \t' FROM value) = ''"


def _lines(spark: SparkSession, root: Path, intakes: Sequence[Intake]) -> DataFrame:
    """Every physical line with the file it is in and a number that grows along each block of the file."""
    lines = (
        spark.read.option("lineSep", "\n")
        .text(_paths(root, intakes))
        .select(
            F.expr(parse.LINE_TEXT).alias("value"),
            F.expr(parse.TOO_LONG).alias("_too_long"),
            F.col("_metadata.file_path").alias("_path"),
            F.col("_metadata.file_block_start").alias("_block"),
            F.monotonically_increasing_id().alias("_row"),
        )
    )
    return lines.join(F.broadcast(_files(spark, root, intakes)), "_path")


def _paths(root: Path, intakes: Sequence[Intake]) -> list[str]:
    return [str(root / intake.file.path).translate(_GLOB_SIGNS) for intake in intakes]


def _files(spark: SparkSession, root: Path, intakes: Sequence[Intake]) -> DataFrame:
    parts = [name for name, _ in intakes[0].file.parts]
    rows: list[tuple[Cell, ...]] = [
        (
            _uri(root / taken.file.path),
            taken.arrival,
            taken.file.path,
            taken.taken_ms,
            taken.header_line,
            *(value for _, value in taken.file.parts),
        )
        for taken in intakes
    ]
    columns = {
        "_path": "STRING",
        "_arrival": "BIGINT",
        "source_file": "STRING",
        "_taken_ms": "BIGINT",
        "_header": "STRING",
    }
    return small_frame(spark, {**columns, **dict.fromkeys(parts, "STRING")}, rows)


def _provenance(source: Files) -> list[str | Expression]:
    return [*source.parts, "source_file", F.timestamp_millis("_taken_ms").alias("ingested_at")]


def _origin() -> list[Expression]:
    raw = F.expr(f"substring(CAST(value AS BINARY), 1, {parse.LINE_LIMIT})")
    return [F.col("_arrival").alias(ARRIVAL), F.col("_block").alias(BLOCK), F.col("_row").alias(ROW), raw.alias(RAW)]


def _uri(path: Path) -> str:
    return "file:" + "".join(
        sign if sign in _URI_SAFE or ord(sign) >= _ASCII else f"%{ord(sign):02X}" for sign in str(path)
    )
