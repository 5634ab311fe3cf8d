"""Values as Debezium writes them into JSON, turned into Spark's types: SQL text over the text of one value.

A value that does not fit its type becomes NULL, and is never rounded or cut.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid

#: What stands for infinite dates and times: days that Python can show in every time zone, which tries the day before.
FIRST_DAY, LAST_DAY = "0001-01-03", "9999-12-31"
#: Days by which Debezium tells a DATE of infinity: Postgres' own number, moved to another epoch until it overflows.
_INFINITE_DAY, _MINUS_INFINITE_DAY = -2_147_472_692, -2_147_472_691
_DAYS = (-719_162, 2_932_896)
_MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_INFINITE_MICROS, _MINUS_INFINITE_MICROS = 9_223_372_036_825_200_000, -9_223_372_036_832_400_000
#: Infinity as text: Debezium 3.6 sends the word, others have sent the years 294247 and 292278994, or before Christ.
_INFINITE, _MINUS_INFINITE = "^(infinity$|[+]29[0-9]{4}-|[+]29[0-9]{7}-)", "^-(infinity$|29[0-9]{4}-|29[0-9]{7}-)"
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_DIGITS = 38


def converted(text: str, kind: str, *, milliseconds: bool = False) -> str:
    """SQL that turns the text of a JSON value into a type; NULL where it does not fit."""
    if kind == "STRING":
        return text
    if kind == "BINARY":
        return f"try_to_binary({text}, 'base64')"
    if kind == "DATE":
        return _date(text)
    if kind in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        return _timestamp(text, kind, 1000 if milliseconds else 1)
    if match := _DECIMAL.fullmatch(kind):
        return _decimal(text, int(match[1]), int(match[2]))
    if kind.startswith(("ARRAY<", "STRUCT<")):
        return f"from_json({text}, '{kind}')"
    return f"try_cast({text} AS {kind})"


def _decimal(text: str, digits: int, places: int) -> str:
    """A cast alone would round."""
    exact, wide = f"try_cast({text} AS DECIMAL({digits},{places}))", _DIGITS - (digits - places)
    return f"CASE WHEN {exact} = try_cast({text} AS DECIMAL({_DIGITS},{wide})) THEN {exact} END"


def _date(text: str) -> str:
    days = f"try_cast({text} AS BIGINT)"
    return (
        f"CASE WHEN {days} = {_INFINITE_DAY} OR {text} = 'infinity' THEN DATE '{LAST_DAY}'"
        f" WHEN {days} = {_MINUS_INFINITE_DAY} OR {text} = '-infinity' THEN DATE '{FIRST_DAY}'"
        f" WHEN {days} BETWEEN {_DAYS[0]} AND {_DAYS[1]} THEN date_from_unix_date(int({days}))"
        f" WHEN {days} IS NULL THEN try_cast(regexp_replace({text}, 'Z$', '') AS DATE) END"
    )


def _timestamp(text: str, kind: str, factor: int) -> str:
    number = f"try_cast({text} AS BIGINT)"
    # In another zone than UTC, `2026-01-01` without one would be another moment.
    literal = "TIMESTAMP_NTZ '{}'" if kind == "TIMESTAMP_NTZ" else "TIMESTAMP '{} 00:00:00Z'"
    micros = f"{number} * {factor}" if factor > 1 else number
    if kind == "TIMESTAMP_NTZ":
        moment = f"TIMESTAMP_NTZ '1970-01-01' + make_dt_interval(0, 0, 0, CAST({micros} AS DECIMAL(20,0)) / 1000000)"
        iso = f"try_cast(regexp_replace({text}, 'Z$', '') AS TIMESTAMP_NTZ)"
    else:
        moment, iso = f"timestamp_micros({micros})", f"try_cast({text} AS TIMESTAMP)"
    low, high = (bound // factor for bound in _MICROS)
    return (
        f"CASE WHEN {number} BETWEEN {low} AND {high} THEN {moment}"
        f" WHEN {number} >= {_INFINITE_MICROS // factor} OR {text} RLIKE '{_INFINITE}'"
        f" THEN {literal.format(LAST_DAY)}"
        f" WHEN {number} <= {-(-_MINUS_INFINITE_MICROS // factor)} OR {text} RLIKE '{_MINUS_INFINITE}'"
        f" THEN {literal.format(FIRST_DAY)}"
        f" WHEN {number} IS NULL AND year({iso}) BETWEEN 1 AND 9999 THEN {iso} END"
    )


def placeholders(text: str) -> tuple[str, ...]:
    """All forms in which Debezium sends the placeholder of a value that it does not know, by the type of the column."""
    raw = text.encode()
    named = uuid.UUID(bytes=hashlib.md5(raw, usedforsecurity=False).digest(), version=3)
    return (
        text,
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode(),
        raw.hex(),
        json.dumps([text]),
        json.dumps(list(raw), separators=(",", ":")),
        json.dumps({text: text}, separators=(",", ":")),
        json.dumps([str(named)]),
    )
