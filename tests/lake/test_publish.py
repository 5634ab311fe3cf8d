"""Publishing moves all of a run's tables or none, whoever else is at work; a lost answer does not matter."""

from __future__ import annotations

import signal
import sqlite3
from pathlib import Path

import pytest

from icefield.errors import CatalogBusy, Overtaken, RunCleared
from icefield.lake import branch as branch_module
from icefield.lake import catalog as catalog_module
from icefield.lake import metadata as meta
from icefield.lake.embedded import EmbeddedLake
from lakes import new_lake, open_branch, publish, told, write
from projects import Process, ask, rows_of, until

LAKES = str(Path(__file__).parents[1] / "lakes.py")


@pytest.fixture
def lake(tmp_path: Path) -> EmbeddedLake:
    return new_lake(tmp_path / "lake")


def values(lake: EmbeddedLake, table: str) -> list[int]:
    return sorted(value for (value,) in rows_of(lake.pointers()[table]).elements())


def runs(lake: EmbeddedLake) -> list[str]:
    return sorted(run for (run,) in ask(lake.pointers(), "SELECT run FROM ops.runs"))


def everything_under(lake: EmbeddedLake, run: str) -> list[Path]:
    return [path for path in lake.root.rglob("*") if path.is_file() and run in str(path)]


def rows_in_catalog(lake: EmbeddedLake, branch: str) -> int:
    db = sqlite3.connect(lake.catalog.path)
    counts = [
        db.execute(f"SELECT count(*) FROM {table} WHERE catalog_name = ?", (branch,)).fetchone()[0]
        for table in ("iceberg_tables", "iceberg_namespace_properties")
    ]
    db.close()
    return sum(counts)


def one_publish(lake: EmbeddedLake, run: str, failpoints: str) -> Process:
    """A process that appends 2 to a.one and publishes it."""
    return Process.start_script([LAKES, "publish", str(lake.root), run, "a.one=2"], {"ICEFIELD_FAILPOINTS": failpoints})


def test_nothing_of_a_branch_is_seen_before_it_is_published(lake: EmbeddedLake) -> None:
    publish(lake, {"a.old": [1]})
    before = lake.pointers()
    branch = open_branch(lake)
    write(branch, "a.old", 2)
    write(branch, "a.new", 3)
    assert lake.pointers() == before
    branch.publish({"a.old": {}, "a.new": {}}, told(branch.run))
    assert (values(lake, "a.old"), values(lake, "a.new")) == ([1, 2], [3])
    assert lake.catalog.branches() == {}


def test_a_run_that_lost_one_of_its_tables_moves_none_of_them(lake: EmbeddedLake) -> None:
    publish(lake, {"a.one": [1], "a.two": [1]})
    late = open_branch(lake)
    write(late, "a.one", 2)
    write(late, "a.two", 2)
    publish(lake, {"a.two": [3]})
    before = lake.pointers()
    with pytest.raises(Overtaken) as caught:
        late.publish({"a.one": {}, "a.two": {}}, told(late.run))
    assert "a.two" in caught.value.tables
    assert "a.one" not in caught.value.tables
    assert lake.pointers() == before
    late.abandon()
    assert everything_under(lake, late.run) == []


def test_two_runs_that_create_the_same_table_are_a_race_that_one_loses(lake: EmbeddedLake) -> None:
    first, second = open_branch(lake), open_branch(lake)
    write(first, "a.new", 1)
    write(second, "a.new", 2)
    first.publish({"a.new": {}}, told(first.run))
    with pytest.raises(Overtaken):
        second.publish({"a.new": {}}, told(second.run))
    second.abandon()
    assert values(lake, "a.new") == [1]


def test_a_lost_race_on_history_alone_repeats_only_that(lake: EmbeddedLake) -> None:
    one, other = open_branch(lake), open_branch(lake)
    write(one, "a.one", 1)
    write(other, "a.other", 2)
    one.publish({"a.one": {}}, told(one.run))
    other.publish({"a.other": {}}, told(other.run))
    assert runs(lake) == sorted([one.run, other.run])
    assert (values(lake, "a.one"), values(lake, "a.other")) == ([1], [2])


def test_every_one_of_many_runs_that_began_together_keeps_its_rows(lake: EmbeddedLake) -> None:
    branches = [open_branch(lake) for _ in range(5)]
    for branch in branches:
        branch.publish({}, told(branch.run))
    assert runs(lake) == sorted(branch.run for branch in branches)
    assert len({branch.run for branch in branches}) == len(branches)


def test_a_cleared_run_cannot_publish(lake: EmbeddedLake) -> None:
    publish(lake, {"a.one": [1]})
    before = lake.pointers()
    branch = open_branch(lake)
    write(branch, "a.one", 2)
    assert lake.clear(branch.name, branch.run)
    with pytest.raises(RunCleared):
        branch.publish({"a.one": {}}, told(branch.run))
    assert lake.pointers() == before


def test_a_branch_name_taken_by_another_run_is_not_ones_own(lake: EmbeddedLake) -> None:
    publish(lake, {"a.one": [1]})
    branch = open_branch(lake)
    write(branch, "a.one", 2)
    lake.catalog.drop_branch(branch.name)
    lake.catalog.open_branch(branch.name, "someone-else")
    with pytest.raises(RunCleared):
        branch.publish({"a.one": {}}, told(branch.run))


