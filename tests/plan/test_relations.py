"""What news of a database's relation mean for a table, decided without Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from icefield.declare import append, collecting, jdbc, table
from icefield.errors import RowsChanged
from icefield.graph import build_graph
from icefield.graph.news import RelationCursor, RelationNews
from icefield.graph.state import EMPTY
from icefield.plan import Plan, Step, Wishes, decide
from icefield.project import open_project
from icefield.run.watch import Watch

SCHEMA = "id BIGINT, at TIMESTAMP"
ABOVE = RelationCursor(count=3, columns=("id", "at"), column="at", value="2026-08-01 10:00:00", tied=1, arrivals=1)
WHOLE = RelationCursor(count=3, columns=("id", "at"))
STATE = replace(EMPTY, name="raw.orders", cursor=ABOVE)
QUIET = RelationNews(cursor=ABOVE, upto=ABOVE.value)


def orders(rows: Any) -> Any:
    return rows


def step(news: RelationNews, *, built: bool = True, refresh: Any = None, **wishes: Any) -> Step:
    source = jdbc("orders", schema=SCHEMA, cursor="at" if news.cursor.column else None)
    with collecting() as registry:
        table("raw.orders", source=source, refresh=refresh)(orders)
    node = build_graph(registry.tables)["raw.orders"]
    asked = Wishes(**{name: frozenset(value) if isinstance(value, set) else value for name, value in wishes.items()})
    return decide(node, STATE if built else None, {}, news, asked)


@pytest.mark.parametrize(
    ("news", "options", "action", "reason"),
    [
        (QUIET, {"built": False}, "build", "first run"),
        (QUIET, {}, "none", "up to date"),
        (replace(QUIET, rows=2, upto="X"), {}, "append", "2 new rows, at up to X"),
        (replace(QUIET, late=1), {}, "append", "1 new row with at = 2026-08-01 10:00:00 as before"),
        (replace(QUIET, unsure=True), {}, "append", "orders is asked for new rows at every run"),
        (replace(QUIET, unclear="many"), {"accept": {"raw.orders"}}, "note", "accepted: many"),
        (QUIET, {"full_refresh": True}, "rebuild", "--full-refresh"),
        (RelationNews(cursor=WHOLE), {}, "none", "up to date"),
        (RelationNews(cursor=WHOLE, replaced=True), {}, "refresh", "orders has changed"),
        (RelationNews(cursor=WHOLE, replaced=True), {"refresh": append()}, "rebuild", "orders has changed"),
        (RelationNews(cursor=WHOLE, unsure=True), {}, "refresh", "orders is read at every run"),
    ],
)
def test_a_step_follows_from_the_news(news: RelationNews, options: dict[str, Any], action: str, reason: str) -> None:
    found = step(news, **options)
    assert (found.action, found.reason) == (action, reason)


def test_what_was_taken_in_and_changed_since_stops_a_rebuild_alone() -> None:
    changed = replace(QUIET, gone="5 rows are others now", rows=1)
    assert step(changed).action == "append"
    with pytest.raises(RowsChanged, match=r"must be rebuilt \(--full-refresh\), but 5 rows are others now") as told:
        step(changed, full_refresh=True)
    assert "icefield run --full-refresh --accept raw.orders --select raw.orders" in told.value.remedy
    with pytest.raises(RowsChanged, match="too many"):
        step(replace(QUIET, unclear="too many"))


def test_a_loop_reads_what_it_cannot_ask_about_once_a_minute() -> None:
    class Clock:
        time = 100.0

        def now(self) -> float:
            return self.time

        def wait(self, seconds: float) -> None:
            raise AssertionError("it does not wait here")

    clock = Clock()
    loop = Watch(open_again=open_project, clock=clock)
    unsure = Step(table="raw.orders", action="append", reason="", news=replace(QUIET, unsure=True))
    follows = Step(table="gold.a", action="update", reason="", known=False)
    plan = Plan(steps=(unsure, follows))
    assert loop._is_due(plan), "the first time"
    loop.done, loop._ended = 1, 100.0
    assert not loop._is_due(plan)
    assert loop._is_due(Plan(steps=(unsure, Step(table="raw.b", action="append", reason=""))))
    clock.time = 160.0
    assert loop._is_due(plan)
