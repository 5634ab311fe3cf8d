"""What came to topics, and what went before it was taken in: compared with a cursor, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from icefield.declare import Topics, debezium, kafka
from icefield.engine.intake.topics.broker import Message, Partition, Topic
from icefield.engine.intake.topics.news import topics_news
from icefield.errors import NoTopic
from icefield.graph.news import TopicsCursor, TopicsNews, cursor_json, parse_cursor


class Topics_:
    """Topics as a broker lists them."""

    def __init__(self, **topics: tuple[str, dict[int, tuple[int, int]]]) -> None:
        self.all = {
            name: Topic(name, id_, tuple(Partition(number, *span) for number, span in spans.items()))
            for name, (id_, spans) in topics.items()
        }

    def topics(self, wanted: str | Callable[[str], bool]) -> Mapping[str, Topic]:
        if isinstance(wanted, str):
            return {wanted: self.all[wanted]} if wanted in self.all else {}
        return {name: topic for name, topic in self.all.items() if wanted(name)}

    def messages(self, topic: str, partition: int, start: int, end: int) -> Iterator[list[Message]]:
        raise AssertionError("news are found without reading messages")


def look(broker: Topics_, cursor: TopicsCursor | None = None, topic: str = "t", **options: int | None) -> TopicsNews:
    source = kafka(topic)
    assert isinstance(source, Topics)
    return topics_news(source, broker, cursor, "here", **options)  # type: ignore[arg-type]


def ranges(news: TopicsNews) -> list[tuple[str, int, int, int, int]]:
    return [(one.topic, one.partition, one.start, one.end, one.arrival) for one in news.new]


def test_everything_is_new_at_first_and_nothing_afterwards() -> None:
    broker = Topics_(t=("id", {0: (5, 9), 1: (0, 3), 2: (0, 0)}))
    first = look(broker)
    assert ranges(first) == [("t", 0, 5, 9, 0), ("t", 1, 0, 3, 1)]
    assert first.lost == first.gone == ()
    again = look(broker, first.cursor)
    assert again.new == ()
    assert again.cursor == first.cursor


def test_a_cursor_survives_as_text() -> None:
    cursor = look(Topics_(t=("id", {0: (5, 9)}))).cursor
    assert parse_cursor(cursor_json(cursor)) == cursor
    assert parse_cursor('{"count":3,"digest":"x"}').count == 3, "files were the only kind once"  # type: ignore[union-attr]


def test_a_partition_that_was_added_is_read_from_its_beginning_and_arrivals_go_on() -> None:
    cursor = look(Topics_(t=("id", {0: (0, 4)}))).cursor
    news = look(Topics_(t=("id", {0: (0, 6), 1: (0, 2)})), cursor)
    assert ranges(news) == [("t", 0, 4, 6, 1), ("t", 1, 0, 2, 2)]


def test_messages_that_retention_removed_before_they_were_read_are_lost_and_named() -> None:
    cursor = look(Topics_(t=("id", {0: (0, 4)}))).cursor
    news = look(Topics_(t=("id", {0: (7, 9)})), cursor)
    assert news.lost == ("t/0, offsets 4 to 6",)
    assert news.gone == ("t/0, offsets 0 to 3",)
    assert ranges(news) == [("t", 0, 7, 9, 1)], "what is read once the loss is accepted"


def test_what_was_taken_in_may_go_but_not_for_a_rebuild() -> None:
    cursor = look(Topics_(t=("id", {0: (0, 4)}))).cursor
    news = look(Topics_(t=("id", {0: (3, 5)})), cursor)
    assert news.lost == ()
    assert news.gone == ("t/0, offsets 0 to 2",)


def test_a_topic_that_was_created_again_is_known_by_its_id_though_its_offsets_fit() -> None:
    cursor = look(Topics_(t=("id", {0: (0, 4)}))).cursor
    news = look(Topics_(t=("another", {0: (0, 9)})), cursor)
    assert news.lost == ("topic t was deleted and created again",)
    assert ranges(news) == [("t", 0, 0, 9, 1)]
    later = look(Topics_(t=("another", {0: (0, 9)})), news.cursor)
    assert later.lost == ()
    assert later.gone == ("topic t was deleted and created again",), "no rebuild has everything ever again"


def test_a_topic_that_ends_before_the_cursor_has_lost_messages() -> None:
    cursor = look(Topics_(t=("id", {0: (0, 9)}))).cursor
    news = look(Topics_(t=("id", {0: (0, 4)})), cursor)
    assert news.lost == ("t/0 ends at offset 4, but was taken in up to 8",)
    assert look(Topics_(t=("id", {0: (0, 6)})), news.cursor).new[0].start == 4


def test_a_deleted_topic_is_a_loss_and_an_unknown_one_an_error() -> None:
    cursor = look(Topics_(t=("id", {0: (0, 9)}))).cursor
    assert look(Topics_(), cursor).lost == ("topic t was deleted",)
    with pytest.raises(NoTopic, match="the topic t does not exist"):
        look(Topics_())


def test_a_topic_that_the_source_no_longer_asks_for_is_no_loss() -> None:
    broker = Topics_(t=("id", {0: (0, 9)}), other=("x", {0: (0, 2)}))
    news = look(broker, look(broker).cursor, topic="other")
    assert news.lost == news.gone == ()
    assert ranges(news) == [("other", 0, 0, 2, 1)]
    assert dict(news.cursor.ids) == {"other": "x"}


def test_a_table_that_was_dropped_begins_after_all_that_it_had_taken_in() -> None:
    broker = Topics_(t=("id", {0: (0, 4)}))
    news = look(broker, first=7)
    assert ranges(news) == [("t", 0, 0, 4, 7)]
    assert (news.cursor.since, look(broker, news.cursor).cursor.since) == (7, 7)


def test_a_pattern_takes_topics_as_they_appear_and_never_those_of_kafka_itself() -> None:
    broker = Topics_(**{"a-1": ("x", {0: (0, 1)}), "b-1": ("y", {0: (0, 1)}), "__a-offsets": ("z", {0: (0, 1)})})
    first = look(broker, topic="a-*")
    assert ranges(first) == [("a-1", 0, 0, 1, 0)]
    broker.all["a-2"] = Topic("a-2", "v", (Partition(0, 3, 5),))
    assert ranges(look(broker, first.cursor, topic="a-*")) == [("a-2", 0, 3, 5, 1)]
    assert look(Topics_(), topic="a-*").new == ()
    assert kafka("*").takes("__consumer_offsets") is False  # type: ignore[attr-defined]


def test_changes_of_a_pattern_are_those_of_tables() -> None:
    source = debezium("shop.*")
    assert isinstance(source, Topics)
    topics = ("shop.public.a", "shop.transaction", "__debezium-heartbeat.shop", "shop.heartbeat")
    assert [name for name in topics if source.takes(name)] == ["shop.public.a"]


@pytest.mark.parametrize(
    ("at_most", "taken"), [(100, {0: 50, 1: 5, 2: 20}), (30, {0: 13, 1: 5, 2: 12}), (4, {0: 2, 1: 1, 2: 1}), (0, {})]
)
def test_a_limit_is_shared_by_all_partitions_and_the_rest_is_told_as_lag(at_most: int, taken: dict[int, int]) -> None:
    broker = Topics_(t=("id", {0: (0, 50), 1: (0, 5), 2: (0, 20)}))
    news = look(broker, at_most=at_most)
    assert {one.partition: one.size for one in news.new} == taken
    assert news.lag == 75 - sum(taken.values())
    rest = look(broker, news.cursor)
    assert sum(one.size for one in rest.new) == news.lag, "nothing is skipped"


def test_a_limit_below_one_message_of_each_partition_starves_none_of_them() -> None:
    high, cursor, taken = {0: 1, 1: 5, 2: 5}, None, set()
    for _ in range(6):
        news = look(Topics_(t=("id", {number: (0, end) for number, end in high.items()})), cursor, at_most=2)
        taken |= {one.partition for one in news.new}
        cursor = news.cursor
        high = {number: end + 3 * (number > 0) for number, end in high.items()}
    assert taken == {0, 1, 2}


def test_no_limit_leaves_messages_out_for_ever() -> None:
    broker = Topics_(t=("id", {number: (0, 7) for number in range(5)}))
    cursor, seen = None, 0
    for _ in range(20):
        news = look(broker, cursor, at_most=3)
        seen, cursor = seen + news.new_messages, news.cursor
    assert seen == 35
