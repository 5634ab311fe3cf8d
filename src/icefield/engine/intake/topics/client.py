"""Messages read from Kafka's brokers by librdkafka. Nothing is ever committed there: the lake has the cursor."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from icefield.engine.intake.topics.broker import Message, Partition, Topic
from icefield.errors import BrokerRefused, MessagesLost, MissingPackage, NoBroker, SourceError

try:
    from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._listoffsets import OffsetSpec
except ImportError:
    raise MissingPackage(
        "reading from Kafka needs the package confluent-kafka",
        remedy='install it: pip install "icefield[kafka]"',
    ) from None

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from concurrent.futures import Future

    from icefield.engine.intake.topics.broker import Settings

#: So long a broker may take to answer.
_PATIENCE = 10.0
#: So long nothing may come of a range of which messages are still missing.
_STALLED = 60.0
#: Without these, a client waits for messages that nobody asked for before it fetches those that were asked for.
_TUNING = {"fetch.wait.max.ms": 10, "fetch.queue.backoff.ms": 1, "queued.min.messages": 1_000_000}
_BATCH = 10_000
_REFUSALS = (
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError._SSL,
)
_MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
_EARLIEST, _LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
_silent = logging.getLogger("icefield.kafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


class Client:
    """A connection to Kafka, for any number of threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._last_error: KafkaError | None = None
        self._lock = threading.Lock()
        self._idle: list[Consumer] = []
        self._admin: AdminClient | None = None

    # -- topics

    def topics(self, wanted: str | Callable[[str], bool]) -> Mapping[str, Topic]:
        """The topic of this name, or all that are wanted, as far as they exist."""
        names = [wanted] if isinstance(wanted, str) else [name for name in self._names() if wanted(name)]
        if not names:
            return {}
        with self._telling():
            described = self._described(names)
            partitions = [TopicPartition(name, number) for name, (_, count) in described.items() for number in count]
            low = self._offsets(partitions, _EARLIEST)
            high = self._offsets(partitions, _LATEST)
        return {
            name: Topic(name, id_, tuple(Partition(n, low[name, n], high[name, n]) for n in sorted(numbers)))
            for name, (id_, numbers) in described.items()
        }

    def _names(self) -> list[str]:
        with self._telling():
            return sorted(self._client.list_topics(timeout=_PATIENCE).topics)

    def _described(self, names: list[str]) -> dict[str, tuple[str, list[int]]]:
        """Id and partitions of the topics that exist."""
        found = {}
        asked = self._client.describe_topics(TopicCollection(names), request_timeout=_PATIENCE)
        for name, answer in asked.items():
            try:
                topic = self._answer(answer)
            except KafkaException as problem:
                if problem.args[0].code() not in _MISSING:
                    raise
                continue
            found[name] = (str(topic.topic_id), [partition.id for partition in topic.partitions])
        return found

    def _offsets(self, partitions: Iterable[TopicPartition], spec: OffsetSpec) -> dict[tuple[str, int], int]:
        asked = self._client.list_offsets(
            {one: spec for one in partitions},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=_PATIENCE,
        )
        return {(one.topic, one.partition): int(self._answer(answer).offset) for one, answer in asked.items()}

    def _answer(self, asked: Future[Any]) -> Any:
        """What a request gives; a refusal is told at once, not when the time is over."""
        while not asked.done():
            self._client.poll(0.01)
            if self._last_error is not None and self._last_error.code() in _REFUSALS:
                raise KafkaException(self._last_error)
        return asked.result()

    @property
    def _client(self) -> AdminClient:
        with self._lock:
            if self._admin is None:
                self._admin = AdminClient(self._configuration(), logger=_silent)
            return self._admin

    # -- messages

    def messages(self, topic: str, partition: int, start: int, end: int) -> Iterator[list[Message]]:
        """The committed messages of a range of offsets, in order, some at a time; there may be holes."""
        at = start
        with self._telling(f"{topic}/{partition}, offset {at}"), self._consumer() as consumer:
            consumer.assign([TopicPartition(topic, partition, start)])
            heard = time.monotonic()
            while at < end:
                batch = consumer.consume(min(_BATCH, end - at), timeout=0.1)
                found, at = _within(batch, at, end)
                if found:
                    yield found
                if batch:
                    heard = time.monotonic()
                elif time.monotonic() - heard > _STALLED:
                    raise KafkaException(self._last_error or KafkaError(KafkaError._TIMED_OUT))
                elif self._last_error is not None and self._last_error.code() in _REFUSALS:
                    raise KafkaException(self._last_error)

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        """A consumer that nobody else uses; it is used again where nothing went wrong."""
        with self._lock:
            consumer = self._idle.pop() if self._idle else None
        if consumer is None:
            consumer = Consumer(self._reading(), logger=_silent)
        try:
            yield consumer
            consumer.unassign()
        except BaseException:
            consumer.close()
            raise
        with self._lock:
            self._idle.append(consumer)

    # -- settings and errors

    def _configuration(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._settings.brokers,
            "error_cb": self._note,
            "socket.timeout.ms": int(_PATIENCE * 1000),
            **dict(self._settings.options),
        }

    def _reading(self) -> dict[str, Any]:
        return {
            **_TUNING,
            **self._configuration(),
            "group.id": f"icefield-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }

    def _note(self, error: KafkaError) -> None:
        self._last_error = error

    @contextmanager
    def _telling(self, place: str = "") -> Iterator[None]:
        """Says in our words what went wrong."""
        self._last_error = None
        try:
            yield
        except KafkaException as problem:
            raise self._error(problem.args[0], place) from problem

    def _error(self, error: KafkaError, place: str) -> SourceError:
        # "Timed out" alone tells nothing: what the connection last complained of does.
        cause = self._last_error if self._last_error is not None else error
        where = f"{self._settings.brokers}{', ' if place else ''}{place}"
        section = f"[profile.{self._settings.profile}.kafka]"
        if error.code() in _REFUSALS or cause.code() in _REFUSALS:
            remedy = f"check the user and the password of {section}, and what the user may read"
            return BrokerRefused(f"Kafka refuses access: {cause.str()}", where=where, remedy=remedy)
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            remedy = "run again: the next plan tells what is missing"
            return MessagesLost(f"messages went while they were read: {error.str()}", where=where, remedy=remedy)
        remedy = f"is Kafka running, and is this its address? It is set in {section}"
        return NoBroker(f"Kafka does not answer: {cause.str()}", where=where, remedy=remedy)


def _within(batch: Iterable[Any], at: int, end: int) -> tuple[list[Message], int]:
    """The messages before `end`, and the offset that everything is known up to."""
    found: list[Message] = []
    for one in batch:
        error = one.error()
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            at = max(at, one.offset())  # transactions and compaction may leave nothing at the end
            continue
        offset = one.offset()
        if offset >= end:
            return found, end
        kind, timestamp = one.timestamp()
        found.append(Message(offset, timestamp if kind else None, one.key(), one.value(), one.headers()))
        at = offset + 1
    return found, at
