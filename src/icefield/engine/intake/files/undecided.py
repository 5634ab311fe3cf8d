"""Lines that were left to Spark's parser, as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from icefield.declare import format_columns
from icefield.engine.intake.files import parse
from icefield.engine.origin import ARRIVAL, LINE, ORIGIN, PROBLEM, RAW, ROW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame, SparkSession

    from icefield.declare import Column, Files
    from icefield.engine.intake.files.reading import Undecided


def schema(source: Files) -> str:
    """The columns of every row that was taken in."""
    return f"{format_columns(_columns(source))}, {ORIGIN}, {RAW} BINARY, {PROBLEM} STRING"


def lines(spark: SparkSession, source: Files, left: Undecided) -> DataFrame:
    """Lines that were left to be decided here."""
    provenance = format_columns(_columns(source)[len(source.schema) :])
    stored = spark.read.schema(f"value BINARY, {provenance}, {ORIGIN}").parquet(*left.sheets.paths)
    texts = stored.withColumn("value", F.col("value").cast("string"))
    if left.format == "csv":
        found, wrong = _csv(texts, source, left.header)
    else:
        found, wrong = json_values(texts, source)
    problem = parse.cell_problems(wrong, source)
    # The bytes of a good line can be fetched from its file, should it be set aside later.
    raw = F.when(F.col(PROBLEM).isNotNull(), F.col("value").cast("binary"))
    provided = [column.name for column in _columns(source)[len(source.schema) :]]
    decided = found.withColumn(PROBLEM, problem)
    return decided.select(*parse.values(source.schema), *provided, ARRIVAL, ROW, LINE, raw.alias(RAW), PROBLEM)


def _csv(texts: DataFrame, source: Files, header: Sequence[str]) -> tuple[DataFrame, Expression]:
    fields = parse.csv_fields(texts, source, header)
    found = parse.with_values(fields, parse.csv_cells(header, source), source)
    wrong = F.when(F.expr("_fields IS NULL"), F.lit("malformed: wrong quoting or number of fields"))
    wrong = wrong.when(
        F.expr(f"size(_fields) <> {len(header)}"),
        F.expr(f"concat('malformed: ', size(_fields), ' fields instead of {len(header)}')"),
    )
    return found, wrong


def json_values(texts: DataFrame, source: Files) -> tuple[DataFrame, Expression]:
    """The fields of JSON objects as values, and the beginning of what may be wrong with them."""
    fields = parse.json_fields(texts, source)
    found = parse.with_values(fields, parse.json_cells(source), source)
    unsound = f"_json IS NULL OR _json.bad IS NOT NULL OR NOT {parse.is_one_json('value')}"
    wrong = F.when(F.expr(unsound), F.lit("malformed: not a JSON object"))
    if source.new_columns != "ignore":
        unknown = f"array_except(json_object_keys(value), {parse.known_names(source)})"
        wrong = wrong.when(F.expr(f"size({unknown}) > 0"), F.expr(f"concat('malformed: unknown field ', {unknown}[0])"))
    return found, wrong


def _columns(source: Files) -> tuple[Column, ...]:
    """What a source hands over, but for the line: that is `LINE`."""
    return tuple(column for column in source.columns if column.name != "source_line")
