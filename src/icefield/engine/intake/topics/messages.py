"""Messages as columns: JSON objects, Debezium's changes, or bytes as they are."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from icefield.declare import Debezium, Kafka
from icefield.engine.intake.files.classify import Classified
from icefield.engine.intake.files.typed import arrow_type
from icefield.engine.intake.json_values import JsonObjects
from icefield.engine.intake.topics.envelope import EARLIEST_US, LATEST_US, NoChangeError, parse_change, parse_key
from icefield.engine.origin import ARRIVAL, LINE, PROBLEM, RAW, ROW

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from icefield.declare import Topics
    from icefield.engine.intake.topics.broker import Broker, Message
    from icefield.graph.news import OffsetRange

#: Larger messages are malformed, whatever they say; brokers take 1 MB unless they are told otherwise.
MESSAGE_LIMIT = 64 << 20
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_UTC = pa.timestamp("us", "UTC")


class Decoder(Protocol):
    """Turns the values of messages into columns."""

    def decode(self, messages: Sequence[Message]) -> Classified:
        """What becomes of each message, by its place; one that is in none of the lists is skipped."""


def decoder_of(source: Topics, zone: str) -> Decoder:
    """How the messages of a source are understood."""
    if isinstance(source, Debezium):
        return _Changes(source)
    assert isinstance(source, Kafka)
    return _AsTheyAre() if source.is_raw else _Objects(source, zone)


class _AsTheyAre:
    """Messages without a schema: key, value and headers."""

    def decode(self, messages: Sequence[Message]) -> Classified:
        values = [
            pa.array([one.key for one in messages], pa.binary()),
            pa.array([one.value for one in messages], pa.binary()),
            headers_of(messages),
        ]
        return Classified(values=values, kept=np.arange(len(messages)))


class _Objects:
    """Messages with a JSON object each."""

    def __init__(self, source: Kafka, zone: str) -> None:
        self._objects = JsonObjects(source.as_json_lines, zone, noun="message", limit=MESSAGE_LIMIT)

    def decode(self, messages: Sequence[Message]) -> Classified:
        found = self._objects.classify([one.value or b"" for one in messages])
        for at, one in enumerate(messages):
            if not one.value or not one.value.strip():
                found.malformed[at] = f"malformed: the message {'has no value' if one.value is None else 'is empty'}"
        empty = np.array(sorted(found.malformed), np.intp)
        found.undecided = np.setdiff1d(found.undecided, empty)
        return found


class _Changes:
    """Debezium's changes; tombstones, which only tell Kafka to forget a key, are skipped."""

    def __init__(self, source: Debezium) -> None:
        self._types = [arrow_type(column.type) for column in source.schema]

    def decode(self, messages: Sequence[Message]) -> Classified:
        malformed: dict[int, str] = {}
        rows, kept = [], []
        for at, one in enumerate(messages):
            if one.value is None:
                continue
            try:
                rows.append(_change(one.key, one.value))
                kept.append(at)
            except UnicodeDecodeError:
                malformed[at] = "malformed: the message is not UTF-8"
            except (ValueError, RecursionError) as problem:
                told = str(problem) if isinstance(problem, NoChangeError) else "not a JSON object"
                malformed[at] = f"malformed: {told}"
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self._types)
        values = [pa.array(column, kind) for column, kind in zip(columns, self._types, strict=True)]
        return Classified(values=values, kept=np.array(kept, np.intp), malformed=malformed)


def _change(key: bytes | None, value: bytes) -> tuple[object, ...]:
    if len(value) > MESSAGE_LIMIT:
        told = f"the message has {len(value)} bytes, sha256 {hashlib.sha256(value).hexdigest()}"
        raise NoChangeError(told)
    change = parse_change(value.decode())
    text = None if key is None else _key(key)
    return (
        text,
        change.op,
        change.lsn,
        change.tx_id,
        change.source_us,
        change.before,
        change.after,
        change.is_snapshot,
    )


