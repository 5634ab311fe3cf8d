"""Writes the messages of a topic into a recording: each call adds a file with what came since the last one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from icefield.engine.intake.topics.recorded import SUFFIX, Recording, as_line

if TYPE_CHECKING:
    from pathlib import Path

    from icefield.engine.intake.topics.broker import Broker, Topic


@dataclass(frozen=True, slots=True)
class Recorded:
    """How many messages were written, and where; no file where there were none."""

    messages: int
    file: Path | None


def record_topic(broker: Broker, topic: Topic, folder: Path, limit: int | None = None) -> Recorded:
    """Records what a topic has beyond its recording; at most so many messages of each partition."""
    before = Recording(folder).topics(topic.name).get(topic.name)
    reached = {} if before is None else {partition.number: partition.high for partition in before.partitions}
    place = folder / topic.name
    place.mkdir(parents=True, exist_ok=True)
    known = [int(file.stem) for file in place.glob(f"*{SUFFIX}") if file.stem.isdecimal()]
    target = place / f"{max(known, default=-1) + 1:05d}{SUFFIX}"
    draft = place / f".{target.name}"
    count = 0
    with draft.open("w", encoding="utf-8") as lines:
        for partition in topic.partitions:
            start = max(partition.low, reached.get(partition.number, 0))
            end = partition.high if limit is None else min(partition.high, start + limit)
            for messages in broker.messages(topic.name, partition.number, start, end):
                count += len(messages)
                lines.writelines(as_line(partition.number, message) + "\n" for message in messages)
    if not count:
        draft.unlink()
        return Recorded(0, None)
    draft.rename(target)
    return Recorded(count, target)
