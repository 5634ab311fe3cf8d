"""The intake of topics: ranges of offsets are read by threads of the driver where they are small, else by Spark."""

from __future__ import annotations

from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icefield.declare import Topics
from icefield.engine.intake.sheets import Sheet
from icefield.engine.intake.topics.broker import Settings, open_broker
from icefield.engine.intake.topics.messages import decoder_of, read_range
from icefield.errors import MessagesLost
from icefield.graph.news import OffsetRange, TopicsNews
from icefield.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from icefield.engine.intake.port import Landed, Surroundings
    from icefield.engine.intake.topics.messages import Decoded
    from icefield.graph import Node
    from icefield.plan import Step

#: The kinds of rows that reading gives.
KINDS = ("rows", "problems", "undecided", "values")


@dataclass(frozen=True, slots=True)
class TopicsIntake:
    """Messages of topics."""

    around: Surroundings
    settings: Settings
    #: The ranges that a table has taken in so far, for rebuilds.
    taken: Callable[[str], Sequence[OffsetRange]]

    def receive(self, node: Node, step: Step) -> ReceivedMessages:
        """Reads the messages that a step takes in, if they are few."""
        assert isinstance(node.source, Topics)
        assert isinstance(step.news, TopicsNews)
        received = ReceivedMessages(around=self.around, settings=self.settings, node=node, step=step, ranges=())
        if step.action == "note":
            return received
        before = () if step.action in ("append", "update") else self.taken(node.name)
        cursor = step.news.cursor
        current = dict(cursor.ids)
        own = [one for one in before if one.topic in current and one.arrival >= cursor.since]
        received.ranges = (*own, *step.news.new)
        if sum(one.size for one in received.ranges) <= self.around.driver_messages:
            received.read_here()
        return received


