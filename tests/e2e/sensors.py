"""The lake of the sensors project, compared with what the messages say."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sensors_recompute import Expected, Sent, recompute

from projects import ask


def recorded(folder: Path) -> list[Sent]:
    """The messages of a recording."""
    lines = [line for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]
    told = [json.loads(line) for line in lines]
    return [Sent(one["partition"], one["offset"], one["timestamp"], one["value"]) for one in told]


def require_equal(pointers: Mapping[str, str], messages: list[Sent]) -> Expected:
    """Every table has exactly the rows that follow from the messages."""
    expected = recompute(messages)
    assert rows(pointers, _READINGS) == expected.readings
    if "raw.sensor_readings__quarantine" in pointers:
        assert rows(pointers, _REJECTED) == expected.rejected
    else:
        assert not expected.rejected
    assert rows(pointers, _MINUTES) == expected.minutes
    assert rows(pointers, _STATUS) == expected.status
    return expected


_READINGS = 'SELECT partition, "offset", sensor_id, temperature, epoch_us(event_time) FROM raw.sensor_readings'
_REJECTED = (
    "SELECT CAST(o.partition AS INT), q.line, q.raw FROM raw.sensor_readings__quarantine q"
    " JOIN ops.offsets o ON o.arrival = q.arrival AND o.\"table\" = 'raw.sensor_readings'"
)
_MINUTES = (
    "SELECT sensor_id, epoch_us(minute), readings, average, minimum, maximum, epoch_us(first_event_time),"
    " epoch_us(last_event_time), last_temperature, late_readings FROM metrics.sensor_minutes"
)
_STATUS = (
    "SELECT sensor_id, epoch_us(last_event_time), last_temperature, readings, late_readings FROM metrics.sensor_status"
)
#: Columns of each query that are moments.
_TIMES = {_READINGS: (4,), _REJECTED: (), _MINUTES: (1, 6, 7), _STATUS: (1,)}


def rows(pointers: Mapping[str, str], query: str) -> Counter[tuple[Any, ...]]:
    times = _TIMES[query]
    return Counter(
        tuple(_moment(value) if place in times else value for place, value in enumerate(row))
        for row in ask(pointers, query)
    )


def _moment(microseconds: int) -> datetime:
    seconds, rest = divmod(microseconds, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)
