"""Postgres, Debezium and Kafka, a shop at work, Connect and the watcher killed: the lake has what the database has.

`ICEFIELD_SHOP_SECONDS` and `ICEFIELD_SHOP_RATE` make it longer (`make soak`).
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import psycopg
import pytest
from shop import require_rows, require_same, require_states
from watchers import Running, copied, published, wait_for, watch

from icefield.engine.intake.topics.broker import Settings
from icefield.engine.intake.topics.client import Client
from icefield.lake.embedded import EmbeddedLake
from projects import ask
from servers import Connect, Kafka, Postgres
from shop_messages import KEYS

pytestmark = pytest.mark.services

SECONDS = os.environ.get("ICEFIELD_SHOP_SECONDS", "20")
RATE = os.environ.get("ICEFIELD_SHOP_RATE", "15")
SEED = int(os.environ.get("ICEFIELD_STREAM_SEED", str(random.randrange(1_000_000))))
#: The last change of each table: what was sent before it has come when it has.
LAST = {
    "customers": "INSERT INTO customers VALUES (-1, 'last', NULL, NULL, NULL)",
    "products": "INSERT INTO products VALUES (-1, 'last', 'last', 1)",
    "orders": "INSERT INTO orders VALUES (-1, -1, 'last', '2026-01-01T00:00:00Z')",
    "order_lines": "INSERT INTO order_lines VALUES (-1, 1, -1, 1, 1)",
}


def test_the_lake_has_what_the_database_has_whoever_is_killed(
    postgres: Postgres, kafka: Kafka, connect: Connect, tmp_path: Path
) -> None:
    print(f"ICEFIELD_STREAM_SEED={SEED}")
    root = copied("shop", tmp_path / "shop")
    lake, notes = EmbeddedLake(root / "lake-kafka"), tmp_path / "wrote.jsonl"
    postgres.execute("CREATE DATABASE shop")
    url = postgres.url("shop")

    def workload(*arguments: str) -> Running:
        wanted = ["--url", url, "--seed", str(SEED), "--truncate", "0.1", *arguments]
        return Running.start([str(root / "workload.py"), *wanted], tmp_path / "workload.log")

    before = workload("--transactions", "60", "--rate", "0")
    assert before.process.wait(60) == 0, before.log.read_text()
    connect.capture(postgres, "shop", [f"public.{name}" for name in KEYS], database="shop")
    shop = workload("--seconds", SECONDS, "--rate", RATE, "--manifest", str(notes))
    watcher = watch(root, kafka, tmp_path / "watcher-1.log")
    wait_for(lambda: published(lake) > 0, "a run", watcher)
    connect.kill()
    watcher.kill()
    connect.start()
    watcher = watch(root, kafka, tmp_path / "watcher-2.log")
    assert shop.process.wait(600) == 0, shop.log.read_text()
    with psycopg.connect(url) as connection:
        for statement in LAST.values():
            connection.execute(statement)
    wait_for(lambda: all(_has_last(lake, name) for name in KEYS), "everything to be taken in", watcher)
    assert watcher.stop() == 0, watcher.log.read_text()[-3000:]

    require_rows(lake.pointers(), {name: _rows(url, name) for name in KEYS})
    wrote = [json.loads(line) for line in notes.read_text(encoding="utf-8").splitlines()]
    require_states(lake.pointers(), [(one["op"], one["table"], one["row"]) for one in wrote])
    require_same(lake.pointers(), {name: _sent(kafka, f"shop.public.{name}") for name in KEYS})


def _has_last(lake: EmbeddedLake, name: str) -> bool:
    at = lake.pointers().get(f"current.{name}") if lake.exists else None
    key = KEYS[name][0]
    return at is not None and ask({"current.t": at}, f"SELECT count(*) FROM current.t WHERE {key} = -1") == [(1,)]


def _rows(url: str, name: str) -> list[dict[str, Any]]:
    with psycopg.connect(url) as connection:
        found = connection.execute(f"SELECT * FROM {name}")
        names = [column.name for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def _sent(kafka: Kafka, topic: str) -> list[dict[str, Any]]:
    """Every message that the broker has of a topic."""
    broker = Client(Settings(brokers=str(kafka.client()["bootstrap.servers"])))
    return [
        {
            "partition": partition.number,
            "offset": one.offset,
            "key": None if one.key is None else one.key.decode(),
            "value": None if one.value is None else one.value.decode(),
        }
        for partition in broker.topics(topic)[topic].partitions
        for batch in broker.messages(topic, partition.number, partition.low, partition.high)
        for one in batch
    ]
