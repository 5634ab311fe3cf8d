"""Topics of a real broker: what is read of them, what is noticed of losses, and what is said where nothing answers."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions

from icefield.declare import Topics
from icefield.declare import kafka as declared_kafka
from icefield.engine import limits
from icefield.engine.intake.topics.broker import Settings
from icefield.engine.intake.topics.client import Client
from icefield.engine.intake.topics.news import topics_news
from icefield.engine.intake.topics.recorded import Recording
from icefield.engine.intake.topics.recorder import record_topic
from icefield.engine.limits import Limits
from icefield.errors import BrokerRefused, MessagesLost, NoBroker
from icefield.graph.news import TopicsCursor, TopicsNews
from projects import TinyProject, tiny
from servers import Kafka
from topics import (
    Message,
    admin,
    create_topic,
    delete_topic,
    open_transaction,
    produce,
    produce_in_transaction,
)

pytestmark = pytest.mark.services

TABLES = """
from pyspark.sql import functions as F
from icefield import append, by_key, expect, kafka, table


@table("raw.readings", source=kafka("{topic}", schema="id BIGINT, value DOUBLE"), refresh=append(),
       checks=[expect("value is possible", "value < 100")], otherwise="quarantine")
def readings(messages):
    return messages


@table("gold.by_id", refresh=by_key("id"))
def by_id(readings):
    return readings.groupBy("id").agg(F.count("*").alias("n"))
