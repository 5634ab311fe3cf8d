"""What has come to topics since a table last looked, and what has gone that it needs. Asks a broker; no Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from icefield.errors import NoTopic
from icefield.graph.news import OffsetRange, TopicsCursor, TopicsNews

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from icefield.declare import Topics
    from icefield.engine.intake.topics.broker import Broker, Partition, Topic

Place = tuple[str, int]


def topics_news(
    source: Topics, broker: Broker, cursor: TopicsCursor | None, where: str, at_most: int | None = None, first: int = 0
) -> TopicsNews:
    """The news of a source's topics, of which at most so many messages are taken in by one run.

    `first` is the place in the order of arrival at which a table without a cursor begins.
    """
    found = broker.topics(source.takes if source.is_pattern else source.topic)
    known = cursor or TopicsCursor(arrivals=first, since=first)
    if not found and not source.is_pattern and source.topic not in dict(known.ids):
        raise NoTopic(
            f"the topic {source.topic} does not exist",
            where=where,
            remedy="check its name, or create it; `[profile.NAME.kafka]` in icefield.toml says where it is looked for",
        )
    look = _Look(known)
    for topic in found.values():
        look.at(topic)
    look.require_all_topics(found, source)
    limits = [one for one in (source.max_per_run, at_most) if one is not None]
    return look.news(found, min(limits) if limits else None)


@dataclass(slots=True)
class _Look:
    """Partitions compared with how far they were taken in."""

    known: TopicsCursor
    lost: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    #: What cannot come back, so that a rebuild never has everything again.
    for_ever: list[str] = field(default_factory=list)
    #: Of each partition: the first offset taken in, the next one to take in, and the end.
    spans: dict[Place, tuple[int, int, int]] = field(default_factory=dict)

    def at(self, topic: Topic) -> None:
        """Looks at one topic."""
        known_id = dict(self.known.ids).get(topic.name)
        before = {place[:2]: place[2:] for place in self.known.positions if place[0] == topic.name}
        if known_id is not None and known_id != topic.id:
            self._recreated(topic.name, before.values())
            before = {}
        for partition in topic.partitions:
            self._look(topic, partition, before.get((topic.name, partition.number)), is_known=bool(before))

    def _recreated(self, name: str, before: Iterable[tuple[int, ...]]) -> None:
        if any(following > first for first, following in before):
            told = f"topic {name} was deleted and created again"
            self.lost.append(told)
            self.for_ever.append(told)

    def _look(self, topic: Topic, partition: Partition, before: tuple[int, ...] | None, *, is_known: bool) -> None:
        place = (topic.name, partition.number)
        if before is None:  # a partition that was added is read from its beginning
            start = 0 if is_known else partition.low
            first = following = min(start, partition.low)
        else:
            first, following = before
        if following > partition.high:
            told = f"{place[0]}/{place[1]} ends at offset {partition.high}, but was taken in up to {following - 1}"
            self.lost.append(told)
            self.for_ever.append(told)
            following = partition.high
        elif following < partition.low:
            self.lost.append(_offsets(place, following, partition.low))
        if first < min(partition.low, following):
            self.gone.append(_offsets(place, first, min(partition.low, following)))
        self.spans[place] = (first, max(following, partition.low), partition.high)

    def require_all_topics(self, found: Mapping[str, Topic], source: Topics) -> None:
        """Notes topics that are not there any more; those that the source no longer asks for are nobody's loss."""
        for name, _ in self.known.ids:
            if name not in found and (name == source.topic or source.takes(name)):
                self.lost.append(f"topic {name} was deleted")
                self.for_ever.append(f"topic {name} was deleted")

    def news(self, found: Mapping[str, Topic], at_most: int | None) -> TopicsNews:
        """All of it; `at_most` so many messages, evenly from all partitions."""
        waiting = {place: end - start for place, (_, start, end) in self.spans.items() if end > start}
        shares = _shares(waiting, at_most, self.known.arrivals)
        new = tuple(
            OffsetRange(
                topic=place[0],
                partition=place[1],
                start=self.spans[place][1],
                end=self.spans[place][1] + shares[place],
                arrival=self.known.arrivals + number,
            )
            for number, place in enumerate(sorted(place for place in waiting if shares[place]))
        )
        ends = {(one.topic, one.partition): one.end for one in new}
        positions = tuple(
            (*place, first, ends.get(place, start)) for place, (first, start, _) in sorted(self.spans.items())
        )
        cursor = TopicsCursor(
            ids=tuple(sorted((topic.name, topic.id) for topic in found.values())),
            positions=positions,
            arrivals=self.known.arrivals + len(new),
            since=self.known.since,
            lost="; ".join(filter(None, [self.known.lost, *self.for_ever])),
        )
        gone = (*filter(None, [self.known.lost]), *self.gone, *self.for_ever)
        lag = sum(waiting.values()) - sum(shares.values())
        return TopicsNews(cursor=cursor, new=new, lost=tuple(self.lost), gone=gone, lag=lag)


def _offsets(place: Place, start: int, end: int) -> str:
    told = f"offset {start}" if end == start + 1 else f"offsets {start} to {end - 1}"
    return f"{place[0]}/{place[1]}, {told}"


def _shares(waiting: Mapping[Place, int], at_most: int | None, turn: int) -> dict[Place, int]:
    """How many messages of each partition are taken in: all, or evenly so many that they are not too many in all.

    Where that is less than one of each, it is the turn of some of them.
    """
    if at_most is None or sum(waiting.values()) <= at_most:
        return dict(waiting)
    if at_most < len(waiting):
        places = sorted(waiting)
        first = turn % len(places)
        chosen = [*places[first:], *places[:first]][:at_most]
        return {place: int(place in chosen) for place in places}
    shares: dict[Place, int] = {}
    left = at_most
    for number, place in enumerate(sorted(waiting, key=lambda place: (waiting[place], place))):
        shares[place] = min(waiting[place], left // (len(waiting) - number))
        left -= shares[place]
    return shares
