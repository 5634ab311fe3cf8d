"""Rows that Spark reads: lines that were left to `parse`, and Parquet files; all give the same columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from icefield.declare import format_columns
from icefield.engine.frames import Cell, small_frame
from icefield.engine.intake import parse
from icefield.engine.origin import ARRIVAL, ORIGIN, PROBLEM, RAW, ROW
from icefield.engine.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame, SparkSession

    from icefield.declare import Column, Files
    from icefield.engine.intake.landing import Intake
    from icefield.engine.intake.reading import Undecided

#: Characters that Java leaves as they are in the path of a URI; `_metadata.file_path` is spelled so.
_URI_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-!.~'()*,;:$&+=@/")
_GLOB_SIGNS = str.maketrans({sign: f"\\{sign}" for sign in "*?[]{}\\"})
_ASCII = 128


def schema(source: Files) -> str:
    """The columns of every row that was taken in."""
    return f"{format_columns(_columns(source))}, {ORIGIN}, {RAW} BINARY, {PROBLEM} STRING"


def lines(spark: SparkSession, source: Files, left: Undecided) -> DataFrame:
    """Lines that were left to be decided here."""
    provenance = format_columns(_columns(source)[len(source.schema) :])
    stored = spark.read.schema(f"value BINARY, {provenance}, {ORIGIN}").parquet(str(left.folder))
    texts = stored.withColumn("value", F.col("value").cast("string"))
    if left.format == "csv":
        found, wrong = _csv(texts, source, left.header)
    else:
        found, wrong = _json(texts, source)
    problem = parse.cell_problems(wrong, source.schema)
    # The bytes of a good line can be fetched from its file, should it be set aside later.
    raw = F.when(F.col(PROBLEM).isNotNull(), F.col("value").cast("binary"))
    provided = [column.name for column in _columns(source)[len(source.schema) :]]
    decided = found.withColumn(PROBLEM, problem)
    return decided.select(*parse.values(source.schema), *provided, ARRIVAL, ROW, raw.alias(RAW), PROBLEM)


def _csv(texts: DataFrame, source: Files, header: Sequence[str]) -> tuple[DataFrame, Expression]:
    fields = parse.csv_fields(texts, source, header)
    found = parse.with_values(fields, parse.csv_cells(header, source.schema), source.schema)
    wrong = F.when(F.expr("_fields IS NULL"), F.lit("malformed: wrong quoting or number of fields"))
    wrong = wrong.when(
        F.expr(f"size(_fields) <> {len(header)}"),
        F.expr(f"concat('malformed: ', size(_fields), ' fields instead of {len(header)}')"),
    )
    return found, wrong


def _json(texts: DataFrame, source: Files) -> tuple[DataFrame, Expression]:
    fields = parse.json_fields(texts, source)
    found = parse.with_values(fields, parse.json_cells(source), source.schema)
    unsound = f"_json IS NULL OR _json.bad IS NOT NULL OR NOT {parse.is_one_json('value')}"
    wrong = F.when(F.expr(unsound), F.lit("malformed: not a JSON object"))
    if source.new_columns == "fail":
        unknown = f"array_except(json_object_keys(value), {parse.known_names(source)})"
        wrong = wrong.when(F.expr(f"size({unknown}) > 0"), F.expr(f"concat('malformed: unknown field ', {unknown}[0])"))
    return found, wrong


def parquet(spark: SparkSession, root: Path, source: Files, intakes: Sequence[Intake]) -> DataFrame:
    """Rows of Parquet files that have the same columns."""
    named = {column: index for index, column in enumerate(intakes[0].header) if column}
    rows = spark.read.parquet(*(str(root / taken.file.path).translate(_GLOB_SIGNS) for taken in intakes))
    physical = rows.columns
    cells = {c.name: f"`{physical[named[c.name]]}`" if c.name in named else "NULL" for c in source.schema}
    whole = rows.select(
        *(F.expr(f"try_cast({cells[c.name]} AS {c.type})").alias(c.name) for c in source.schema),
        *(F.expr(f"({cells[c.name]}) IS NOT NULL").alias(f"_has_{c.name}") for c in source.schema),
        F.to_json(F.struct(*(f"`{column}`" for column in physical))).cast("binary").alias(RAW),
        F.col("_metadata.file_path").alias("_path"),
        (F.col("_metadata.row_index") + 1).alias(ROW),
    )
    problem = F.when(F.lit(False), F.lit(None).cast("string"))  # noqa: FBT003
    for c in source.schema:
        problem = problem.when(
            F.expr(f"_has_{c.name} AND `{c.name}` IS NULL"), F.lit(f"malformed: {c.name} is not a valid {c.type}")
        )
    joined = whole.join(F.broadcast(_files(spark, root, intakes)), "_path").withColumn(PROBLEM, problem)
    return joined.select(*(quoted(c.name) for c in _columns(source)), ARRIVAL, ROW, RAW, PROBLEM)


def _columns(source: Files) -> tuple[Column, ...]:
    """What a source hands over, but for the line: that is `ROW`."""
    return tuple(column for column in source.columns if column.name != "source_line")


def _files(spark: SparkSession, root: Path, intakes: Sequence[Intake]) -> DataFrame:
    parts = [name for name, _ in intakes[0].file.parts]
    rows: list[tuple[Cell, ...]] = [
        (
            _uri(root / taken.file.path),
            taken.arrival,
            taken.file.path,
            taken.taken_ms,
            *(value for _, value in taken.file.parts),
        )
        for taken in intakes
    ]
    columns = {"_path": "STRING", ARRIVAL: "BIGINT", "source_file": "STRING", "_taken_ms": "BIGINT"}
    frame = small_frame(spark, {**columns, **dict.fromkeys(parts, "STRING")}, rows)
    return frame.withColumn("ingested_at", F.timestamp_millis("_taken_ms"))


def _uri(path: Path) -> str:
    return "file:" + "".join(
        sign if sign in _URI_SAFE or ord(sign) >= _ASCII else f"%{ord(sign):02X}" for sign in str(path)
    )
