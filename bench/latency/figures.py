"""What the sender's manifest and the reader's notes say: how long each reading took to be seen, and if all were."""

from __future__ import annotations

import bisect
import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

#: The measured time is looked at in slices of so many seconds.
SLICE_SECONDS = 10


class Sent(NamedTuple):
    """A reading that was sent."""

    sensor: str
    at: int
    temperature: float
    late: bool


class Look(NamedTuple):
    """What the reader saw: when, how long reading took, and the newest reading of each sensor."""

    at: int
    read: float
    last: Mapping[str, int]


def manifest(path: Path) -> list[Sent]:
    """What the sender has sent so far."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Sent(a, int(b), float(c), d == "l") for a, b, c, d in (line.split(",") for line in lines)]


def looks(path: Path) -> list[Look]:
    """What the reader has noted so far."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Look(**json.loads(line)) for line in lines]


def seconds_to_be_seen(sent: Sequence[Sent], seen: Sequence[Look]) -> list[tuple[int, float]]:
    """For each reading in time: when it was sent, and after how many seconds a reader saw it.

    A sensor's readings are taken in in their order, so one is visible when the sensor's newest one is not older.
    """
    newest: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for look in seen:
        for sensor, last in look.last.items():
            times, ats = newest[sensor]
            if not times or last > times[-1]:
                times.append(last)
                ats.append(look.at)
    found = []
    for one in sent:
        if not one.late:
            times, ats = newest[one.sensor]
            place = bisect.bisect_left(times, one.at)
            if place < len(times):
                found.append((one.at, (ats[place] - one.at) / 1e6))
    return found


def summary(latencies: Sequence[tuple[int, float]], begun: int) -> dict[str, Any]:
    """Median, 95th percentile and most, over all and slice by slice."""
    slices: dict[int, list[float]] = defaultdict(list)
    for at, seconds in latencies:
        slices[(at - begun) // (SLICE_SECONDS * 1_000_000)].append(seconds)
    values = [seconds for _, seconds in latencies]
    return {
        "readings": len(values),
        "median_s": round(statistics.median(values), 3),
        "p95_s": round(percentile(values, 0.95), 3),
        "most_s": round(max(values), 3),
        "median_of_slices_s": [round(statistics.median(slices[number]), 3) for number in sorted(slices)],
    }


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def minutes(sent: Sequence[Sent]) -> dict[tuple[str, int], tuple[int, float, float, int]]:
    """By sensor and minute, what the table has to hold: readings, minimum, maximum and the newest time."""
    unique = {(one.sensor, one.at): one.temperature for one in sent}
    found: dict[tuple[str, int], list[tuple[int, float]]] = defaultdict(list)
    for (sensor, at), temperature in unique.items():
        found[sensor, at // 60_000_000 * 60_000_000].append((at, temperature))
    return {key: _measures(of) for key, of in found.items()}


def _measures(readings: Sequence[tuple[int, float]]) -> tuple[int, float, float, int]:
    temperatures = [temperature for _, temperature in readings]
    return len(readings), min(temperatures), max(temperatures), max(at for at, _ in readings)


def stored(at: str) -> dict[tuple[str, int], tuple[int, float, float, int]]:
    """The same of the published table, by PyIceberg."""
    import pyarrow as pa
    from pyiceberg.table import StaticTable

    columns = ("sensor_id", "minute", "readings", "minimum", "maximum", "last_event_time")
    rows = StaticTable.from_metadata(at).scan(selected_fields=columns).to_arrow()
    for name in ("minute", "last_event_time"):
        rows = rows.set_column(rows.column_names.index(name), name, rows[name].cast(pa.int64()))
    values = zip(*(rows[name].to_pylist() for name in columns), strict=True)
    return {(sensor, minute): tuple(rest) for sensor, minute, *rest in values}  # type: ignore[misc]
