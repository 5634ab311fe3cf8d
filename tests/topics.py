"""Topics for tests on a real broker: created, filled (also in transactions) and read by confluent-kafka."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from servers import Kafka

LARGEST_MESSAGE = 32 << 20
SECONDS = 30


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message to produce, or one that was consumed, which has an offset."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()
    #: Milliseconds since 1970; the current time if 0.
    timestamp: int = 0
    offset: int = -1


def create_topic(kafka: Kafka, name: str = "", partitions: int = 1, config: Mapping[str, object] | None = None) -> str:
    """Creates a topic and returns its name, one of its own if none is given; config such as {"retention.ms": 1}."""
    name = name or f"topic-{uuid.uuid4().hex[:8]}"
    settings = {key: str(value) for key, value in (config or {}).items()}
    client = admin(kafka)  # by name: a client that nobody refers to is closed, and what it was asked to do is dropped
    client.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(SECONDS)
    return name


def delete_topic(kafka: Kafka, name: str) -> None:
    """Deletes a topic, and returns when the broker no longer lists it."""
    client = admin(kafka)
    client.delete_topics([name])[name].result(SECONDS)
    until = time.monotonic() + SECONDS
    while name in client.list_topics(timeout=SECONDS).topics:
        assert time.monotonic() < until, f"topic {name} is still there"
        time.sleep(0.05)


def produce(kafka: Kafka, topic: str, messages: Iterable[Message]) -> None:
    """Returns when the broker has all messages."""
    _send(producer(kafka), topic, messages)


def produce_in_transaction(kafka: Kafka, topic: str, messages: Iterable[Message], *, commit: bool = True) -> None:
    """Produces messages in one transaction, and commits or aborts it."""
    client = open_transaction(kafka, topic, messages)
    if commit:
        client.commit_transaction(SECONDS)
    else:
        client.abort_transaction(SECONDS)


def open_transaction(kafka: Kafka, topic: str, messages: Iterable[Message]) -> Producer:
    """Produces messages in a transaction and leaves it open, for the caller to commit or abort."""
    client = producer(kafka, **{"transactional.id": uuid.uuid4().hex})
    client.init_transactions(SECONDS)
    client.begin_transaction()
    _send(client, topic, messages)
    return client


def consume(kafka: Kafka, topic: str, count: int, *, partitions: int = 1, **settings: Any) -> list[Message]:
    """The first `count` committed messages of a topic; in each partition in their order."""
    client = consumer(kafka, **settings)
    found: list[Message] = []
    try:
        client.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        until = time.monotonic() + SECONDS
        while len(found) < count:
            assert time.monotonic() < until, f"{len(found)} of {count} messages of {topic} came in {SECONDS} s"
            for message in client.consume(count - len(found), timeout=0.2):
                found.append(_read(message))
    finally:
        client.close()
    return found


def end_offset(kafka: Kafka, topic: str, partition: int = 0) -> int:
    """The offset that the next message of a partition gets."""
    client = consumer(kafka)
    try:
        return client.get_watermark_offsets(TopicPartition(topic, partition), SECONDS)[1]
    finally:
        client.close()


def admin(kafka: Kafka, **settings: Any) -> AdminClient:
    return AdminClient(kafka.client() | settings)


def producer(kafka: Kafka, **settings: Any) -> Producer:
    return Producer(kafka.client() | {"message.max.bytes": LARGEST_MESSAGE, "linger.ms": 0} | settings)


def consumer(kafka: Kafka, **settings: Any) -> Consumer:
    chosen = {"group.id": "tests", "enable.auto.commit": False, "auto.offset.reset": "error", "fetch.wait.max.ms": 10}
    return Consumer(kafka.client() | chosen | {"fetch.message.max.bytes": LARGEST_MESSAGE} | settings)


def _send(client: Producer, topic: str, messages: Iterable[Message]) -> None:
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    for message in messages:
        arguments = {"partition": message.partition, "headers": list(message.headers), "on_delivery": delivered}
        while True:
            try:
                client.produce(topic, message.value, message.key, timestamp=message.timestamp, **arguments)
                break
            except BufferError:  # the queue is full
                client.poll(0.1)
    left = client.flush(SECONDS)
    if failed:
        raise KafkaException(failed[0])
    assert left == 0, f"{left} messages to {topic} were not delivered in {SECONDS} s"


def _read(message: Any) -> Message:
    if message.error() is not None:
        raise KafkaException(message.error())
    return Message(
        value=message.value(),
        key=message.key(),
        partition=message.partition(),
        headers=tuple(message.headers() or ()),
        timestamp=message.timestamp()[1],
        offset=message.offset(),
    )
