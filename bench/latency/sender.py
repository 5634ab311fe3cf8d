"""Readings of sensors, sent to a topic at an even rate; what was sent is written to a file.

    python bench/latency/sender.py BROKERS TOPIC RATE SECONDS MANIFEST

A reading's time is the moment at which it is sent, so that whoever sees it knows how long that took. A few are late
ones, which correct minutes of the past, a few are sent again, and a few are no readings. A sensor's readings have one
key and so one partition, which keeps their order. The manifest has a line for each message: sensor, time in
microseconds, temperature, and `l` (late) or `t` (in time); a message that is no reading has none.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

SENSORS = 100
LATE, REPEATED, BAD = 0.02, 0.01, 0.005
#: So many seconds a late reading is behind.
BEHIND = (90, 600)
TICK_SECONDS = 0.01


def readings(chance: random.Random) -> tuple[str, int, float, bool]:
    """One reading of now, or of some minutes ago: sensor, microseconds, temperature, whether it is late."""
    late = chance.random() < LATE
    at = time.time_ns() // 1000 - (int(1e6 * chance.uniform(*BEHIND)) if late else 0)
    return f"s-{chance.randrange(SENSORS)}", at, round(chance.gauss(20, 3), 2), late


def value(sensor: str, at: int, temperature: float) -> bytes:
    """A reading as JSON."""
    seconds, rest = divmod(at, 1_000_000)
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest).isoformat(timespec="microseconds")
    told = {"sensor_id": sensor, "temperature": temperature, "event_time": moment.replace("+00:00", "Z")}
    return json.dumps(told, separators=(",", ":")).encode()


def due(rate: float, seconds: float) -> Iterator[int]:
    """How many readings are due, a hundred times a second."""
    begun, sent = time.monotonic(), 0
    for tick in range(1, int(seconds / TICK_SECONDS) + 1):
        time.sleep(max(0.0, begun + tick * TICK_SECONDS - time.monotonic()))
        wanted = int(rate * tick * TICK_SECONDS)
        yield wanted - sent
        sent = wanted


def send(brokers: str, topic: str, rate: float, seconds: float, manifest: str) -> None:
    """Sends as long as asked."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "linger.ms": 5, "log_level": 3})
    failed: list[Any] = []
    chance = random.Random(7)

    def acknowledged(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    with open(manifest, "w", encoding="utf-8") as file:  # noqa: PTH123 - written line by line, two thousand a second
        for count in due(rate, seconds):
            for _ in range(count):
                sensor, at, temperature, late = readings(chance)
                if chance.random() < BAD:
                    producer.produce(topic, b'{"sensor_id": "' + sensor.encode(), sensor, on_delivery=acknowledged)
                    continue
                for _ in range(2 if chance.random() < REPEATED else 1):
                    producer.produce(topic, value(sensor, at, temperature), sensor, on_delivery=acknowledged)
                file.write(f"{sensor},{at},{temperature},{'l' if late else 't'}\n")
            producer.poll(0)
    if producer.flush(60) or failed:
        sys.exit(f"not everything was sent: {failed[:1]}")


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    send(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]), sys.argv[5])
