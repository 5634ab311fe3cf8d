"""Rows in Python's hands, as values that can be counted and compared."""

from __future__ import annotations

import math
from typing import Any


def plain(value: Any) -> Any:
    """A value that can be counted: nested rows, lists and maps as tuples; NaN is NaN."""
    if isinstance(value, tuple | list):
        return tuple(plain(part) for part in value)
    if isinstance(value, dict):
        return tuple(sorted((key, plain(part)) for key, part in value.items()))
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return bytes(value) if isinstance(value, bytearray) else value
