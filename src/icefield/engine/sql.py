"""Names and values as SQL text, and columns chosen by it.

Every call of a Column's method is a call to Java, and so is letting go of what it returned: a dozen columns chosen one
by one take longer than a small query. Text takes the same few calls however many columns there are.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import DataType, StructType

_BETWEEN = "\x1f"
#: Types that can be written in SQL as Python writes them: without names that need quotes.
_PLAIN_TYPE = re.compile(r"[\w(),<>:]+")


def quoted(name: str) -> str:
    """A name for SQL text."""
    return "`" + name.replace("`", "``") + "`"


def text(value: str) -> str:
    """A literal for SQL text."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def selected(frame: DataFrame, expressions: Sequence[str]) -> DataFrame:
    """What `selectExpr` gives, by as few calls to Java as possible."""
    java: Any = getattr(frame.sparkSession, "_jvm", None)
    if java is None or not expressions or any(_BETWEEN in one for one in expressions):
        return frame.selectExpr(*expressions)
    parts = java.org.apache.commons.lang3.StringUtils.split(_BETWEEN.join(expressions), _BETWEEN)
    return DataFrame(frame._jdf.selectExpr(parts), frame.sparkSession)


def columns_of(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """Some columns, in this order; the frame itself where it has no others."""
    return frame if frame.columns == list(names) else selected(frame, [quoted(name) for name in names])


def fitted(frame: DataFrame, schema: StructType) -> DataFrame:
    """The columns of a schema, in its types; the frame itself where these are its own."""
    given = {field.name: field.dataType.simpleString() for field in frame.schema}
    wanted = {field.name: field.dataType.simpleString() for field in schema}
    if list(given.items()) == list(wanted.items()):
        return frame
    if all(_PLAIN_TYPE.fullmatch(kind) for name, kind in wanted.items() if given.get(name) != kind):
        chosen = [
            quoted(n) if given.get(n) == kind else f"CAST({quoted(n)} AS {kind}) AS {quoted(n)}"
            for n, kind in wanted.items()
        ]
        return selected(frame, chosen)
    return frame.select(*(_cast(frame, name, schema[name].dataType) for name in wanted))


def _cast(frame: DataFrame, name: str, kind: DataType) -> Any:
    return frame[quoted(name)].cast(kind).alias(name)