@dataclass(slots=True, kw_only=True)
class ReceivedMessages:
    """Ranges that a step takes in, and what was read from them, if it was read already."""

    around: Surroundings
    settings: Settings
    node: Node
    step: Step
    ranges: tuple[OffsetRange, ...]
    decoded: list[Decoded] | None = None

    @property
    def source(self) -> Topics:
        assert isinstance(self.node.source, Topics)
        return self.node.source

    @property
    def news(self) -> TopicsNews:
        assert isinstance(self.step.news, TopicsNews)
        return self.step.news

    def read_here(self) -> None:
        """Reads everything into memory, a thread for each range; if that is too much, it is left to Spark."""
        budget = _Budget(self.around.driver_message_bytes)
        work = [self.around.pool.submit(self._read, one, budget) for one in self.ranges]
        try:
            found = [part for one in work for part in one.result()]
        except CancelledError:
            found = []
        finally:
            for one in work:
                one.cancel()
        self.decoded = None if budget.is_spent else found

    def _read(self, wanted: OffsetRange, budget: _Budget) -> list[Decoded]:
        found = []
        decoder = decoder_of(self.source, self.around.zone)
        for part in read_range(open_broker(self.settings), self.source, wanted, decoder, self.around.started_ms):
            if budget.spend(part.bytes):
                return []
            found.append(part)
        return found

    def jobs(self, folder: Path) -> list[ReadJob]:
        """The ranges in pieces that workers read side by side."""
        at_most = self.around.split_messages
        pieces = [
            OffsetRange(
                topic=one.topic,
                partition=one.partition,
                start=start,
                end=min(start + at_most, one.end),
                arrival=one.arrival,
                taken_ms=one.taken_ms if one.taken_ms is not None else self.around.started_ms,
            )
            for one in self.ranges
            for start in range(one.start, one.end, at_most)
        ]
        return [
            ReadJob(
                settings=self.settings,
                source=self.source,
                zone=self.around.zone,
                wanted=one,
                folder=str(folder),
                name=str(number),
            )
            for number, one in enumerate(pieces)
        ]

    def land(self, spark: SparkSession) -> Landed:
        """Has Spark read what is much, and decide what was left to it."""
        from icefield.engine.intake.topics.landed import land  # noqa: PLC0415 - Spark

        return land(spark, self)

    def require_all_messages(self, found: Mapping[int, int]) -> None:
        """Stops a rebuild for which Kafka has fewer messages of a range than were taken in: compaction removes some.

        What a new range lacks is no loss, since nobody has seen it.
        """
        lacking = [one for one in self.ranges if one.messages is not None and found.get(one.arrival, 0) < one.messages]
        if lacking:
            count = sum((one.messages or 0) - found.get(one.arrival, 0) for one in lacking)
            raise MessagesLost(
                f"{self.node.name} must be rebuilt ({self.step.reason}), but Kafka no longer has"
                f" {plural(count, 'message')} that it took in; the first of them is in {lacking[0]}",
                where=f"{self.node.name}, {self.node.location}",
                remedy="restore the messages (compaction may have removed them), or undo the change that makes a"
                " rebuild necessary, or accept it without one: icefield run --accept " + self.node.name,
            )

    def require_same_topics(self) -> None:
        """What was read came from the topics that were planned with, none of which was created again meanwhile."""
        planned, read = dict(self.news.cursor.ids), sorted({one.topic for one in self.ranges})
        if not read:
            return
        found = open_broker(self.settings).topics(read[0] if len(read) == 1 else read.__contains__)
        for name in read:
            if name not in found or found[name].id != planned[name]:
                raise MessagesLost(
                    f"the topic {name} was deleted while it was read",
                    where=f"{self.node.name}, {self.node.location}",
                    remedy="run again: the next plan tells what is missing",
                )

    def noted(self, run: str) -> list[dict[str, Any]]:
        """What `ops.offsets` is to remember where nothing is read: a loss that was accepted."""
        return self.records(run, {})

    def records(self, run: str, counts: Mapping[int, int]) -> list[dict[str, Any]]:
        """What `ops.offsets` is to remember: ranges that were taken in, with how many messages, and losses."""
        ids = dict(self.news.cursor.ids)
        common = {"table": self.node.name, "run": run, "taken_ms": self.around.started_ms}
        taken = [
            {
                **common,
                "topic": one.topic,
                "topic_id": ids.get(one.topic, ""),
                "partition": one.partition,
                "start_offset": one.start,
                "end_offset": one.end,
                "arrival": one.arrival,
                "status": "taken",
                "messages": counts.get(one.arrival, 0),
            }
            for one in self.news.new
        ]
        return taken + [{**common, "status": "lost", "detail": told} for told in self.news.lost]


class _Budget:
    """How many bytes may still be kept in memory."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def spend(self, count: int) -> bool:
        """Whether that was too much."""
        self._left -= count
        return self.is_spent

    @property
    def is_spent(self) -> bool:
        return self._left < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadJob:
    """A piece of a range, read by one worker into Parquet files of one name."""

    settings: Settings
    source: Topics
    zone: str
    wanted: OffsetRange
    folder: str
    name: str

    def do(self, attempt: str = "") -> ReadDone:
        """Reads it."""
        name = f"{self.name}{attempt}.parquet"
        sheets = {kind: Sheet(Path(self.folder), kind, name) for kind in KINDS}
        counts, messages = dict.fromkeys(KINDS, 0), 0
        decoder = decoder_of(self.source, self.zone)
        assert self.wanted.taken_ms is not None
        broker = open_broker(self.settings)
        for part in read_range(broker, self.source, self.wanted, decoder, self.wanted.taken_ms):
            messages += part.messages
            for kind in KINDS:
                table = getattr(part, kind)
                if table.num_rows:
                    sheets[kind].add({field: table[field] for field in table.column_names})
                    counts[kind] += table.num_rows
        written = tuple((kind, name) for kind in KINDS if sheets[kind].close())
        return ReadDone(wanted=self.wanted, messages=messages, counts=counts, files=written)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadDone:
    """What a job tells: how many messages and rows of each kind it read, and the files that it wrote."""

    wanted: OffsetRange
    messages: int
    counts: dict[str, int]
    files: tuple[tuple[str, str], ...]