"""


def client(kafka: Kafka, listener: str = "plain", **other: str) -> Client:
    told = {**kafka.client(listener), **other}
    brokers = told.pop("bootstrap.servers")
    options = tuple(sorted((key, str(value)) for key, value in told.items()))
    return Client(Settings(brokers=brokers, options=options, profile="test"))


def offsets(broker: Client, topic: str, start: int, end: int, partition: int = 0) -> list[int]:
    return [one.offset for batch in broker.messages(topic, partition, start, end) for one in batch]


def news(broker: Client, topic: str, cursor: TopicsCursor | None = None) -> TopicsNews:
    source = declared_kafka(topic)
    assert isinstance(source, Topics)
    return topics_news(source, broker, cursor, "here")


def numbers(start: int, count: int, value: float = 1.0) -> list[Message]:
    return [Message(value=json.dumps({"id": n, "value": value}).encode()) for n in range(start, start + count)]


def declared(root: Path, kafka: Kafka, topic: str) -> TinyProject:
    address = kafka.client()["bootstrap.servers"]
    return tiny(root, TABLES.format(topic=topic), more=f'[profile.local.kafka]\nbrokers = "{address}"\n')


# --- reading -----------------------------------------------------------------------------------------------------


def test_a_range_has_its_messages_with_everything_that_belongs_to_them(kafka: Kafka) -> None:
    topic = create_topic(kafka, partitions=2)
    sent = Message(value=b"v", key=b"k", headers=(("h", b"1"), ("h", None)), timestamp=1_700_000_000_000, partition=1)
    produce(kafka, topic, [*numbers(0, 5), sent, Message(value=None, key=b"gone", partition=1)])
    broker = client(kafka)
    assert offsets(broker, topic, 1, 4) == [1, 2, 3]
    found = [one for batch in broker.messages(topic, 1, 0, 2) for one in batch]
    assert found[0] == (0, 1_700_000_000_000, b"k", b"v", [("h", b"1"), ("h", None)])
    assert (found[1].key, found[1].value, found[1].headers) == (b"gone", None, None)
    assert offsets(broker, topic, 0, 5) == [0, 1, 2, 3, 4], "a client is used again"


def test_transactions_leave_holes_that_are_no_loss(kafka: Kafka) -> None:
    topic = create_topic(kafka)
    produce(kafka, topic, numbers(0, 3))
    produce_in_transaction(kafka, topic, numbers(3, 3), commit=False)
    produce_in_transaction(kafka, topic, numbers(6, 3))
    produce_in_transaction(kafka, topic, numbers(9, 3), commit=False)
    broker = client(kafka)
    told = news(broker, topic)
    (wanted,) = told.new
    assert (wanted.start, wanted.end) == (0, 15)
    assert offsets(broker, topic, 0, 15) == [0, 1, 2, 7, 8, 9]
    begun = time.monotonic()
    assert offsets(broker, topic, 12, 15) == [], "a range may have nothing in it"
    assert offsets(broker, topic, 3, 7) == []
    assert time.monotonic() - begun < 5
    assert news(broker, topic, told.cursor).new == ()


def test_messages_of_an_open_transaction_are_not_new_before_it_is_committed(kafka: Kafka) -> None:
    topic = create_topic(kafka)
    produce(kafka, topic, numbers(0, 2))
    transaction = open_transaction(kafka, topic, numbers(2, 2))
    broker = client(kafka)
    before = news(broker, topic)
    assert before.new[0].end == 2
    transaction.commit_transaction(30)
    after = news(broker, topic, before.cursor)
    assert offsets(broker, topic, after.new[0].start, after.new[0].end) == [2, 3]


def test_partitions_that_are_added_are_picked_up(kafka: Kafka) -> None:
    topic = create_topic(kafka)
    produce(kafka, topic, numbers(0, 2))
    broker = client(kafka)
    before = news(broker, topic)
    grower = admin(kafka)
    grower.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    produce(kafka, topic, [Message(value=b"{}", partition=2)])
    after = news(broker, topic, before.cursor)
    assert [(one.partition, one.start, one.end) for one in after.new] == [(2, 0, 1)]


def test_retention_that_passes_the_cursor_is_a_loss_with_its_offsets(kafka: Kafka) -> None:
    topic = create_topic(kafka)
    produce(kafka, topic, numbers(0, 4))
    broker = client(kafka)
    before = news(broker, topic)
    produce(kafka, topic, numbers(4, 6))
    remover = admin(kafka)
    asked = remover.delete_records([TopicPartition(topic, 0, 7)])
    for answer in asked.values():
        answer.result(30)
    after = news(broker, topic, before.cursor)
    assert after.lost == (f"{topic}/0, offsets 4 to 6",)
    assert after.gone == (f"{topic}/0, offsets 0 to 3",)
    assert [(one.start, one.end) for one in after.new] == [(7, 10)]
    with pytest.raises(MessagesLost, match="went while they were read"):
        offsets(broker, topic, 0, 4)


def test_a_topic_that_was_created_again_is_noticed_though_its_offsets_fit(kafka: Kafka) -> None:
    topic = create_topic(kafka)
    produce(kafka, topic, numbers(0, 3))
    broker = client(kafka)
    before = news(broker, topic)
    delete_topic(kafka, topic)
    create_topic(kafka, topic)
    produce(kafka, topic, numbers(0, 5))
    assert news(broker, topic, before.cursor).lost == (f"topic {topic} was deleted and created again",)


def test_a_recording_of_a_topic_has_the_same_messages(kafka: Kafka, tmp_path: Path) -> None:
    topic = create_topic(kafka, partitions=2)
    odd = Message(value=b"\xff", key=b"k", headers=(("h", b"\xfe"),), partition=1)
    produce(kafka, topic, [*numbers(0, 3), odd, Message(value=None, key=b"k")])
    broker = client(kafka)
    record_topic(broker, broker.topics(topic)[topic], tmp_path)
    for partition, end in ((0, 4), (1, 1)):
        there, here = (
            [one for batch in one.messages(topic, partition, 0, end) for one in batch]
            for one in (broker, Recording(tmp_path))
        )
        assert [one._replace(headers=list(one.headers or ())) for one in here] == [
            one._replace(headers=list(one.headers or ())) for one in there
        ]


# --- what goes wrong ---------------------------------------------------------------------------------------------


def test_no_broker_and_a_wrong_password_are_told_apart_quickly_and_without_the_password(kafka: Kafka) -> None:
    silence = io.StringIO()
    with contextlib.redirect_stderr(silence):
        begun = time.monotonic()
        with pytest.raises(NoBroker, match="Kafka does not answer") as told:
            Client(Settings(brokers="127.0.0.1:9", profile="p")).topics("t")
        assert "127.0.0.1:9" in told.value.where
        with pytest.raises(BrokerRefused) as refused:
            client(kafka, "sasl", **{"sasl.password": "s3cr3t-wrong"}).topics("t")
        assert time.monotonic() - begun < 25
    assert "s3cr3t-wrong" not in f"{refused.value} {silence.getvalue()} {refused.value.__cause__!r}"
    assert "s3cr3t" not in repr(Settings(brokers="x", options=(("sasl.password", "s3cr3t"),)))


@pytest.mark.parametrize("listener", ["sasl", "tls"])
def test_users_and_encryption_work(kafka: Kafka, listener: str) -> None:
    topic = create_topic(kafka)
    produce(kafka, topic, numbers(0, 2))
    assert offsets(client(kafka, listener), topic, 0, 2) == [0, 1]


def test_reading_goes_on_where_a_broker_was_killed_and_came_back(kafka: Kafka) -> None:
    topic = create_topic(kafka)
    produce(kafka, topic, numbers(0, 30_000))
    broker = client(kafka)
    before = news(broker, topic)
    reading = broker.messages(topic, 0, 0, 30_000)
    found = [one.offset for one in next(reading)]
    kafka.kill()
    kafka.start()
    for batch in reading:
        found += [one.offset for one in batch]
    assert found == list(range(30_000))
    assert news(broker, topic, before.cursor).new == ()


# --- runs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [Limits(), Limits(driver_messages=-1, split_messages=700)], ids=["driver", "tasks"])
def test_runs_take_in_every_message_once(
    kafka: Kafka, tmp_path: Path, way: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LIMITS", way)
    topic = create_topic(kafka, partitions=2)
    project = declared(tmp_path, kafka, topic)
    produce(kafka, topic, numbers(0, 2000))
    produce(kafka, topic, [Message(value=b"{no", partition=1), *numbers(5000, 3, value=500.0)])
    assert project.run().ok
    produce_in_transaction(kafka, topic, numbers(2000, 10), commit=False)
    produce_in_transaction(kafka, topic, numbers(2000, 10))
    assert project.run().ok
    assert project.run().status == "nothing new"
    ids = [row[0] for row in project.ask("SELECT id FROM raw.readings")]
    assert Counter(ids) == Counter(range(2010))
    assert Counter(project.ask("SELECT id, n FROM gold.by_id")) == Counter((n, 1) for n in range(2010))
    waiting = project.ask("SELECT reasons[1], count(*) FROM raw.readings__quarantine GROUP BY 1 ORDER BY 1")
    assert waiting == [("malformed: not a JSON object", 1), ("value is possible", 3)]
    assert project.run(full_refresh=True).ok
    assert Counter(row[0] for row in project.ask("SELECT id FROM raw.readings")) == Counter(range(2010))


def test_a_lost_range_stops_a_run_and_is_recorded_once_it_is_accepted(kafka: Kafka, tmp_path: Path) -> None:
    topic = create_topic(kafka)
    project = declared(tmp_path, kafka, topic)
    produce(kafka, topic, numbers(0, 4))
    project.run()
    produce(kafka, topic, numbers(4, 4))
    remover = admin(kafka)
    for answer in remover.delete_records([TopicPartition(topic, 0, 6)]).values():
        answer.result(30)
    with pytest.raises(MessagesLost, match=f"{topic}/0, offsets 4 to 5"):
        project.run()
    assert project.run(accept=("raw.readings",)).ok
    assert Counter(project.ask("SELECT id FROM raw.readings")) == Counter((n,) for n in (0, 1, 2, 3, 6, 7))
    assert project.ask("SELECT detail FROM ops.offsets WHERE status = 'lost'") == [(f"{topic}/0, offsets 4 to 5",)]
    with pytest.raises(MessagesLost, match="must be rebuilt"):
        project.run(full_refresh=True)


def test_a_run_without_a_broker_changes_nothing(kafka: Kafka, tmp_path: Path) -> None:
    topic = create_topic(kafka)
    project = declared(tmp_path, kafka, topic)
    produce(kafka, topic, numbers(0, 4))
    project.run()
    before: dict[str, Any] = project.everything()
    (tmp_path / "icefield.toml").write_text(
        (tmp_path / "icefield.toml").read_text().replace(str(kafka.client()["bootstrap.servers"]), "127.0.0.1:9")
    )
    with pytest.raises(NoBroker):
        project.run()
    assert project.everything() == before
