"""Recorded messages: a folder for each topic, files with one message a line, in the order of their names.

A line is a JSON object with `partition`, `offset`, `timestamp` (milliseconds), `key`, `value` and `headers` (pairs).
Bytes that are no UTF-8 are `key_base64` and `value_base64` instead; a header's value is then a pair ["base64", text].
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from icefield.engine.intake.topics.broker import Message, Partition, Topic
from icefield.errors import RecordingUnreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

_BATCH = 10_000
SUFFIX = ".jsonl"


@dataclass(frozen=True, slots=True)
class Recording:
    """A folder with recorded topics."""

    folder: Path

    def topics(self, wanted: str | Callable[[str], bool]) -> Mapping[str, Topic]:
        """The topic of this name, or all that are wanted, as far as there are files of them."""
        if isinstance(wanted, str):
            names = [wanted]
        else:
            there = sorted(self.folder.iterdir()) if self.folder.is_dir() else []
            names = [path.name for path in there if path.is_dir() and wanted(path.name)]
        return {name: topic for name in names if (topic := self._topic(name)) is not None}

    def _topic(self, name: str) -> Topic | None:
        files = self._files(name)
        if not files:
            return None
        spans: dict[int, tuple[int, int]] = {}
        for file in files:
            for number, (low, high) in _spans(file).items():
                before = spans.get(number, (low, high))
                spans[number] = (min(low, before[0]), max(high, before[1]))
        partitions = tuple(Partition(number, *span) for number, span in sorted(spans.items()))
        return Topic(name, _id_of(files[0]), partitions)

    def messages(self, topic: str, partition: int, start: int, end: int) -> Iterator[list[Message]]:
        """The messages of a range of offsets, in order, some at a time; what was recorded twice counts once."""
        found: dict[int, Message] = {}
        for file in self._files(topic):
            low, high = _spans(file).get(partition, (0, 0))
            if high <= start or low >= end:
                continue
            for told in _lines(file):
                if told["partition"] == partition and start <= told["offset"] < end and told["offset"] not in found:
                    found[told["offset"]] = _message(told)
        ordered = [found[offset] for offset in sorted(found)]
        for first in range(0, len(ordered), _BATCH):
            yield ordered[first : first + _BATCH]

    def _files(self, topic: str) -> list[Path]:
        return sorted((self.folder / topic).glob(f"*{SUFFIX}"))


def _id_of(file: Path) -> str:
    """What tells a recording from another one: its beginning."""
    with file.open("rb") as opened:
        return hashlib.sha256(opened.readline()).hexdigest()[:22]


def _spans(file: Path) -> Mapping[int, tuple[int, int]]:
    stat = file.stat()
    return _spans_of(file, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=4096)
def _spans_of(file: Path, _size: int, _modified_ns: int) -> Mapping[int, tuple[int, int]]:
    """From which offset to which a file has messages, for each partition."""
    found: dict[int, tuple[int, int]] = {}
    for told in _lines(file):
        low, high = found.get(told["partition"], (told["offset"], told["offset"] + 1))
        found[told["partition"]] = (min(low, told["offset"]), max(high, told["offset"] + 1))
    return found


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    try:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _envelope(line, file, number)
    except (OSError, UnicodeDecodeError) as problem:
        raise RecordingUnreadable(
            f"a recording cannot be read: {problem}", where=str(file), remedy="restore the file"
        ) from None


def _envelope(line: str, file: Path, number: int) -> dict[str, Any]:
    try:
        told = json.loads(line)
        if isinstance(told, dict) and all(isinstance(told.get(name), int) for name in ("partition", "offset")):
            return told
        problem = "it has no partition and offset"
    except ValueError as error:
        problem = str(error)
    raise RecordingUnreadable(
        f"a line of a recording is not a message: {problem}",
        where=f"{file}:{number}",
        remedy='write one JSON object a line: {"partition": 0, "offset": 12, "timestamp": ..., "key": "...",'
        ' "value": "..."}',
    )


def _message(told: Mapping[str, Any]) -> Message:
    headers = [(name, _header(value)) for name, value in told.get("headers") or ()]
    return Message(told["offset"], told.get("timestamp"), _bytes(told, "key"), _bytes(told, "value"), headers or None)


def _bytes(told: Mapping[str, Any], name: str) -> bytes | None:
    if (coded := told.get(f"{name}_base64")) is not None:
        return base64.b64decode(coded)
    text = told.get(name)
    return None if text is None else str(text).encode()


def _header(value: Any) -> bytes | None:
    if isinstance(value, list):
        return base64.b64decode(value[1])
    return None if value is None else str(value).encode()


def as_line(partition: int, message: Message) -> str:
    """A message as a line of a recording."""
    told: dict[str, Any] = {"partition": partition, "offset": message.offset, "timestamp": message.timestamp}
    for name, content in (("key", message.key), ("value", message.value)):
        told |= _as_text(name, content)
    if message.headers:
        told["headers"] = [[name, _header_text(value)] for name, value in message.headers]
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def _as_text(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}


def _header_text(value: bytes | None) -> str | Sequence[str] | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return ["base64", base64.b64encode(value).decode()]
