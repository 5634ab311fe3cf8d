"""Readings of sensors, sent to Kafka or recorded: some late, some sent again, some malformed.

    python produce.py --brokers localhost:9092 --seconds 60          # 200 readings a second to the topic
    python produce.py --recorded recorded --seconds 300              # the same as files, without a broker
    python produce.py --rate 2000 --sensors 100 --late 0.05 --bad 0.01 --seed 7

The same seed gives the same readings, apart from their times, which are the present. With --manifest, everything that
was sent is written to a file, a line a message, for whoever wants to compare.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any, NamedTuple

TOPIC = "sensor-readings"
#: Shares of readings that are sent a second time.
REPEATED = 0.01
#: Ways in which a message can be bad.
BAD = ("not JSON", "no sensor", "too hot", "text for a number", "from the future", "unknown field")


class Reading(NamedTuple):
    """A message: its key, its value, and when it is due, in seconds from the start."""

    key: str
    value: bytes
    at: float


def readings(
    start: datetime, *, rate: float, sensors: int, late: float, bad: float, seconds: float, seed: int
) -> Iterator[Reading]:
    """The readings of some seconds, in the order in which they are sent."""
    chance = random.Random(seed)
    for number in range(int(rate * seconds)):
        at = number / rate
        sensor = f"s-{chance.randrange(sensors)}"
        # A late reading was held back for up to ten minutes.
        delay = chance.uniform(90, 600) if chance.random() < late else chance.uniform(0, 2)
        taken = start + timedelta(seconds=at - delay)
        value = _value(sensor, taken, chance) if chance.random() >= bad else _bad(sensor, taken, chance)
        yield Reading(sensor, value, at)
        if chance.random() < REPEATED:
            yield Reading(sensor, value, at)


def _value(sensor: str, taken: datetime, chance: random.Random, **other: Any) -> bytes:
    hour = taken.hour + taken.minute / 60
    mean = 18 + int(sensor[2:]) % 7 + 5 * math.sin((hour - 9) / 24 * 2 * math.pi)
    told = {
        "sensor_id": sensor,
        "temperature": round(chance.gauss(mean, 0.8), 2),
        "event_time": taken.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    return json.dumps(told | other, separators=(",", ":")).encode()


def _bad(sensor: str, taken: datetime, chance: random.Random) -> bytes:
    kind = chance.choice(BAD)
    if kind == "not JSON":
        return b'{"sensor_id": "' + sensor.encode() + b'", "temp'
    other: dict[str, Any] = {
        "no sensor": {"sensor_id": None},
        "too hot": {"temperature": 999.9},
        "text for a number": {"temperature": "warm"},
        "from the future": {"event_time": (taken + timedelta(days=3)).isoformat(timespec="milliseconds")},
        "unknown field": {"firmware": "1.2"},
    }[kind]
    return _value(sensor, taken, chance, **other)


def send(brokers: str, topic: str, wanted: Iterator[Reading], manifest: IO[str] | None) -> int:
    """Sends readings when they are due; each is acknowledged by all replicas. Ends early, but cleanly, at Ctrl-C."""
    from confluent_kafka import Producer

    # Warnings of the client are about brokers that are not ready yet: it tries again by itself.
    producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "linger.ms": 5, "log_level": 3})
    sent, failed, stopped = 0, [], []
    for wish in (signal.SIGINT, signal.SIGTERM):
        signal.signal(wish, lambda *_: stopped.append(1))

    def acknowledged(error: object, message: Any) -> None:
        if error is not None:
            failed.append(str(error))
        elif manifest is not None:
            value = message.value().decode()
            manifest.write(json.dumps([message.partition(), message.offset(), value]) + "\n")

    begin = time.monotonic()
    for reading in wanted:
        if stopped:
            break
        while (ahead := reading.at - (time.monotonic() - begin)) > 0 and not stopped:
            producer.poll(min(ahead, 0.1))
        _produce(producer, topic, reading, acknowledged)
        sent += 1
    producer.flush(120)
    if failed or len(producer):
        sys.exit(f"{len(failed) + len(producer)} readings were not sent: {failed[:1]}")
    return sent


def _produce(producer: Any, topic: str, reading: Reading, acknowledged: Callable[..., None]) -> None:
    while True:
        try:
            producer.produce(topic, reading.value, reading.key, on_delivery=acknowledged)
            producer.poll(0)
        except BufferError:  # the broker is away: what was produced has to wait
            producer.poll(0.5)
        else:
            return


def create(brokers: str, topic: str, partitions: int) -> None:
    """Creates the topic, whose times are the broker's, if it does not exist."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": brokers})
    settings = {"message.timestamp.type": "LogAppendTime"}
    for made in admin.create_topics([NewTopic(topic, partitions, config=settings)]).values():
        try:
            made.result()
        except KafkaException as problem:
            if problem.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def record(folder: Path, topic: str, wanted: Iterator[Reading], start: datetime, partitions: int) -> int:
    """Writes readings as a recording: files of the next name, offsets that go on where the last one ended."""
    place = folder / topic
    place.mkdir(parents=True, exist_ok=True)
    before = sorted(place.glob("*.jsonl"))
    offsets = [0] * partitions
    for file in before:
        for line in file.read_text(encoding="utf-8").splitlines():
            told = json.loads(line)
            offsets[told["partition"]] = max(offsets[told["partition"]], told["offset"] + 1)
    lines = []
    for reading in wanted:
        partition = int(reading.key[2:]) % partitions
        told = {
            "partition": partition,
            "offset": offsets[partition],
            "timestamp": int((start.timestamp() + reading.at) * 1000),
            "key": reading.key,
            "value": reading.value.decode(),
        }
        offsets[partition] += 1
        lines.append(json.dumps(told, separators=(",", ":")))
    draft = place / f".{len(before):05d}.draft"
    draft.write_text("\n".join(lines) + "\n", encoding="utf-8")
    draft.rename(place / f"{len(before):05d}.jsonl")
    return len(lines)


