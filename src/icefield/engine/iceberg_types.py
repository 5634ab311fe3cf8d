"""The columns of an Iceberg table as Spark has them, from the table's metadata alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from icefield.lake import metadata as meta

if TYPE_CHECKING:
    from icefield.lake.metadata import Metadata

_KINDS: dict[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "timestamp": TimestampNTZType(),
    "timestamptz": TimestampType(),
    "string": StringType(),
    "binary": BinaryType(),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


def spark_schema(metadata: Metadata) -> StructType | None:
    """The columns that a table has now; None where Spark has no such type, or another one for it."""
    try:
        return _struct(meta.schema(metadata)["fields"])
    except KeyError:
        return None


def _struct(fields: list[dict[str, Any]]) -> StructType:
    return StructType([StructField(field["name"], _kind(field["type"])) for field in fields])


def _kind(kind: Any) -> DataType:
    if isinstance(kind, str):
        decimal = _DECIMAL.fullmatch(kind)
        return DecimalType(int(decimal[1]), int(decimal[2])) if decimal else _KINDS[kind]
    match kind["type"]:
        case "struct":
            return _struct(kind["fields"])
        case "list":
            return ArrayType(_kind(kind["element"]))
        case _:
            return MapType(_kind(kind["key"]), _kind(kind["value"]))
