"""The port of brokers: which topics there are, how far they go, and their messages by offset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

from icefield.errors import NoBroker


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where topics are: at brokers, or in a folder of recordings. Options are librdkafka's, some of them secret."""

    brokers: str = ""
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    recording: Path | None = None
    #: The profile's name, for messages.
    profile: str = ""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition has messages from offset `low` up to, but not including, `high`."""

    number: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic; its id tells it from one of the same name that was created later."""

    name: str
    id: str
    partitions: tuple[Partition, ...]


class Message(NamedTuple):
    """One message; the timestamp is in milliseconds."""

    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] | None = None


class Broker(Protocol):
    """Where messages are read from."""

    def topics(self, wanted: str | Callable[[str], bool]) -> Mapping[str, Topic]:
        """The topic of this name, or all that are wanted, as far as they exist."""

    def messages(self, topic: str, partition: int, start: int, end: int) -> Iterator[list[Message]]:
        """The messages of a range of offsets, in order, some at a time; there may be holes."""


@cache
def open_broker(settings: Settings) -> Broker:
    """The broker that a profile names; connections are kept for the life of the process."""
    if settings.recording is not None:
        from icefield.engine.intake.topics.recorded import Recording  # noqa: PLC0415 - where there is one

        return Recording(settings.recording)
    if not settings.brokers:
        section = f"[profile.{settings.profile}.kafka]"
        raise NoBroker(
            "the profile names no broker of Kafka",
            where=f"icefield.toml, {section}",
            remedy=f'write {section} brokers = "host:9092", or recording = "folder" for recorded messages',
        )
    from icefield.engine.intake.topics.client import Client  # noqa: PLC0415 - confluent-kafka is optional

    return Client(settings)
