"""From lines of text to typed columns, losing nothing: what does not fit its declared type is told, with its bytes.

Spark's own readers would take `1.999` as 2.00, replace bytes that are not UTF-8, and accept a permuted header. So lines
are read as they are, cut into fields here, and each field must denote exactly one value of its type.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame

    from icefield.declare import Column, Files

#: A longer line is not parsed; this much of it is kept, with its length and hash.
LINE_LIMIT = 1 << 20
ORIGIN, PROBLEM = "_icefield", "_icefield_problem"
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")


def csv_fields(lines: DataFrame, source: Files, header: Sequence[str]) -> DataFrame:
    """Adds `_fields`, the cells of each line as text (NULL where empty), and `_count`, how many there were."""
    separator, quote = source.options.get("sep", ","), source.options.get("quote", '"')
    pattern = _sql_text(re.escape(separator))
    names = [f"c{index}" for index in range(len(header))]
    schema = ", ".join(f"{name} STRING" for name in names) + ", bad STRING"
    options = {"sep": separator, "quote": quote, "escape": quote, "columnNameOfCorruptRecord": "bad", "maxCharsPerColumn": "-1"}
    quoted = F.from_csv("value", schema, options)
    cells = F.array(*(F.col("_quoted")[name] for name in names))
    # Almost every line has no quote in it, and splitting is half the price of a CSV parser.
    return (
        lines.withColumn("_quoted", F.when(F.instr("value", quote) > 0, quoted))
        .withColumn("_fields", F.expr(f"split(value, {pattern})"))
        .withColumn("_fields", F.when(F.col("_quoted").isNull(), F.col("_fields")).when(F.col("_quoted.bad").isNull(), cells))
        .drop("_quoted")
    )


def csv_cells(header: Sequence[str], columns: Sequence[Column]) -> dict[str, str]:
    """For each declared column, the SQL that gives its cell as text; NULL where the file does not have it."""
    places = {name: index for index, name in enumerate(header) if name}
    return {
        column.name: f"nullif(get(_fields, {places[column.name]}), '')" if column.name in places else "CAST(NULL AS STRING)"
        for column in columns
    }


def typed(cell: str, column: Column) -> Expression:
    """A cell as a value of its type, NULL where it is none."""
    return F.expr(cell if column.type == "STRING" else f"try_cast({cell} AS {column.type})").alias(column.name)


def problem(columns: Sequence[Column], cells: dict[str, str], fields: int) -> Expression:
    """Why a line is malformed, NULL where it is not; the first reason counts."""
    found = F.when(F.expr(f"octet_length(value) > {LINE_LIMIT}"), F.expr(_too_long()))
    found = found.when(F.expr("NOT is_valid_utf8(value)"), F.lit("malformed: the line is not UTF-8"))
    found = found.when(F.expr("_fields IS NULL"), F.lit("malformed: quotes or number of fields are wrong"))
    found = found.when(
        F.expr(f"size(_fields) <> {fields}"), F.expr(f"concat('malformed: ', size(_fields), ' fields instead of {fields}')")
    )
    for column in columns:
        if column.type != "STRING":
            told = f"malformed: {column.name} is no {column.type}"
            found = found.when(F.expr(_does_not_fit(cells[column.name], column.type)), F.lit(told))
    return found.alias(PROBLEM)


def _does_not_fit(cell: str, kind: str) -> str:
    """SQL that is TRUE where a cell's text does not denote exactly one value of the type."""
    unreadable = f"try_cast({cell} AS {kind}) IS NULL"
    lossy = "false"
    if kind == "TIMESTAMP":
        # A cast alone would take `2026` for a day, `12:30` for a time of today, and cut a seventh decimal off.
        lossy = (
            f"substring(ltrim({cell}), 5, 1) <> '-' OR length({cell}) < 10"
            f" OR (length({cell}) > 26 AND {cell} RLIKE '[.][0-9]{{7,}}')"
        )
    elif kind == "DATE":
        lossy = f"length(trim({cell})) NOT BETWEEN 8 AND 10"
    elif match := _DECIMAL.fullmatch(kind):
        precision, scale = int(match.group(1)), int(match.group(2))
        wide = f"DECIMAL(38,{38 - (precision - scale)})"
        # Only a cell with more than `scale` characters behind its point can lose anything.
        lossy = (
            f"length({cell}) - locate('.', {cell}) > {scale}"
            f" AND (length({cell}) > 38 OR try_cast({cell} AS {wide}) <> try_cast({cell} AS {kind}))"
        )
    return f"({cell}) IS NOT NULL AND ({unreadable} OR coalesce({lossy}, true))"


def _too_long() -> str:
    return "concat('malformed: the line has ', octet_length(value), ' bytes, sha256 ', sha2(CAST(value AS BINARY), 256))"


def _sql_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
