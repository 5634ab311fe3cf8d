"""A watcher that is killed at random moments, a broker that is killed as well: every event counts once.

`ICEFIELD_STREAM_SECONDS`, `ICEFIELD_STREAM_RATE` and `ICEFIELD_STREAM_KILLS` make it longer (`make soak`).
"""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import pytest
from sensors import require_equal
from sensors_recompute import Sent
from watchers import PATIENCE, copied, produce, published, wait_for, watch

from icefield.engine.intake.topics.broker import Settings
from icefield.engine.intake.topics.client import Client
from icefield.lake.embedded import EmbeddedLake
from projects import ask
from servers import Kafka

pytestmark = pytest.mark.services

SECONDS = float(os.environ.get("ICEFIELD_STREAM_SECONDS", "60"))
RATE = os.environ.get("ICEFIELD_STREAM_RATE", "2000")
KILLS = int(os.environ.get("ICEFIELD_STREAM_KILLS", "5"))
SEED = int(os.environ.get("ICEFIELD_STREAM_SEED", str(random.randrange(1_000_000))))
#: So that a watcher which has much to catch up with publishes again and again.
MAX_ROWS = "100000"
TOPIC = "sensor-readings"


def sent_to(kafka: Kafka) -> list[Sent]:
    """Every message that the broker has."""
    broker = Client(Settings(brokers=str(kafka.client()["bootstrap.servers"])))
    return [
        Sent(partition.number, one.offset, one.timestamp or 0, (one.value or b"").decode())
        for partition in broker.topics(TOPIC)[TOPIC].partitions
        for batch in broker.messages(TOPIC, partition.number, partition.low, partition.high)
        for one in batch
    ]


def test_every_event_is_taken_in_once_whoever_is_killed(kafka: Kafka, tmp_path: Path) -> None:
    print(f"ICEFIELD_STREAM_SEED={SEED}")
    chance = random.Random(SEED)
    root = copied("sensors", tmp_path / "sensors")
    lake = EmbeddedLake(root / "lake-kafka")
    manifest = tmp_path / "acknowledged.jsonl"
    wanted = ["--rate", RATE, "--seconds", "86400", "--sensors", "100", "--late", "0.02", "--bad", "0.005"]
    begun = time.monotonic()
    producer = produce(root, kafka, tmp_path / "producer.log", *wanted, "--manifest", str(manifest))
    broker_dies = KILLS // 2
    for number in range(KILLS):
        before = published(lake)
        watcher = watch(root, kafka, tmp_path / f"watcher-{number}.log", "--max-rows", MAX_ROWS)
        if number % 2:
            time.sleep(chance.uniform(0, 20))  # any moment of its start and of its first run
        else:
            wait_for(lambda: published(lake) > before, "a run", watcher)  # noqa: B023 - called at once
            time.sleep(chance.uniform(0, 3))  # any moment of the runs that follow
        print(f"{time.monotonic() - begun:.0f} s: kill {number + 1} of {KILLS}, {published(lake)} runs published")
        if number == broker_dies:
            kafka.kill()
            kafka.start()
        watcher.kill()
    time.sleep(max(0.0, begun + SECONDS - time.monotonic()))  # so long events come, however fast watchers are killed
    assert producer.stop() == 0, producer.log.read_text()
    sent = sent_to(kafka)
    last = watch(root, kafka, tmp_path / "watcher-last.log")
    wait_for(lambda: _taken(lake) == len(sent), "everything to be taken in", last, patience=PATIENCE + SECONDS)
    assert last.stop() == 0, last.log.read_text()[-3000:]
    acknowledged = [json.loads(line) for line in manifest.read_text().splitlines()]
    assert {(p, o, v) for p, o, v in acknowledged} <= {(one.partition, one.offset, one.value) for one in sent}
    print(f"{time.monotonic() - begun:.0f} s: {len(sent):,} events in {published(lake)} runs; comparing")
    require_equal(lake.pointers(), sent)


def _taken(lake: EmbeddedLake) -> int:
    """How many messages a lake has, rejected ones included."""
    pointers = lake.pointers()
    rows = "SELECT count(*) FROM raw.sensor_readings"
    if "raw.sensor_readings__quarantine" in pointers:
        rows = f"SELECT ({rows}) + (SELECT count(*) FROM raw.sensor_readings__quarantine)"
    return int(ask({name: at for name, at in pointers.items() if name.startswith("raw.")}, rows)[0][0])
