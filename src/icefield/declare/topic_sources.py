"""`kafka` and `debezium`: messages of Kafka's topics, each taken once."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from icefield.declare.columns import Column, parse_columns
from icefield.declare.file_source import Files, checked_aliases
from icefield.declare.options import NewColumns, must_be_one_of, texts
from icefield.declare.registry import caller
from icefield.declare.sources import INGESTED_AT, Source, refuse_clashes
from icefield.declare.suggest import did_you_mean
from icefield.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TOPIC, PARTITION, OFFSET = Column("topic", "STRING"), Column("partition", "INT"), Column("offset", "BIGINT")
KAFKA_TIMESTAMP = Column("kafka_timestamp", "TIMESTAMP")
#: What a message has besides its value; `include` hands it over.
PARTS: Mapping[str, Column] = {
    "key": Column("key", "BINARY"),
    "headers": Column("headers", "ARRAY<STRUCT<key: STRING, value: BINARY>>"),
}
#: A message as it is, where no schema says what is in it.
MESSAGE = (PARTS["key"], Column("value", "BINARY"), PARTS["headers"])
#: What Debezium's envelope says of a change.
CHANGE = parse_columns(
    "key STRING, op STRING, lsn BIGINT, tx_id BIGINT, source_ts TIMESTAMP, before STRING, after STRING,"
    " is_snapshot BOOLEAN"
)
_NAME = re.compile(r"[a-zA-Z0-9._*-]{1,249}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics(Source):
    """Messages of a topic or, where its name has a `*`, of all topics that match."""

    topic: str
    #: At most so many messages are taken in by one run.
    max_per_run: int | None = None

    @property
    def name(self) -> str:
        """How it is shown to people."""
        return self.topic

    @property
    def is_pattern(self) -> bool:
        """Whether the name stands for several topics."""
        return "*" in self.topic

    def takes(self, topic: str) -> bool:
        """Whether a topic is one of those; Kafka's own topics never are."""
        pattern = ".*".join(re.escape(part) for part in self.topic.split("*"))
        return re.fullmatch(pattern, topic) is not None and not topic.startswith("__")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka(Topics):
    """Messages with a JSON object each, or as bytes where `is_raw`."""

    is_raw: bool = False
    include: tuple[str, ...] = ()
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    new_columns: NewColumns = "fail"

    @property
    def provenance(self) -> tuple[Column, ...]:
        """Key and headers, where they are wanted; topic, partition, offset and both times."""
        included = tuple(PARTS[name] for name in self.include)
        return (*included, TOPIC, PARTITION, OFFSET, KAFKA_TIMESTAMP, INGESTED_AT)

    @property
    def as_json_lines(self) -> Files:
        """The values of the messages as lines of a file: they are parsed by the same rules."""
        return Files(
            path=self.topic,
            schema=self.schema,
            format="json",
            aliases=self.aliases,
            new_columns=self.new_columns,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Debezium(Topics):
    """Changes of a database's table, as Debezium tells them."""

    @property
    def provenance(self) -> tuple[Column, ...]:
        """Topic, partition, offset and time of arrival."""
        return (TOPIC, PARTITION, OFFSET, INGESTED_AT)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Where a change came from, then what it says."""
        return (TOPIC, PARTITION, OFFSET, *self.schema, INGESTED_AT)

    def takes(self, topic: str) -> bool:
        """Whether a topic has changes of rows: those with ends of transactions and heartbeats have none."""
        is_about_rows = not topic.endswith(".transaction") and "heartbeat" not in topic
        return super(Debezium, self).takes(topic) and (is_about_rows or not self.is_pattern)


def kafka(
    topic: str,
    *,
    schema: str | None = None,
    include: Sequence[str] = (),
    aliases: Mapping[str, Sequence[str]] | None = None,
    new_columns: NewColumns = "fail",
    max_per_run: int | None = None,
) -> Source:
    """Messages of a topic, or of all topics of a pattern such as "sensors-*": `kafka("orders", schema="id BIGINT")`.

    With a schema each message is a JSON object; without one, `key`, `value` and `headers` are handed over as they are.
    """
    must_be_one_of("new_columns", new_columns)
    if new_columns == "add":
        raise _wrong(
            'kafka(..., new_columns="add") is not possible: messages do not declare their fields',
            'add the field to the schema, or write new_columns="ignore"',
        )
    source = Kafka(
        topic=_topic("kafka", topic),
        schema=parse_columns(schema) if schema else MESSAGE,
        is_raw=not schema,
        include=_included(include, is_raw=not schema),
        aliases=checked_aliases(aliases or {}, parse_columns(schema) if schema else ()),
        new_columns=new_columns,
        max_per_run=_positive(max_per_run),
    )
    refuse_clashes(source.schema, tuple(column.name for column in source.provenance))
    return source


def debezium(topic: str, *, max_per_run: int | None = None) -> Source:
    """Changes of a table, captured by Debezium: `debezium("shop.public.customers")`; see `icefield.cdc`."""
    return Debezium(topic=_topic("debezium", topic), schema=CHANGE, max_per_run=_positive(max_per_run))


def _topic(kind: str, topic: object) -> str:
    if not isinstance(topic, str) or not _NAME.fullmatch(topic):
        raise _wrong(
            f"{kind}({topic!r}) is not the name of a topic",
            'write a name such as "orders", or a pattern such as "orders-*"',
        )
    return topic


def _included(include: Sequence[str], *, is_raw: bool) -> tuple[str, ...]:
    found = texts("include", include)
    for name in found:
        if name not in PARTS:
            raise _wrong(f"include= has no {name!r}", did_you_mean(name, PARTS, all_of_them="parts of a message"))
    if found and is_raw:
        raise _wrong("include= is for messages with a schema", "remove it: without a schema all parts are there")
    return found


def _positive(count: int | None) -> int | None:
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
        raise _wrong(f"max_per_run={count!r} is not a number of messages", "write max_per_run=100_000")
    return count


def _wrong(what: str, remedy: str) -> InvalidOption:
    return InvalidOption(what, where=str(caller()), remedy=remedy)
