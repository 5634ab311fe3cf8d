"""JSON objects turned into columns without Spark, where their form leaves no doubt; the rest is left to `parse`."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from icefield.engine.intake.files.cells import is_plain
from icefield.engine.intake.files.classify import BOM, Classified, typed
from icefield.engine.intake.files.splits import LINE_LIMIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from icefield.declare import Files

Text = str | None


class _DoubtError(ValueError):
    """What this text means is for `parse` to say."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _DoubtError
    return found


def _constant(_name: str) -> None:
    raise _DoubtError


class _Fraction(str):
    """A number with a fraction or an exponent, as it is written."""

    __slots__ = ()


#: Numbers stay as they are written: 1.10 is a text like any other until its column says what it is.
_decode = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_Fraction, parse_int=str, parse_constant=_constant
).decode


class JsonObjects:
    """Classifies texts that should be JSON objects with known fields."""

    def __init__(self, source: Files, zone: str, noun: str = "line", limit: int = LINE_LIMIT) -> None:
        self._source = source
        self._limit = limit
        self._noun = noun
        self._limit = limit
        kinds = {column.type for column in source.schema}
        formats = source.date_format or source.timestamp_format
        in_utc = zone == "UTC" or "TIMESTAMP" not in kinds
        self._has_plain_form = in_utc and not formats and all(is_plain(kind) for kind in kinds)
        self._columns = [column.name for column in source.schema]
        self._text_columns = {column.name for column in source.schema if column.type == "STRING"}
        self._known = set(self._columns) | {name for names in source.aliases.values() for name in names}
        self._lower = {name.lower() for name in self._known}

    def classify(self, texts: Sequence[bytes]) -> Classified:
        """What becomes of each text, by its place."""
        malformed: dict[int, str] = {}
        undecided = np.zeros(len(texts), bool)
        rows: list[list[Text]] = []
        places: list[int] = []
        for at, raw in enumerate(texts):
            try:
                rows.append(self._cells(raw))
                places.append(at)
            except _MalformedError as problem:
                malformed[at] = f"malformed: {problem}"
            except (ValueError, RecursionError):
                undecided[at] = True
        if not rows:
            return Classified(undecided=np.flatnonzero(undecided), malformed=malformed)
        columns = list(zip(*rows, strict=True))
        cells = [_as_column(column) for column in columns]
        return typed(self._source.schema, cells, np.array(places, np.intp), undecided, malformed)

    def _cells(self, raw: bytes) -> list[Text]:
        """The fields of one object as text; numbers as they are written."""
        if len(raw) > self._limit:
            raise _MalformedError(f"the {self._noun} has {len(raw)} bytes, sha256 {hashlib.sha256(raw).hexdigest()}")
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            raise _MalformedError(f"the {self._noun} is not UTF-8") from None
        if not self._has_plain_form or raw.startswith(BOM):
            raise _DoubtError
        found = _decode(text)
        if not isinstance(found, dict):
            raise _DoubtError
        if not found.keys() <= self._known:
            self._refuse_unknown(found)
        return [self._cell(found, name) for name in self._columns]

    def _refuse_unknown(self, found: dict[str, Any]) -> None:
        unknown = [name for name in found if name not in self._known]
        if any(name.lower() in self._lower for name in unknown):
            raise _DoubtError
        if self._source.new_columns != "ignore":
            raise _MalformedError(f"unknown field {unknown[0]}")

    def _cell(self, found: dict[str, Any], name: str) -> Text:
        value = found.get(name)
        if value is None:
            former = [found.get(alias) for alias in self._source.aliases.get(name, ())]
            value = next((one for one in former if one is not None), None)
        if value is None:
            return None
        if value is True or value is False:
            return "true" if value else "false"
        if not isinstance(value, str):
            raise _DoubtError
        if name in self._text_columns:
            if isinstance(value, _Fraction) or value == "-0":  # Spark writes such numbers in its own way
                raise _DoubtError
            if not value.isascii():
                value.encode()  # half of a surrogate pair is no text
        return value


class _MalformedError(Exception):
    """This text is no object with the declared fields."""


def _as_column(texts: Sequence[Text]) -> pa.Array:
    try:
        return pa.array(texts, pa.string())
    except (UnicodeEncodeError, pa.ArrowException):  # no number and no time has such signs
        return pa.array([text if text is None or text.isascii() else "?" for text in texts], pa.string())