def main() -> int:
    """0 when everything was sent."""
    parser = argparse.ArgumentParser(description="Send readings of sensors.")
    parser.add_argument("--brokers", default=os.environ.get("KAFKA_BROKERS"), help="addresses of Kafka's brokers")
    parser.add_argument("--recorded", type=Path, help="write a recording into this folder instead")
    parser.add_argument("--topic", default=TOPIC)
    parser.add_argument("--partitions", type=int, default=2, help="of the topic, if it has to be created")
    parser.add_argument("--rate", type=float, default=200, help="readings a second")
    parser.add_argument("--sensors", type=int, default=50)
    parser.add_argument("--late", type=float, default=0.02, help="share of readings that are held back")
    parser.add_argument("--bad", type=float, default=0.005, help="share of messages that are bad")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--start", type=datetime.fromisoformat, help="the time of the first reading of a recording")
    parser.add_argument("--manifest", type=Path, help="write what was acknowledged into this file")
    asked = parser.parse_args()
    start = (asked.start or datetime.now(UTC)).replace(tzinfo=UTC)
    wanted = readings(
        start,
        rate=asked.rate,
        sensors=asked.sensors,
        late=asked.late,
        bad=asked.bad,
        seconds=asked.seconds,
        seed=asked.seed,
    )
    if asked.recorded is not None:
        count = record(asked.recorded, asked.topic, wanted, start, asked.partitions)
        print(f"recorded {count:,} messages in {asked.recorded / asked.topic}")
        return 0
    if not asked.brokers:
        parser.error("give --brokers (or KAFKA_BROKERS), or --recorded FOLDER")
    create(asked.brokers, asked.topic, asked.partitions)
    if asked.manifest is None:
        count = send(asked.brokers, asked.topic, wanted, None)
    else:
        with asked.manifest.open("w", encoding="utf-8") as manifest:
            count = send(asked.brokers, asked.topic, wanted, manifest)
    print(f"sent {count:,} messages to {asked.topic}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
