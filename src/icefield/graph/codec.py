"""Frozen values as plain JSON and back: only known classes are ever built, so a cache file cannot run code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any

KIND = "$"


def encode(value: object) -> str:
    """JSON text of a value made of dataclasses, tuples, mappings and scalars."""
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))


def decode(text: str, classes: Mapping[str, type]) -> object:
    """The value that `encode` wrote; ValueError for anything that is not of the given classes."""
    return _value(json.loads(text), classes)


def _plain(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {KIND: type(value).__name__, **{f.name: _plain(getattr(value, f.name)) for f in fields(value)}}
    if isinstance(value, timedelta):
        return {KIND: "timedelta", "days": value.days, "seconds": value.seconds, "microseconds": value.microseconds}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"{value!r} has no place in a graph")


def _value(plain: Any, classes: Mapping[str, type]) -> Any:
    if isinstance(plain, list):
        return tuple(_value(item, classes) for item in plain)
    if not isinstance(plain, dict):
        return plain
    items = {key: _value(item, classes) for key, item in plain.items() if key != KIND}
    if KIND not in plain:
        return items
    kind = timedelta if plain[KIND] == "timedelta" else classes.get(plain[KIND])
    if kind is None:
        raise ValueError(f"{plain[KIND]!r} is no part of a graph")
    try:
        return kind(**items)
    except TypeError as problem:  # written by another version
        raise ValueError(str(problem)) from None
