"""Cells in their plainest form, turned into values by Arrow: fast, and only where the form leaves no doubt.

`parse` decides what every text means. Here are, for each type, the texts of which that is known beforehand: they
denote one value, or none at all. Whatever is in neither set is left for `parse` to decide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Days of which no calendar has to be asked whether they exist: 29 February is left to `parse`.
_DAY = (
    "(?:19|20)[0-9]{2}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])"
    "|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
)
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
# Java takes digits of any script for a number.
_NO_DIGIT, _NOTHING = re.compile(r"\D+"), re.compile(r"(?!)")
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
#: So few that deciding them one by one costs nothing.
_FEW = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Texts of a type: those that match `plain` are cast to `type`; those that match `never` are no value of it."""

    type: pa.DataType
    plain: str
    never: re.Pattern[str] = _NO_DIGIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """A column as values, NULL where undecided or wrong: `unsure` is for `parse` to decide, `wrong` is no value."""

    column: pa.Array
    unsure: NDArray[np.intp]
    wrong: NDArray[np.intp]


_NONE: NDArray[np.intp] = np.empty(0, np.intp)
_WHOLE = {"TINYINT": (pa.int8(), 2), "SMALLINT": (pa.int16(), 4), "INT": (pa.int32(), 9), "BIGINT": (pa.int64(), 18)}
_OTHER = {
    "BOOLEAN": Form(type=pa.bool_(), plain="^(?:true|false)$", never=_NOTHING),
    "DATE": Form(type=pa.date32(), plain=f"^{_DAY}$"),
    "TIMESTAMP": Form(type=pa.timestamp("us"), plain=f"^{_DAY}[ T]{_TIME}$"),
    "TIMESTAMP_NTZ": Form(type=pa.timestamp("us"), plain=f"^{_DAY}[ T]{_TIME}$"),
    "FLOAT": Form(type=pa.float32(), plain=r"^-?[0-9]{1,15}(?:\.[0-9]{1,15})?$"),
    "DOUBLE": Form(type=pa.float64(), plain=r"^-?[0-9]{1,15}(?:\.[0-9]{1,15})?$"),
}


@cache
def form_of(kind: str) -> Form | None:
    """The plain form of a type; None where there is none."""
    if kind in _WHOLE:
        type_, digits = _WHOLE[kind]
        return Form(type=type_, plain=f"^-?[0-9]{{1,{digits}}}$")
    match = _DECIMAL.fullmatch(kind)
    if match is None:
        return _OTHER.get(kind)
    precision, scale = int(match.group(1)), int(match.group(2))
    if precision == scale:
        return None
    whole = f"-?[0-9]{{1,{precision - scale}}}"
    more = rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""
    # Digits behind the declared ones that are not all 0 would be lost.
    lossy = rf"{whole}\.[0-9]{{{scale}}}(?=[0-9]*[1-9])[0-9]{{1,{38 - precision}}}" if precision < 38 else "(?!)"
    return Form(type=pa.decimal128(precision, scale), plain=f"^{whole}{more}$", never=re.compile(rf"\D+|{lossy}"))


def is_plain(kind: str) -> bool:
    """Whether cells of a type can be decided here at all."""
    return kind == "STRING" or form_of(kind) is not None


def values_of(cells: pa.Array, kind: str) -> Values:
    """The cells of one column as values."""
    form = form_of(kind)
    if form is None:
        assert kind == "STRING"
        return Values(column=cells, unsure=_NONE, wrong=_NONE)
    if kind in _WHOLE:
        cells = _without_zeros(cells)
    if kind == "TIMESTAMP":
        cells = _without_utc(cells)
    at_once = _at_once(cells, kind, form)
    if at_once is not None:
        return Values(column=at_once, unsure=_NONE, wrong=_NONE)
    fits = pc.fill_null(pc.match_substring_regex(cells, form.plain), True)  # noqa: FBT003 - Arrow's
    odd = np.flatnonzero(~fits.to_numpy(zero_copy_only=False))
    if len(odd):
        cells, texts = pc.if_else(fits, cells, pa.scalar(None, pa.string())), cells
        wrong = np.array([len(odd) <= _FEW and bool(form.never.fullmatch(texts[int(at)].as_py())) for at in odd])
    else:
        wrong = np.empty(0, bool)
    return Values(column=_cast(cells, kind, form), unsure=odd[~wrong], wrong=odd[wrong])


def _without_zeros(cells: pa.Array) -> pa.Array:
    """Whole numbers without zeros behind a point: `1.0` is 1."""
    if not pc.any(pc.match_substring(cells, ".")).as_py():
        return cells
    return pc.replace_substring_regex(cells, r"^(-?[0-9]+)\.0+$", r"\1")


def _without_utc(cells: pa.Array) -> pa.Array:
    """Times without the sign for UTC, in which they are read anyway."""
    if not pc.any(pc.ends_with(cells, "Z")).as_py():
        return cells
    return pc.replace_substring_regex(cells, r"([0-9])Z$", r"\1")


def _cast(cells: pa.Array, kind: str, form: Form) -> pa.Array:
    column = pc.cast(cells, form.type)
    return column.cast(pa.timestamp("us", "UTC")) if kind == "TIMESTAMP" else column


def _at_once(cells: pa.Array, kind: str, form: Form) -> pa.Array | None:
    """All values of a column, where Arrow takes every cell and what more it would take is quickly ruled out.

    Arrow reads whole numbers as digits with a sign or as 0x and digits, and times from a day alone to a fraction of a
    second, in the years 0 to 9999. It takes longer to match every cell with a pattern than to cast it.
    """
    if kind not in _WHOLE and kind not in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        return None
    try:
        column = pc.cast(cells, form.type)
    except pa.ArrowInvalid:
        return None
    if kind in _WHOLE:
        hexadecimal = pc.any(pc.match_substring(cells, "x", ignore_case=True)).as_py()
        return None if hexadecimal else column
    span, lengths = pc.min_max(column), pc.min_max(pc.binary_length(cells))
    if lengths["min"].as_py() is None:
        return _cast(cells, kind, form)
    years = range(1900, 2100)
    usual = span["min"].as_py().year in years and span["max"].as_py().year in years
    whole = lengths["min"].as_py() >= len("2026-08-01 10:00:00")
    return _cast(cells, kind, form) if usual and whole else None