def _key(key: bytes) -> str:
    try:
        return parse_key(key.decode())
    except (ValueError, RecursionError):
        raise NoChangeError("the key is not a JSON object") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """Some messages of a range: rows, those that are malformed, those left to `parse`, and the bytes of all.

    `messages` counts all of them, with those that are skipped.
    """

    arrival: int
    messages: int
    rows: pa.Table
    problems: pa.Table
    undecided: pa.Table
    values: pa.Table
    bytes: int


def read_range(
    broker: Broker, source: Topics, wanted: OffsetRange, decoder: Decoder, taken_ms: int
) -> Iterator[Decoded]:
    """Reads a range of offsets, some messages at a time."""
    when = wanted.taken_ms if wanted.taken_ms is not None else taken_ms
    for messages in broker.messages(wanted.topic, wanted.partition, wanted.start, wanted.end):
        yield _decoded(source, wanted, messages, decoder.decode(messages), when)


def _decoded(
    source: Topics, wanted: OffsetRange, messages: Sequence[Message], found: Classified, taken_ms: int
) -> Decoded:
    origin = pa.table(_origin(source, wanted, messages, taken_ms))
    raw = pa.array([one.value for one in messages], pa.binary())
    rows = origin.take(pa.array(found.kept))
    columns = found.values or [pa.nulls(0, arrow_type(column.type)) for column in source.schema]
    for column, values in zip(source.schema, columns, strict=True):
        rows = rows.append_column(column.name, values)
    bad = np.array(sorted(found.malformed), np.intp)
    # All bytes: unlike a file, a topic may have forgotten them by the time that someone looks.
    whole = pa.array([messages[at].value or b"" for at in bad.tolist()], pa.binary())
    told = pa.array([found.malformed[at] for at in bad.tolist()], pa.string())
    problems = origin.take(pa.array(bad)).append_column(RAW, whole).append_column(PROBLEM, told)
    return Decoded(
        arrival=wanted.arrival,
        messages=len(messages),
        rows=rows,
        problems=problems,
        undecided=_chosen(origin, raw, found.undecided, "value"),
        values=_chosen(origin, raw, found.kept, RAW).select([ARRIVAL, ROW, RAW]),
        bytes=sum(len(one.value or b"") for one in messages),
    )


def _chosen(origin: pa.Table, raw: pa.Array, at: NDArray[np.intp], name: str) -> pa.Table:
    chosen = pa.array(at)
    return origin.take(chosen).append_column(name, raw.take(chosen))


def _origin(
    source: Topics, wanted: OffsetRange, messages: Sequence[Message], taken_ms: int
) -> dict[str, pa.Array | pa.ChunkedArray]:
    """Where messages come from: what the source tells the author, and what identifies them."""
    count = len(messages)
    offsets = pa.array([one.offset for one in messages], pa.int64())
    times = [_moment(one.timestamp) for one in messages]
    told = {
        "key": lambda: pa.array([one.key for one in messages], pa.binary()),
        "headers": lambda: headers_of(messages),
        "topic": lambda: pa.repeat(pa.scalar(wanted.topic), count),
        "partition": lambda: pa.repeat(pa.scalar(wanted.partition, pa.int32()), count),
        "offset": lambda: offsets,
        "kafka_timestamp": lambda: pa.array(times, _UTC),
        "ingested_at": lambda: pa.repeat(pa.scalar(taken_ms * 1000, _UTC), count),
    }
    found = {column.name: told[column.name]() for column in source.provenance}
    return found | {ARRIVAL: pa.repeat(pa.scalar(wanted.arrival, pa.int64()), count), ROW: offsets, LINE: offsets}


def _moment(timestamp_ms: int | None) -> int | None:
    """A message's time in microseconds; a number that is no time of the years 1 to 9999 tells none."""
    if timestamp_ms is None:
        return None
    return moment if EARLIEST_US <= (moment := timestamp_ms * 1000) < LATEST_US else None


def headers_of(messages: Sequence[Message]) -> pa.Array:
    """The headers of messages; NULL where there are none."""
    told = [
        None if not one.headers else [{"key": name, "value": value} for name, value in one.headers] for one in messages
    ]
    return pa.array(told, HEADERS)
