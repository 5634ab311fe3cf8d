"""What waits for a run and why, told without Spark; the same things have the same digest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from icefield.declare import by_key, collecting, files, full, kafka, table
from icefield.graph import Graph, build_graph
from icefield.graph.news import FilesNews, LandedFile, News, OffsetRange, TopicsCursor, TopicsNews
from icefield.graph.state import TableState, Version
from icefield.plan import Due, Wishes, due, make_plan


def reading(name: str) -> Any:
    space: dict[str, Any] = {}
    exec(f"def f({name}): return None", space)
    return space["f"]


def graph() -> Graph:
    with collecting() as registry:
        months = files("landing/{month}.csv", schema="x BIGINT", batch="month")
        table("t.months", source=months, refresh=by_key("month"))(reading("rows"))
        table("t.zones", source=files("zones.csv", schema="x BIGINT"))(reading("rows"))
        table("t.topic", source=kafka("readings", schema="x BIGINT"))(reading("rows"))
        table("t.mart", refresh=full(), inputs={"months": "t.months"})(reading("months"))
    return build_graph(registry.tables)


GRAPH = graph()
READ = Version(epoch=1, number=1, snapshot=1)


def state(name: str, number: int = 1, **more: Any) -> TableState:
    told: dict[str, Any] = {
        "name": name, "version": Version(epoch=1, number=number, snapshot=number), "run": "", "fingerprint": "",
        "checks_fingerprint": "", "rows": 1, "columns": (), "published_ms": 0,
        "inputs": {"t.months": READ} if name == "t.mart" else {},
    }  # fmt: skip
    return TableState(**{**told, **more})


BUILT = {name: state(name) for name in GRAPH.order}


def landed(*months: str, time: int = 0) -> FilesNews:
    files = tuple(
        LandedFile(path=f"landing/{month}.csv", size=1, modified_ns=time, parts=(("month", month),)) for month in months
    )
    return FilesNews(landed=files, new=files)


def waiting(news: dict[str, News] | None = None, states: dict[str, TableState] | None = None) -> Due:
    known = BUILT if states is None else states
    return due(make_plan(GRAPH, known, news or {}, GRAPH.order, Wishes()), GRAPH, known)


def told(found: Due) -> list[tuple[str, str, str, str]]:
    return [(cause.table, cause.kind, cause.batch, cause.told) for cause in found.causes]


def test_nothing_waits_where_nothing_came() -> None:
    assert not waiting()
    assert str(waiting()) == "nothing is due"


def test_each_batch_waits_for_itself_and_what_follows_adds_no_cause() -> None:
    found = waiting({"t.months": landed("2026-02", "2026-01")})
    assert told(found) == [
        ("t.months", "files", "2026-01", "1 new file"),
        ("t.months", "files", "2026-02", "1 new file"),
    ]
    assert list(found.batches) == ["2026-01", "2026-02"]


def test_messages_upstream_and_code_are_told_apart() -> None:
    new = (OffsetRange(topic="readings", partition=0, start=0, end=3, arrival=0),)
    states = {**BUILT, "t.months": state("t.months", 2), "t.zones": state("t.zones", fingerprint="another")}
    found = waiting({"t.topic": TopicsNews(cursor=TopicsCursor(arrivals=1), new=new)}, states)
    assert [(cause.table, cause.kind) for cause in found.causes] == [
        ("t.zones", "code"), ("t.topic", "offsets"), ("t.mart", "upstream")
    ]  # fmt: skip
    assert told(found.of_kinds(["upstream"])) == [("t.mart", "upstream", "", "t.months changed")]


def test_the_digest_is_that_of_what_waits() -> None:
    one = waiting({"t.months": landed("2026-01", "2026-02")})
    assert one.digest == waiting({"t.months": landed("2026-02", "2026-01")}).digest
    assert one.digest != waiting({"t.months": landed("2026-01", "2026-02", time=1)}).digest
    assert one.batches["2026-01"].digest == waiting({"t.months": landed("2026-01")}).digest
    assert waiting(states={**BUILT, "t.months": state("t.months", 2)}).digest not in (
        waiting(states={**BUILT, "t.months": state("t.months", 3)}).digest,
        waiting().digest,
    )


def test_a_table_that_is_not_built_waits_even_without_files() -> None:
    states = {name: one for name, one in BUILT.items() if name not in ("t.zones", "t.mart")}
    assert told(waiting({"t.zones": FilesNews()}, states)) == [
        ("t.zones", "code", "", "it is not built yet"),
        ("t.mart", "upstream", "", "t.months changed"),
    ]
    meddled = {**BUILT, "t.months": replace(state("t.months"), meddled=True)}
    assert ("t.months", "rows") in [(cause.table, cause.kind) for cause in waiting(states=meddled).causes]
