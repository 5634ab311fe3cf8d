"""What has come to a relation since a table last looked. Asks the database; no Spark."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from icefield.engine.intake.relations.clients import require_relation
from icefield.engine.intake.relations.dialects import Span
from icefield.engine.intake.relations.digests import Digest
from icefield.engine.intake.relations.values import is_above, refuse_nulls, require_typed, typed
from icefield.graph.news import RelationCursor, RelationNews
from icefield.words import plural

if TYPE_CHECKING:
    from icefield.declare import Jdbc
    from icefield.engine.intake.relations.clients import Client

#: Of so many rows with the same value it is remembered which ones they were.
TIES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What the lake remembers of a table's reads; it is asked only where the cursor does not tell enough."""

    #: The number of the next read, where no cursor tells it.
    next_arrival: Callable[[], int] = lambda: 0
    #: The digests of the rows that were taken in with the last value.
    ties: Callable[[RelationCursor], Sequence[int]] = lambda cursor: ()


def relation_news(
    source: Jdbc,
    client: Client,
    known: RelationCursor | None,
    memory: Memory,
    where: str,
    *,
    zone: str = "UTC",
    quiet: bool = False,
) -> RelationNews:
    """The news of a source's relation; `quiet`: rows that came since are for another run."""
    there = require_relation(client, source, where)
    if source.cursor is None:
        return _whole(source, client, known, there)
    return _above(source, client, known, memory, where, zone, quiet=quiet)


def unsure_news(source: Jdbc, known: RelationCursor | None, memory: Memory) -> RelationNews:
    """The news of a relation that nobody can be asked about without Spark."""
    cursor = fresh(source) if source.cursor is None else followed(source, known, memory)
    return RelationNews(cursor=cursor, upto=cursor.value, unsure=True)


def fresh(source: Jdbc, arrival: int = 0) -> RelationCursor:
    """What is known where nothing was taken in."""
    names = tuple(column.name for column in source.schema)
    return RelationCursor(columns=names, column=source.cursor or "", arrivals=arrival, first=arrival)


def followed(source: Jdbc, known: RelationCursor | None, memory: Memory) -> RelationCursor:
    """Where to go on by a cursor column: at the beginning, where another column, or none, was followed so far."""
    if known is not None and known.column == source.cursor:
        return known
    arrival = known.arrivals if known is not None and known.column else memory.next_arrival()
    return fresh(source, arrival)


def _whole(source: Jdbc, client: Client, known: RelationCursor | None, there: frozenset[str]) -> RelationNews:
    cursor = fresh(source)
    now = client.digest(source.relation, cursor.columns, Span())
    cursor = replace(cursor, count=now.count, digest=now.text)
    same = known is None
    if known is not None and not known.column and set(known.columns) <= there:
        alike = known.columns == cursor.columns
        found = now if alike else client.digest(source.relation, known.columns, Span())
        same = found == Digest.of_cursor(known)
    return RelationNews(cursor=cursor, rows=now.count, replaced=not same)


def _above(
    source: Jdbc,
    client: Client,
    known: RelationCursor | None,
    memory: Memory,
    where: str,
    zone: str,
    *,
    quiet: bool,
) -> RelationNews:
    assert source.cursor is not None
    relation, kind = source.relation, source.type_of(source.cursor)
    cursor = followed(source, known, memory)
    nothing = RelationNews(cursor=cursor, upto=cursor.value)
    if quiet:
        return nothing
    client.require_ordered(relation, source.cursor, kind)
    highest, nulls = client.highest(relation, Span(source.cursor), source.lag)
    refuse_nulls(nulls, source.cursor, relation, where)
    if not highest:
        return nothing
    top = require_typed(highest, kind, zone, source.cursor, relation, where)
    if not cursor.value:
        return replace(nothing, rows=client.count(relation, Span(source.cursor, kind, upto=highest)), upto=highest)
    news = _with_ties(nothing, source, client, memory)
    if is_above(top, typed(cursor.value, kind, zone)):
        span = Span(source.cursor, kind, after=cursor.value, upto=highest)
        news = replace(news, rows=client.count(relation, span), upto=highest)
    return news


def _with_ties(news: RelationNews, source: Jdbc, client: Client, memory: Memory) -> RelationNews:
    """The rows that have come with the very value that was the highest one."""
    cursor = news.cursor
    span = last_value(source, cursor)
    now = client.digest(source.relation, cursor.columns, span)
    if now == Digest.of_ties(cursor):
        return news
    if cursor.tied <= TIES:
        found = Counter(client.digests(source.relation, cursor.columns, span))
        return replace(news, late=(found - Counter(memory.ties(cursor))).total())
    if now.count <= cursor.tied:
        return news
    told = (
        f"{plural(now.count - cursor.tied, 'row')} came with {cursor.column} = {cursor.value} after"
        f" {cursor.tied:,} of them had been taken in, too many to tell which ones are new"
    )
    return replace(news, unclear=told, cursor=replace(cursor, tied=now.count, tied_digest=now.text))


def last_value(source: Jdbc, cursor: RelationCursor) -> Span:
    """The rows with exactly the highest value that was taken in."""
    return Span.at(cursor.column, _kind(source, cursor), cursor.value)


def _kind(source: Jdbc, cursor: RelationCursor) -> str:
    """The type of a cursor column, which the schema need not have any more."""
    declared = next((column.type for column in source.schema if column.name == cursor.column), None)
    return declared or ("TIMESTAMP" if re.fullmatch(r"\d{4}-.*", cursor.value) else "BIGINT")


def compared(source: Jdbc, client: Client, known: RelationCursor, memory: Memory, news: RelationNews) -> RelationNews:
    """The news, with what is no longer there of what was taken in: a rebuild needs all of it, as it was."""
    there = set(client.columns(source.relation))
    missing = [name for name in (*known.columns, known.column) if name not in there]
    if missing:
        return replace(news, compared=True, gone=f"{source.relation} no longer has the column {missing[0]}")
    span = Span(known.column, _kind(source, known), upto=known.value)
    now = client.digest(source.relation, known.columns, span)
    if now != Digest.of_cursor(known) and known.tied <= TIES:
        found = Counter(client.digests(source.relation, known.columns, last_value(source, known)))
        now = now.minus(Digest.of((found - Counter(memory.ties(known))).elements()))  # those are new, not changed
    return replace(news, compared=True, gone=difference(known, now, source.relation))


def difference(known: RelationCursor, now: Digest, relation: str) -> str:
    """What is said where the rows up to the last value are not those that were taken in; "" where they are."""
    if known.lost:
        return known.lost
    before = Digest.of_cursor(known)
    if now == before:
        return ""
    upto = f"with {known.column} up to {known.value}"
    taken = f"{plural(before.count, 'row')} of {relation} {upto} {'was' if before.count == 1 else 'were'} taken in"
    if now.count == before.count:
        return f"{taken}, and the database has others now"
    return f"{taken}, and the database has {now.count:,} now"
