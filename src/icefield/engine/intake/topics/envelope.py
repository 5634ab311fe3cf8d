"""Debezium's envelope of a change, taken apart without touching the rows in it: they are handed on as they are written.

Connectors write it plain, or as the payload beside a schema.
"""

from __future__ import annotations

import json
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NamedTuple

#: read (snapshot), create, update, delete, truncate.
OPERATIONS = frozenset("rcudt")
#: Microseconds since 1970 of the years that timestamps of all engines have: 1 to 9999.
EARLIEST_US, LATEST_US = -62_135_596_800_000_000, 253_402_300_800_000_000
_WHITE = " \t\n\r"
_decoder = json.JSONDecoder()


class Change(NamedTuple):
    """What an envelope says; `before` and `after` are JSON texts."""

    op: str
    lsn: int | None
    tx_id: int | None
    source_us: int | None
    before: str | None
    after: str | None
    is_snapshot: bool


class NoChangeError(ValueError):
    """The text is no envelope of a change; its words say why."""


def parse_change(text: str) -> Change:
    """The change that an envelope is about."""
    members, texts = _members(text)
    if "payload" in members and "op" not in members:
        start = texts["payload"]
        members, texts = _members(start)
    op = members.get("op")
    if op is None:
        raise NoChangeError("not an envelope of Debezium: it has no op")
    if not isinstance(op, str) or op not in OPERATIONS:
        raise NoChangeError(f"unknown op {op!r}")
    source = members.get("source")
    source = source if isinstance(source, dict) else {}
    return Change(
        op=op,
        lsn=_whole(source.get("lsn"), "lsn"),
        tx_id=_whole(source.get("txId"), "txId"),
        source_us=_source_time(source),
        before=_row(members, texts, "before"),
        after=_row(members, texts, "after"),
        is_snapshot=source.get("snapshot") not in (None, False, "false"),
    )


def parse_key(text: str) -> str:
    """The key of a changed row as JSON text, without the schema that may be beside it."""
    members, texts = _members(text)
    return texts["payload"] if members.keys() == {"schema", "payload"} else text


def _row(members: dict[str, Any], texts: dict[str, str], name: str) -> str | None:
    if members.get(name) is None:
        return None
    if not isinstance(members[name], dict):
        raise NoChangeError(f"{name} is not an object")
    return texts[name]


def _whole(value: Any, name: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return value
    raise NoChangeError(f"{name} is not a whole number")


def _source_time(source: dict[str, Any]) -> int | None:
    """When the change was made, in microseconds."""
    for name, factor, divisor in (("ts_us", 1, 1), ("ts_ns", 1, 1000), ("ts_ms", 1000, 1)):
        if (value := _whole(source.get(name), name)) is not None:
            moment = value * factor // divisor
            if not EARLIEST_US <= moment < LATEST_US:
                raise NoChangeError(f"{name} is not in the years 1 to 9999")
            return moment
    return None


def _members(text: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The members of a JSON object: their values, and their texts."""
    values: dict[str, Any] = {}
    texts: dict[str, str] = {}
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        raise NoChangeError("not a JSON object")
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        return values, _nothing_behind(text, at + 1, texts)
    while True:
        if text[at : at + 1] != '"':
            raise NoChangeError("not a JSON object")
        name, at = scanstring(text, at + 1, True)  # noqa: FBT003 - strict
        at = _expect(text, at, ":")
        start = _skip(text, at)
        values[name], at = _decoder.raw_decode(text, start)
        texts[name] = text[start:at]
        at = _skip(text, at)
        if text[at : at + 1] == "}":
            return values, _nothing_behind(text, at + 1, texts)
        at = _skip(text, _expect(text, at, ","))


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _WHITE:
        at += 1
    return at


def _expect(text: str, at: int, sign: str) -> int:
    at = _skip(text, at)
    if text[at : at + 1] != sign:
        raise NoChangeError("not a JSON object")
    return at + 1


def _nothing_behind(text: str, at: int, texts: dict[str, str]) -> dict[str, str]:
    if _skip(text, at) != len(text):
        raise NoChangeError("not a JSON object: there is more behind it")
    return texts
