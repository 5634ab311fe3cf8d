"""From lines of text to typed columns, losing nothing: what does not fit its declared type is told, with its bytes.

Spark's own readers would take `1.999` as 2.00, replace bytes that are not UTF-8, and accept a permuted header. So lines
are read as they are, cut into fields here, and each field must denote exactly one value of its type. Most lines never
come here: `cells` knows the common forms, and this module is what they have to agree with.
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

_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")


def csv_fields(lines: DataFrame, source: Files, header: Sequence[str]) -> DataFrame:
    """Adds `_fields`, the cells of each line as text; NULL where its quotes or number of fields are wrong."""
    separator, quote = source.sep, source.quote
    pattern, sign = _sql_text(re.escape(separator)), _sql_text(quote)
    names = [f"c{index}" for index in range(len(header))]
    schema = ", ".join(f"{name} STRING" for name in names) + ", bad STRING"
    options = {
        "sep": separator,
        "quote": quote,
        "escape": quote,
        "columnNameOfCorruptRecord": "bad",
        "maxCharsPerColumn": "-1",
    }
    quoted = F.from_csv("value", schema, options)
    cells = F.array(*(F.col("_quoted")[name] for name in names))
    plain = f"instr(value, {sign}) = 0"
    # Almost every line has no quote in it, and splitting is half the price of a CSV parser. The parser in turn takes
    # quotes anywhere, so a line with some must first be one that a CSV writer would have written.
    well_quoted = f"NOT ({plain}) AND value RLIKE {_sql_text(_well_quoted(separator, quote))}"
    return (
        lines.withColumn("_quoted", F.when(F.expr(well_quoted), quoted))
        .withColumn("_fields", F.expr(f"CASE WHEN {plain} THEN split(value, {pattern}) END"))
        .withColumn(
            "_fields", F.when(F.expr("_quoted.bad IS NULL AND _quoted IS NOT NULL"), cells).otherwise(F.col("_fields"))
        )
        .drop("_quoted")
    )


def _well_quoted(separator: str, quote: str) -> str:
    """A regular expression for lines whose every field is either quoted as a whole or has no quote in it."""
    s, q = re.escape(separator), re.escape(quote)
    field = f"(?:{q}[^{q}]*+(?:{q}{q}[^{q}]*+)*+{q}|[^{q}{s}]*+)"
    return f"^{field}(?:{s}{field})*+$"


def csv_cells(header: Sequence[str], source: Files) -> list[str]:
    """For each declared column, the SQL that gives its cell as text; NULL where the file does not have it."""
    places = {name: index for index, name in enumerate(header) if name}
    found = [places.get(column.name) for column in source.schema]
    return ["CAST(NULL AS STRING)" if place is None else _csv_cell(place, source) for place in found]


def _csv_cell(place: int, source: Files) -> str:
    cell = f"nullif(get(_fields, {place}), '')"
    if not source.null_values:
        return cell
    return f"CASE WHEN {cell} NOT IN ({', '.join(map(_sql_text, source.null_values))}) THEN {cell} END"


def json_fields(lines: DataFrame, source: Files) -> DataFrame:
    """Adds `_json`, the fields of each line as text; numbers and nested values as JSON writes them."""
    schema = ", ".join(f"`{column.name}` STRING" for column in source.schema) + ", bad STRING"
    options = {"columnNameOfCorruptRecord": "bad", "mode": "PERMISSIVE"}
    return lines.withColumn("_json", F.from_json("value", schema, options))


def json_cells(source: Files) -> list[str]:
    """For each declared column, the SQL that gives its field as text, under whichever of its names it has."""
    cells = []
    for column in source.schema:
        former = [f"get_json_object(value, {_sql_text(f'$.{name}')})" for name in source.aliases.get(column.name, ())]
        own = f"_json.`{column.name}`"
        cells.append(f"coalesce({', '.join([own, *former])})" if former else own)
    return cells


def known_names(source: Files) -> str:
    """SQL array of every name a field may have."""
    names = [name for column in source.schema for name in (column.name, *source.aliases.get(column.name, ()))]
    return f"array({', '.join(_sql_text(name) for name in names)})"


def with_values(lines: DataFrame, cells: Sequence[str], source: Files) -> DataFrame:
    """Adds each cell as text (`_cell_0`, ...) and as a value of its type (`_value_0`, ...), NULL where it is none.

    One step after the other: Spark then computes each once. In one expression it would repeat them in every place,
    and compiling that takes longer than reading the files.
    """
    texts = {f"_cell_{n}": F.expr(cell) for n, cell in enumerate(cells)}
    values = {f"_value_{n}": F.expr(_value(f"_cell_{n}", c.type, source)) for n, c in enumerate(source.schema)}
    return lines.withColumns(texts).withColumns(values)


def values(columns: Sequence[Column]) -> list[Expression]:
    """The values under the names of their columns."""
    return [F.col(f"_value_{n}").alias(column.name) for n, column in enumerate(columns)]


def cell_problems(found: Expression, source: Files) -> Expression:
    """Why a line is malformed, NULL where it is not; the first reason counts."""
    for n, column in enumerate(source.schema):
        if column.type != "STRING":
            told = f"malformed: {column.name} is not a valid {column.type}"
            fits = _does_not_fit(f"_cell_{n}", f"_value_{n}", column.type, source)
            found = found.when(F.expr(fits), F.lit(told))
    return found


def _value(cell: str, kind: str, source: Files) -> str:
    if kind == "STRING":
        return cell
    if kind.startswith(("STRUCT", "ARRAY", "MAP")):
        return _nested(cell, kind)
    if pattern := _pattern(kind, source):
        return f"CAST(try_to_timestamp({cell}, {_sql_text(pattern)}) AS {kind})"
    if kind in _WHOLE:  # `1.0` is 1, as whoever writes columns of numbers with gaps spells it
        whole = f"CASE WHEN locate('.', {cell}) > 1 THEN regexp_replace({cell}, '[.]0+$', '') ELSE {cell} END"
        return f"try_cast({whole} AS {kind})"
    return f"try_cast({cell} AS {kind})"


_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT")


def _pattern(kind: str, source: Files) -> str:
    """How days and times are written, where the author says it."""
    if kind == "DATE":
        return source.date_format
    return source.timestamp_format if kind in ("TIMESTAMP", "TIMESTAMP_NTZ") else ""


def _nested(cell: str, kind: str) -> str:
    """SQL for the value of a JSON text, NULL where not all of the text is a value of the type.

    Spark gives a struct of NULLs for a text that is no object, and NULL for a part that does not fit; only beside a
    whole record does it tell that something was wrong.
    """
    schema, options = _sql_text(f"STRUCT<value:{kind},bad:STRING>"), "map('columnNameOfCorruptRecord', 'bad')"
    record = f"""from_json(concat('{{"value":', {cell}, '}}'), {schema}, {options})"""
    sound = f"get(filter(array({record}), one -> one.bad IS NULL), 0).value"
    return f"CASE WHEN {is_one_json(cell)} THEN {sound} END"


def is_one_json(text: str) -> str:
    """SQL that is TRUE where a text is one JSON value, with nothing behind it: Spark's parser would not look there.

    What closes a list too early is no object, and what closes an object too early is no list.
    """
    alone = f"json_array_length(concat('[', {text}, ']')) = 1"
    return f"""coalesce({alone} AND size(json_object_keys(concat('{{"value":', {text}, '}}'))) = 1, false)"""


def _does_not_fit(cell: str, value: str, kind: str, source: Files) -> str:
    """SQL that is TRUE where a cell's text does not denote exactly one value of the type."""
    loses = "" if _pattern(kind, source) else _loses(cell, value, kind)
    more = f" OR coalesce({loses}, true)" if loses else ""
    return f"{cell} IS NOT NULL AND ({value} IS NULL OR {cell} <> trim({cell}){more})"


