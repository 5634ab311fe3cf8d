"""Brings columns of Parquet files to the declared types, as strictly as text is: a value fits, or its row is malformed.

Files of different years may have the same column as INT, BIGINT, DOUBLE or without any type. A number fits a type if
that type has the very same number; a DOUBLE fits a DECIMAL if it is the closest DOUBLE to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from icefield.engine.intake.files.cells import is_plain, values_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_SIMPLE: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}
_DAY_MICROSECONDS = 86_400_000_000


class NoConversion(Exception):
    """A column of a type that has no values of the declared one."""


@dataclass(frozen=True, slots=True)
class Converted:
    """A column of the declared type, NULL where a value does not fit, and where that is."""

    column: pa.Array
    wrong: NDArray[np.bool_]


@cache
def arrow_type(kind: str) -> pa.DataType:
    """The type by which Arrow knows a declared one."""
    if match := _DECIMAL.fullmatch(kind):
        return pa.decimal128(int(match.group(1)), int(match.group(2)))
    return _SIMPLE[kind] if kind in _SIMPLE else _nested_type(kind)


def _nested_type(kind: str) -> pa.DataType:
    """A STRUCT, ARRAY or MAP: Spark itself is not there yet when files are read."""
    word, _, rest = kind.partition("<")
    inner = _parts(rest.removesuffix(">"))
    match word.strip().upper():
        case "ARRAY":
            return pa.list_(arrow_type(inner[0]))
        case "MAP":
            return pa.map_(arrow_type(inner[0]), arrow_type(inner[1]))
        case "STRUCT":
            fields = [part.replace(":", " ", 1).split(None, 1) for part in inner]
            return pa.struct([(name.strip("`"), arrow_type(_plain_word(told))) for name, told in fields])
        case _:
            raise NoConversion(f"{kind} is not a type of files")


def _plain_word(told: str) -> str:
    """A field's type without what may follow it."""
    return re.split(r"\s+(?:NOT\s+NULL|COMMENT)\b", told.strip(), maxsplit=1, flags=re.IGNORECASE)[0].strip()


def _parts(text: str) -> list[str]:
    """What commas separate, outside of brackets."""
    found, depth = [""], 0
    for sign in text:
        depth += (sign in "<(") - (sign in ">)")
        if sign == "," and not depth:
            found.append("")
        else:
            found[-1] += sign
    return [part.strip() for part in found]


def spark_type(kind: pa.DataType) -> str:
    """The type under which an undeclared column of a file is added to a table."""
    kind = _plain(kind)
    for name, known in _SIMPLE.items():
        if kind == known:
            return name
    if pa.types.is_unsigned_integer(kind):
        return "DECIMAL(20,0)" if kind == pa.uint64() else "BIGINT"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz else "TIMESTAMP_NTZ"
    if pa.types.is_date(kind):
        return "DATE"
    return "STRING"


def require_conversion(kind: pa.DataType, declared: str) -> None:
    """Refuses a column of which no value could ever fit, before anything is read."""
    converted(pa.nulls(0, kind), declared, "UTC")


def converted(column: pa.Array, declared: str, zone: str) -> Converted:
    """A column of a file as the declared type; times without a zone are in the given one."""
    column = _decoded(column)
    target = arrow_type(declared)
    if pa.types.is_null(column.type):
        return Converted(pa.nulls(len(column), target), np.zeros(len(column), bool))
    if column.type == target:
        return Converted(column, np.zeros(len(column), bool))
    convert = _conversion(column.type, target)
    if convert is None:
        raise NoConversion(f"{column.type} cannot be converted to {declared}")
    found, fits = convert(column, target, zone)
    ok = pc.fill_null(fits, False) if fits is not None else pc.is_valid(found)  # noqa: FBT003 - Arrow's
    wrong = pc.and_(pc.is_valid(column), pc.invert(ok)).to_numpy(zero_copy_only=False)
    if wrong.any():
        found = pc.if_else(pa.array(wrong), pa.scalar(None, target), found)
    return Converted(found, wrong)


Conversion = Callable[[pa.Array, pa.DataType, str], tuple[pa.Array, pa.Array | None]]


