"""`jdbc`: whole relations and cursors, how tables follow them, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from icefield.declare import Append, Full, Jdbc, append, by_key, collecting, full, jdbc, table
from icefield.errors import IcefieldError
from icefield.graph import Graph, build_graph

SCHEMA = "id BIGINT, name STRING, at TIMESTAMP"


def made(relation: str = "public.orders", **options: Any) -> Jdbc:
    source = jdbc(relation, **{"schema": SCHEMA, **options})
    assert isinstance(source, Jdbc)
    return source


def graph(**options: Any) -> Graph:
    def orders(rows: Any) -> Any:
        return rows

    with collecting() as registry:
        table("raw.orders", **options)(orders)
    return build_graph(registry.tables)


def test_a_relation_is_read_whole_and_replaced_or_by_a_cursor_and_appended() -> None:
    assert [column.name for column in made().columns] == ["id", "name", "at"]
    assert [column.name for column in made(cursor="at").columns] == ["id", "name", "at", "ingested_at"]
    assert isinstance(graph(source=made())["raw.orders"].refresh, Full)
    assert isinstance(graph(source=made(cursor="id"))["raw.orders"].refresh, Append)
    assert isinstance(graph(source=made(), refresh=append())["raw.orders"].refresh, Append)


def test_a_graph_with_a_relation_survives_as_text() -> None:
    found = graph(source=made(cursor="at", lag=timedelta(minutes=5), partitions=4, connection="shop"))
    assert Graph.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"relation": "SELECT 1"}, "is not the name of a table or view"),
        ({"relation": "a.b.c.d"}, "is not the name of a table or view"),
        ({"relation": ""}, "is not the name of a table or view"),
        ({"schema": "id"}, "ICE-103"),
        ({"cursor": "att"}, "did you mean `at`"),
        ({"cursor": "name"}, "has the type STRING"),
        ({"cursor": "at", "schema": "ingested_at TIMESTAMP, at TIMESTAMP"}, "already provided"),
        ({"lag": timedelta(1)}, "lag= needs a cursor"),
        ({"cursor": "id", "lag": timedelta(1)}, "lag= needs a cursor of type TIMESTAMP"),
        ({"cursor": "at", "lag": timedelta(0)}, "is not a positive timedelta"),
        ({"partitions": 4}, "needs a column by which rows are divided"),
        ({"partitions": 0}, "is not a number of connections"),
        ({"partition_by": "name"}, "has the type STRING"),
        ({"connection": "a b"}, "is not a name"),
    ],
)
def test_what_cannot_be_read_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(IcefieldError) as refused:
        made(**options)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("cursor", "refresh", "told"),
    [
        ("at", full(), "is refreshed in full, but reads public.orders by a cursor"),
        ("at", by_key("id"), "ingest the source in a table with append()"),
        (None, by_key("id"), "declare refresh=full()"),
    ],
)
def test_a_refresh_that_does_not_fit_is_refused(cursor: str | None, refresh: Any, told: str) -> None:
    with pytest.raises(IcefieldError) as refused:
        graph(source=made(cursor=cursor), refresh=refresh)
    assert told in str(refused.value)