def _loses(cell: str, value: str, kind: str) -> str:
    """SQL that is TRUE where a cast succeeds, but gives another value than the text says; "" where it cannot."""
    if kind == "TIMESTAMP":
        # A cast alone would take `2026` for a day, `12:30` for a time of today, and cut a seventh decimal off.
        short = f"substring({cell}, 5, 1) <> '-' OR length({cell}) < 10"
        return f"{short} OR (length({cell}) > 26 AND {cell} RLIKE '[.][0-9]{{7,}}')"
    if kind == "TIMESTAMP_NTZ":
        # The same, and a cast would drop a zone, though it says which moment is meant.
        return f"NOT ({cell} RLIKE '^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}([ T][0-9:]+([.][0-9]{{0,6}})?)?$')"
    if kind == "DATE":
        return f"length({cell}) NOT BETWEEN 8 AND 10"
    if kind in ("FLOAT", "DOUBLE"):
        return f"NOT (abs({value}) < double('Infinity'))"  # NaN is greater than all
    if match := _DECIMAL.fullmatch(kind):
        precision, scale = int(match.group(1)), int(match.group(2))
        wide = f"DECIMAL(38,{38 - (precision - scale)})"
        # Only a cell with more than `scale` characters behind its point can lose anything.
        more = f"length({cell}) - locate('.', {cell}) > {scale}"
        other = f"length({cell}) > 38 OR try_cast({cell} AS {wide}) <> {value}"
        return f"locate('e', lower({cell})) > 0 OR ({more} AND ({other}))"
    return ""


def _sql_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
