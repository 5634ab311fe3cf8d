"""What the tables of the sensors project have to hold, worked out from the messages by plain Python."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, NamedTuple

FIELDS = {"sensor_id", "temperature", "event_time"}
GRACE = timedelta(seconds=90)  # the minute itself, and thirty seconds
Rows = Counter[tuple[Any, ...]]


class Sent(NamedTuple):
    """A message as the broker has it."""

    partition: int
    offset: int
    timestamp: int
    value: str


class Expected(NamedTuple):
    """The rows of all tables: readings and rejected messages by partition and offset, minutes, and sensors."""

    readings: Rows
    rejected: Rows
    minutes: Rows
    status: Rows


def recompute(messages: Iterable[Sent]) -> Expected:
    """All tables from all messages."""
    readings: Rows = Counter()
    rejected: Rows = Counter()
    good: dict[tuple[str, datetime], tuple[int, int, float, datetime]] = {}
    for sent in messages:
        found = _reading(sent)
        if found is None:
            rejected[sent.partition, sent.offset, sent.value.encode()] += 1
            continue
        sensor, temperature, taken = found
        readings[sent.partition, sent.offset, sensor, temperature, taken] += 1
        received = datetime.fromtimestamp(sent.timestamp / 1000, UTC)
        one = (sent.partition, sent.offset, temperature, received)
        good[sensor, taken] = min(good.get((sensor, taken), one), one)
    windows: dict[tuple[str, datetime], list[tuple[datetime, float, bool]]] = defaultdict(list)
    for (sensor, taken), (_, _, temperature, received) in good.items():
        minute = taken.replace(second=0, microsecond=0)
        windows[sensor, minute].append((taken, temperature, received >= minute + GRACE))
    minutes = {key: _minute(sorted(content)) for key, content in windows.items()}
    return Expected(readings, rejected, Counter((*key, *row) for key, row in minutes.items()), _status(minutes))


def _reading(sent: Sent) -> tuple[str, float, datetime] | None:
    try:
        told = json.loads(sent.value)
    except ValueError:
        return None
    if not isinstance(told, dict) or not told.keys() <= FIELDS:
        return None
    sensor, temperature, text = (told.get(name) for name in ("sensor_id", "temperature", "event_time"))
    if sensor is None or text is None or not isinstance(temperature, int | float) or not -90 <= temperature <= 80:
        return None
    taken = datetime.fromisoformat(text)
    received = datetime.fromtimestamp(sent.timestamp / 1000, UTC)
    return None if taken > received + timedelta(days=1) else (sensor, float(temperature), taken)


def _minute(content: list[tuple[datetime, float, bool]]) -> tuple[Any, ...]:
    values = [temperature for _, temperature, _ in content]
    total = sum((Decimal(str(value)) for value in values), Decimal(0))
    average = (total / len(values)).quantize(Decimal("1e-8"), ROUND_HALF_UP)
    last = content[-1]
    late = sum(is_late for *_, is_late in content)
    return (len(values), float(average), min(values), max(values), content[0][0], last[0], last[1], late)


def _status(minutes: dict[tuple[str, datetime], tuple[Any, ...]]) -> Rows:
    sensors: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for (sensor, _), row in minutes.items():
        sensors[sensor].append(row)
    found: Rows = Counter()
    for sensor, rows in sensors.items():
        newest = max(rows, key=lambda row: row[5])
        found[sensor, newest[5], newest[6], sum(row[0] for row in rows), sum(row[7] for row in rows)] += 1
    return found
