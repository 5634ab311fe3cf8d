"""Names and values as SQL text."""

from __future__ import annotations


def quoted(name: str) -> str:
    """A name for SQL text."""
    return "`" + name.replace("`", "``") + "`"


def text(value: str) -> str:
    """A literal for SQL text."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
