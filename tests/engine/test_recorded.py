"""Recordings stand in for a broker: the same messages by offset, from files; bytes survive being recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from icefield.engine.intake.topics.broker import Message, Partition
from icefield.engine.intake.topics.recorded import Recording, as_line
from icefield.engine.intake.topics.recorder import record_topic
from icefield.errors import RecordingUnreadable
from recordings import envelope, record

MESSAGES = [
    Message(3, 1000, b"k", b'{"a":1}', None),
    Message(4, 1001, None, None, [("h", b"x"), ("h", None), ("bytes", b"\xff")]),
    Message(6, None, b"\xff\xfe", b"\x00\xff", None),
    Message(7, 1002, "schlüssel".encode(), "\n\t€".encode(), None),
]


def test_messages_come_back_as_they_were_recorded(tmp_path: Path) -> None:
    record(tmp_path, "t", "0", [as_line(0, one) for one in MESSAGES])
    assert [one for batch in Recording(tmp_path).messages("t", 0, 0, 100) for one in batch] == MESSAGES


def test_offsets_are_spans_over_all_files_of_each_partition(tmp_path: Path) -> None:
    record(tmp_path, "t", "0", [envelope(0, "a"), envelope(5, "b", partition=1)])
    record(tmp_path, "t", "1", [envelope(1, "c"), envelope(6, "d", partition=1), envelope(7, "e", partition=1)])
    found = Recording(tmp_path).topics("t")["t"]
    assert found.partitions == (Partition(0, 0, 2), Partition(1, 5, 8))
    some = [one.offset for batch in Recording(tmp_path).messages("t", 1, 6, 8) for one in batch]
    assert some == [6, 7]


def test_what_was_recorded_twice_counts_once(tmp_path: Path) -> None:
    record(tmp_path, "t", "0", [envelope(0, "a"), envelope(1, "b")])
    record(tmp_path, "t", "1", [envelope(1, "b"), envelope(2, "c")])
    assert [one.offset for batch in Recording(tmp_path).messages("t", 0, 0, 9) for one in batch] == [0, 1, 2]


def test_messages_come_in_the_order_of_their_offsets_wherever_they_stand(tmp_path: Path) -> None:
    record(tmp_path, "t", "0", [envelope(4, "a"), envelope(1, "b"), envelope(5, "c")])
    record(tmp_path, "t", "1", [envelope(0, "d"), envelope(3, "e")])
    assert [one.offset for batch in Recording(tmp_path).messages("t", 0, 0, 9) for one in batch] == [0, 1, 3, 4, 5]


def test_another_recording_is_another_topic(tmp_path: Path) -> None:
    record(tmp_path, "t", "0", [envelope(0, "a")])
    before = Recording(tmp_path).topics("t")["t"].id
    record(tmp_path, "t", "1", [envelope(1, "b")])
    assert Recording(tmp_path).topics("t")["t"].id == before
    record(tmp_path, "t", "0", [envelope(0, "other")])
    assert Recording(tmp_path).topics("t")["t"].id != before


@pytest.mark.parametrize("line", ["{", "[]", '{"partition":0}', '{"partition":"0","offset":1}', "7"])
def test_a_line_that_is_no_message_is_named(tmp_path: Path, line: str) -> None:
    record(tmp_path, "t", "0", [envelope(0, "a"), line])
    with pytest.raises(RecordingUnreadable) as told:
        Recording(tmp_path).topics("t")
    assert str(told.value.where).endswith("0.jsonl:2")


def test_a_recorder_goes_on_where_the_last_recording_ended(tmp_path: Path) -> None:
    broker, copy = Recording(tmp_path / "broker"), tmp_path / "copy"
    record(broker.folder, "t", "0", [as_line(0, one) for one in MESSAGES[:2]])
    first = record_topic(broker, broker.topics("t")["t"], copy)
    assert (first.messages, first.file) == (2, copy / "t" / "00000.jsonl")
    assert record_topic(broker, broker.topics("t")["t"], copy).file is None, "nothing came"
    record(broker.folder, "t", "1", [as_line(0, one) for one in MESSAGES[2:]])
    assert record_topic(broker, broker.topics("t")["t"], copy, limit=2).messages == 1, "offset 5 is a hole"
    assert record_topic(broker, broker.topics("t")["t"], copy).messages == 1
    assert [one for batch in Recording(copy).messages("t", 0, 0, 100) for one in batch] == MESSAGES


def test_a_recorder_writes_over_no_other_file(tmp_path: Path) -> None:
    broker, copy = Recording(tmp_path / "broker"), tmp_path / "copy"
    for number, one in enumerate(MESSAGES[:3]):
        record(broker.folder, "t", str(number), [as_line(0, one)])
        if number == 2:
            (copy / "t" / "00000.jsonl").unlink()
        assert record_topic(broker, broker.topics("t")["t"], copy).messages == 1
    assert sorted(file.name for file in (copy / "t").iterdir()) == ["00001.jsonl", "00002.jsonl"]