def _conversion(given: pa.DataType, target: pa.DataType) -> Conversion | None:
    numbers = _is_number(given) and _is_number(target)
    if numbers and pa.types.is_floating(given) and pa.types.is_decimal(target):
        return _double_to_decimal
    if numbers:
        return _number_to_number
    if pa.types.is_string(given) and not pa.types.is_string(target):
        return _from_text
    if pa.types.is_string(target):
        return _to_text if _is_number(given) or pa.types.is_boolean(given) or pa.types.is_date(given) else None
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(target):
        return _time_to_time
    if pa.types.is_timestamp(given) and pa.types.is_date(target):
        return _time_to_day
    if pa.types.is_date(given) and (pa.types.is_date(target) or pa.types.is_timestamp(target)):
        return _day_to_time
    if pa.types.is_nested(given) and pa.types.is_nested(target):
        return _nested
    return None


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _decoded(column: pa.Array) -> pa.Array:
    """Without a dictionary, and in the plain form of its type."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    plain = _plain(column.type)
    return column if plain == column.type else column.cast(plain)


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_float16(kind):
        return pa.float32()
    return kind


def _number_to_number(column: pa.Array, target: pa.DataType, _zone: str) -> tuple[pa.Array, pa.Array]:
    """A number is the same in both types, or it does not fit."""
    if pa.types.is_floating(target):
        found = column.cast(target, safe=False)
        # 0.1 as a FLOAT is the FLOAT that text 0.1 is; only what has no counterpart does not fit.
        return found, pc.or_(pc.is_finite(found), pc.invert(pc.is_finite(column.cast(pa.float64(), safe=False))))
    if pa.types.is_floating(column.type):
        whole = pc.and_(pc.is_finite(column), pc.equal(column, pc.round(column)))
        column = pc.if_else(whole, column, pa.scalar(None, column.type))
    if pa.types.is_integer(column.type) and pa.types.is_decimal(target) and target.scale <= _WIDE - _DIGITS:
        column = column.cast(pa.decimal128(_WIDE, target.scale))  # Arrow asks for room for every whole number
    return _one_by_one(column, target)


#: The most digits of a DECIMAL, and those of the largest whole number.
_WIDE, _DIGITS = 38, 20


def _one_by_one(column: pa.Array, target: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """A cast that gives NULL where it is not exact; Arrow itself would refuse the whole column."""
    try:
        found = column.cast(target)
    except pa.ArrowInvalid:
        found = pa.array([_cast_one(value, target) for value in column], target)
    return found, pc.is_valid(found)


def _cast_one(value: pa.Scalar, target: pa.DataType) -> Any:
    try:
        return value.cast(target).as_py()
    except pa.ArrowInvalid:
        return None


def _double_to_decimal(column: pa.Array, target: pa.DataType, _zone: str) -> tuple[pa.Array, pa.Array]:
    """The decimal of which a DOUBLE is the closest one: 0.1 is no binary number, and yet nobody means another."""
    wide = column.cast(pa.float64())
    finite = pc.and_(pc.is_finite(wide), pc.less(pc.abs(wide), 10.0 ** (target.precision - target.scale)))
    rounded = pc.round(pc.if_else(finite, wide, pa.scalar(None, pa.float64())), ndigits=target.scale)
    found, _ = _one_by_one_rounded(rounded, target)
    # Sums of money that were computed in binary are off by some units in the last place.
    near = pc.less_equal(pc.abs(pc.subtract(wide, rounded)), pc.multiply(pc.add(pc.abs(wide), 1.0), _NOISE))
    return found, pc.and_(pc.is_valid(found), near)


#: How much a DOUBLE may be off for its size.
_NOISE = 1e-12


def _one_by_one_rounded(column: pa.Array, target: pa.DataType) -> tuple[pa.Array, pa.Array]:
    try:
        found = column.cast(target, safe=False)
    except pa.ArrowInvalid:
        return _one_by_one(column, target)
    return found, pc.is_valid(found)


def _from_text(column: pa.Array, target: pa.DataType, zone: str) -> tuple[pa.Array, pa.Array]:
    """Text in a column of text, as a cell of a CSV file in its plainest form."""
    kind = next((name for name, known in _SIMPLE.items() if known == target), None)
    if pa.types.is_decimal(target):
        kind = f"DECIMAL({target.precision},{target.scale})"
    if kind is None or not is_plain(kind):
        raise NoConversion(f"{column.type} cannot be converted to {target}")
    if kind == "TIMESTAMP" and zone != "UTC":
        found = values_of(column, "TIMESTAMP_NTZ")
        return _in_zone(found.column, zone), pc.is_valid(found.column)
    found = values_of(column, kind)
    return found.column.cast(target), pc.is_valid(found.column)


def _to_text(column: pa.Array, target: pa.DataType, _zone: str) -> tuple[pa.Array, None]:
    return column.cast(target), None


def _in_zone(column: pa.Array, zone: str) -> pa.Array:
    local = pc.assume_timezone(column, zone, ambiguous="earliest", nonexistent="latest")
    return local.cast(pa.timestamp("us", "UTC"))


def _time_to_time(column: pa.Array, target: pa.DataType, zone: str) -> tuple[pa.Array, pa.Array]:
    if target.tz is None and column.type.tz is not None:
        raise NoConversion(f"{column.type} has a time zone, and {target} has none")
    exact = _exact_microseconds(column)
    micro = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    if target.tz is not None and column.type.tz is None:
        return _in_zone(micro, zone), exact
    return micro.cast(target), exact


def _exact_microseconds(column: pa.Array) -> pa.Array:
    """Where nothing is lost of a time in nanoseconds."""
    if column.type.unit != "ns":
        return pc.is_valid(column)
    return pc.equal(pc.nanosecond(column), 0)


def _time_to_day(column: pa.Array, target: pa.DataType, _zone: str) -> tuple[pa.Array, pa.Array]:
    """A time is a day at midnight, as the file tells it."""
    if column.type.tz is not None:
        raise NoConversion(f"{column.type} has a time zone, and {target} has none")
    micro = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    days = pc.floor(pc.divide(micro.cast(pa.float64()), float(_DAY_MICROSECONDS))).cast(pa.int64())
    midnight = pc.equal(pc.multiply(days, _DAY_MICROSECONDS), micro)
    return days.cast(pa.int32()).cast(target), midnight


def _day_to_time(column: pa.Array, target: pa.DataType, zone: str) -> tuple[pa.Array, pa.Array]:
    if pa.types.is_date(target):
        return column.cast(target), pc.is_valid(column)
    naive = column.cast(pa.date32()).cast(pa.timestamp("us"))
    found = naive if target.tz is None else _in_zone(naive, zone)
    return found, pc.is_valid(column)


def _nested(column: pa.Array, target: pa.DataType, _zone: str) -> tuple[pa.Array, pa.Array]:
    if pa.types.is_struct(target) and pa.types.is_struct(column.type):
        known = {column.type.field(n).name for n in range(column.type.num_fields)}
        if missing := [target.field(n).name for n in range(target.num_fields) if target.field(n).name not in known]:
            raise NoConversion(f"{column.type} has no field {missing[0]}")
    try:
        found = column.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        if len(column) == 0:
            raise NoConversion(str(error)) from error
        raise NoConversion(f"{column.type} cannot be converted to {target}: {error}") from error
    return found, pc.is_valid(found)