def test_a_paused_run_that_was_cleared_by_force_cannot_publish_when_it_wakes(lake: EmbeddedLake) -> None:
    publish(lake, {"a.one": [1]})
    before = lake.pointers()
    process = one_publish(lake, "sleeper", "publish.metadata-written=pause")
    until(lambda: process.stopped, what="the process pauses itself")
    (name,) = [branch for branch, run in lake.catalog.branches().items() if run == "sleeper"]
    assert lake.alive(name), "a paused process still holds its lock"
    assert lake.clear(name, "sleeper")
    process.signal(signal.SIGCONT)
    ended = process.end()
    assert "RunCleared" in ended.output
    assert lake.pointers() == before
    assert values(lake, "a.one") == [1]


def test_a_cleared_run_that_wakes_and_goes_on_writing_leaves_nothing_behind(lake: EmbeddedLake) -> None:
    publish(lake, {"a.one": [1]})
    branch = open_branch(lake)
    assert lake.clear(branch.name, branch.run)
    with pytest.raises(RunCleared):
        write(branch, "a.one", 2)
    (lake.table_folder("a.one") / "data" / branch.run).mkdir()
    (lake.table_folder("a.one") / "data" / branch.run / "written-by-spark.parquet").touch()
    branch.abandon()
    assert rows_in_catalog(lake, branch.name) == 0
    assert everything_under(lake, branch.run) == []


def test_a_commit_whose_answer_was_lost_is_recognised(lake: EmbeddedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(lake, {"a.one": [1]})
    branch = open_branch(lake)
    write(branch, "a.one", 2)
    monkeypatch.setenv("ICEFIELD_FAILPOINTS", "publish.before-answer=raise")
    branch.publish({"a.one": {}}, told(branch.run))
    monkeypatch.delenv("ICEFIELD_FAILPOINTS")
    assert lake.published(branch.run)
    assert values(lake, "a.one") == [1, 2]
    assert runs(lake).count(branch.run) == 1


def test_a_commit_that_did_not_happen_is_not_taken_for_one_that_did(
    lake: EmbeddedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(lake, {"a.one": [1]})
    before = lake.pointers()
    branch = open_branch(lake)
    write(branch, "a.one", 2)
    monkeypatch.setenv("ICEFIELD_FAILPOINTS", "publish.before-commit=raise")
    with pytest.raises(RuntimeError, match="failpoint"):
        branch.publish({"a.one": {}}, told(branch.run))
    monkeypatch.delenv("ICEFIELD_FAILPOINTS")
    assert not lake.published(branch.run)
    assert lake.pointers() == before
    branch.abandon()
    assert everything_under(lake, branch.run) == []


def test_times_grow_strictly_even_where_the_clock_steps_back(
    lake: EmbeddedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = branch_module.now_ms()
    published = []
    for moment in (real, real, real - 3_600_000, real - 86_400_000, real + 5):
        monkeypatch.setattr(branch_module, "now_ms", lambda moment=moment: moment)
        branch = open_branch(lake, f"at-{len(published)}")
        table = f"a.t{len(published)}"
        write(branch, table, 1)
        published.append(branch.publish({table: {}}, told(branch.run)))
        history = meta.load(lake.pointers()["ops.runs"])
        assert history["last-updated-ms"] == meta.load(lake.pointers()[table])["last-updated-ms"] == published[-1]
    assert published == sorted(set(published))
    logged = [entry["timestamp-ms"] for entry in history["snapshot-log"]]
    assert logged == published
    assert len(runs(lake)) == len(published)


def test_a_lake_published_from_the_future_can_be_written_to_today(
    lake: EmbeddedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = branch_module.now_ms()
    monkeypatch.setattr(branch_module, "now_ms", lambda: real + 7 * 86_400_000)
    publish(lake, {"a.one": [1]})
    monkeypatch.undo()
    publish(lake, {"a.one": [2]})
    assert values(lake, "a.one") == [1, 2]


def test_whoever_waits_for_a_commit_that_does_not_end_is_told(
    lake: EmbeddedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(lake, {"a.one": [1]})
    process = one_publish(lake, "holder", "publish.before-commit=pause")
    until(lambda: process.stopped, what="the process pauses inside its transaction")
    monkeypatch.setattr(catalog_module, "BUSY_SECONDS", 0.2)
    assert values(lake, "a.one") == [1], "readers are not held up"
    with pytest.raises(CatalogBusy, match="locked by another process"):
        lake.catalog.open_branch("run_other", "other")
    process.signal(signal.SIGCONT)
    assert process.end().code == 0
    assert values(lake, "a.one") == [1, 2]


def test_old_snapshots_stay_readable_as_of_each_run(lake: EmbeddedLake) -> None:
    first = publish(lake, {"a.one": [1]})
    second = publish(lake, {"a.one": [2]})
    metadata, history = meta.load(lake.pointers()["a.one"]), meta.load(lake.pointers()["ops.runs"])
    for run, expected in ((first.run, [1]), (second.run, [1, 2])):
        moment = meta.run_published_at(history, run)
        assert moment is not None
        seen = rows_of(lake.pointers()["a.one"], meta.as_of(metadata, moment))
        assert sorted(value for (value,) in seen.elements()) == expected
