"""Recorded messages for tests: what a broker would hold, as files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def envelope(
    offset: int, value: Any, *, partition: int = 0, key: str | None = None, timestamp: int = 1_790_000_000_000
) -> str:
    """One message of a recording; values that are no text are written as JSON."""
    text = value if value is None or isinstance(value, str) else json.dumps(value)
    told = {"partition": partition, "offset": offset, "timestamp": timestamp + offset, "key": key, "value": text}
    return json.dumps(told)


def record(folder: Path, topic: str, name: str, lines: Iterable[str]) -> Path:
    """Adds a file to the recording of a topic, whole at once."""
    place = folder / topic
    place.mkdir(parents=True, exist_ok=True)
    hidden = place / f".{name}"
    hidden.write_text("".join(f"{line}\n" for line in lines))
    return hidden.rename(place / f"{name}.jsonl")
