"""Messages that nobody should send are decoded, all of them, one by one and together."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from icefield.declare import Debezium, Kafka, Topics, debezium, kafka
from icefield.engine.intake.topics.broker import Message
from icefield.engine.intake.topics.messages import MESSAGE_LIMIT, Decoded, decoder_of, read_range
from icefield.engine.origin import PROBLEM, RAW
from icefield.graph.news import OffsetRange
from odd_messages import CHANGE, KEYS, READING, SCHEMA, TIMES, VALUES, damaged

SOURCES = {"json": kafka("t", schema=SCHEMA), "changes": debezium("t"), "bytes": kafka("t")}


class Held:
    """A broker of one range."""

    def __init__(self, messages: list[Message]) -> None:
        self.held = messages

    def messages(self, *_: object) -> Iterator[list[Message]]:
        yield self.held


def decoded(source: Topics, messages: list[Message]) -> Decoded:
    wanted = OffsetRange(topic="t", partition=0, start=0, end=len(messages), arrival=0)
    held: Any = Held(messages)
    (found,) = read_range(held, source, wanted, decoder_of(source, "UTC"), 5)
    return found


def accounted(found: Decoded) -> int:
    return int(found.rows.num_rows + found.problems.num_rows + found.undecided.num_rows)


@pytest.mark.parametrize("kind", SOURCES)
def test_every_message_is_a_row_or_has_its_reason(kind: str) -> None:
    source = SOURCES[kind]
    assert isinstance(source, Debezium | Kafka)
    odd = [*product(VALUES, [None], [0]), *product([READING, CHANGE], KEYS, TIMES)]
    messages = [Message(at, time, key, value, [("h", None)]) for at, (value, key, time) in enumerate(odd)]
    tombstones = sum(one.value is None for one in messages) if kind == "changes" else 0
    for one in messages:
        assert accounted(decoded(source, [one])) == (0 if kind == "changes" and one.value is None else 1), one
    assert accounted(decoded(source, messages)) == len(messages) - tombstones
    broken = [Message(at, 0, None, value, None) for at, value in enumerate(damaged(7, 4000))]
    assert accounted(decoded(source, broken)) == len(broken)


def test_a_time_that_is_none_is_not_told() -> None:
    found = decoded(SOURCES["bytes"], [Message(at, time, None, b"", None) for at, time in enumerate(TIMES)])
    told = [None if time is None else time * 1000 for time in TIMES[:4]]
    assert found.rows["kafka_timestamp"].cast("int64").to_pylist() == [*told, None, None]


@pytest.mark.parametrize("kind", ["json", "changes"])
def test_a_malformed_message_is_kept_whole_however_large_it_is(kind: str) -> None:
    large, enormous = b"{" * (20 << 20), b"{" * (MESSAGE_LIMIT + 1)
    found = decoded(SOURCES[kind], [Message(0, 0, None, enormous, None)])
    assert found.problems[RAW].to_pylist() == [enormous]
    assert f"the message has {len(enormous)} bytes, sha256 " in found.problems[PROBLEM][0].as_py()
    found = decoded(SOURCES[kind], [Message(0, 0, None, large, None)])
    kept = found.problems[RAW] if found.problems.num_rows else found.undecided["value"]
    assert kept.to_pylist() == [large]
