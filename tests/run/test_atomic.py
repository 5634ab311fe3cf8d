"""Readers see all tables of a run or none, at any instant; a run that fails leaves no trace but its own record."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from icefield.lake import metadata as meta
from icefield.lake.embedded import EmbeddedLake
from icefield.query.reader import open_reader
from icefield.run.events import RunResult
from projects import ORDERS, TinyProject, ask, order, tiny

pytestmark = pytest.mark.spark

WITH_COLUMN = ORDERS.replace('F.to_date("at").alias("day"))', 'F.to_date("at").alias("day"), F.lit(1).alias("one"))')
FAILING = (
    WITH_COLUMN.replace('checks=[unique("customer")]', 'checks=[unique("customer"), expect("few", "orders < 0")]')
    + """

@table("gold.more", refresh=full())
def more(sales: DataFrame) -> DataFrame:
    return sales.groupBy("day").count()
"""
)


#: `make soak`: runs, questions at least, and how many of these within 100 ms of a publish.
SOAK = (25, 200, 20)


class Poller(threading.Thread):
    """Reads the pointers of the whole lake again and again, and keeps every version it has not seen before."""

    def __init__(self, lake: EmbeddedLake) -> None:
        super().__init__()
        self.lake = lake
        self.polls: list[float] = []
        self.versions: list[dict[str, str]] = []
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.002):
            self.look()
        self.look()  # what was published last may have come since

    def look(self) -> None:
        pointers = self.lake.pointers()
        self.polls.append(time.time() * 1000)
        if pointers and pointers not in self.versions:
            self.versions.append(pointers)


class Asker(threading.Thread):
    """Asks one query over all tables again and again, as `icefield sql` does it."""

    def __init__(self, lake: EmbeddedLake) -> None:
        super().__init__()
        self.lake = lake
        self.answers: list[float] = []
        self.wrong: list[object] = []
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.01):
            if not self.lake.pointers():
                continue
            with open_reader(self.lake) as reader:
                self.answers.append(time.time() * 1000)
                for name, rows, told, _, run in reader.query(all_tables(list(reader.pins))).rows():
                    written_by = reader.pins[name].metadata["properties"].get("icefield.run")
                    if (rows, written_by) != (told, run):
                        self.wrong.append((name, rows, told, written_by, run))


def all_tables(names: list[str]) -> str:
    """Every table's rows beside what the history says it has."""
    tables = [table for table in names if not table.startswith("ops.") and not table.endswith("__quarantine")]
    counts = " UNION ALL ".join(f"SELECT '{table}' AS name, count(*) AS rows FROM {table}" for table in tables)
    newest = """
        SELECT "table" AS name, rows_total AS rows, snapshot, run FROM ops.table_runs WHERE status = 'published'
        QUALIFY row_number() OVER (PARTITION BY "table" ORDER BY number DESC, run DESC) = 1"""
    return f"SELECT name, c.rows, n.rows, n.snapshot, n.run FROM ({counts}) c FULL JOIN ({newest}) n USING (name)"


def mixed(pointers: dict[str, str]) -> list[object]:
    """Tables that are not what the history of the very same version says they are."""
    published = {run for (run,) in ask(pointers, "SELECT run FROM ops.runs WHERE status = 'published'")}
    wrong: list[object] = []
    for name, rows, told, snapshot, run in ask(pointers, all_tables(list(pointers))):
        metadata = meta.load(pointers[name]) if name in pointers else {"properties": {}}
        seen = (rows, metadata.get("current-snapshot-id"), metadata["properties"].get("icefield.run"))
        if seen != (told, snapshot, run) or run not in published:
            wrong.append((name, seen, (told, snapshot, run)))
    return wrong


def moment(result: RunResult) -> int:
    """When a run was published; one that was not is told with its error."""
    assert result.published_ms is not None, result.error
    return result.published_ms


def test_no_reader_ever_sees_tables_of_two_runs_mixed(tmp_path: Path) -> None:
    project = tiny(tmp_path)
    poller, asker = Poller(project.lake), Asker(project.lake)
    published = []
    poller.start()
    asker.start()
    try:
        for number in range(4):
            project.land(f"{number}.csv", [order(10 * number + n, f"c{n}") for n in range(5)])
            published.append(moment(project.run()))
        published.append(moment(project.run(full_refresh=True)))
        project.declare(WITH_COLUMN)
        published.append(moment(project.run()))
    finally:
        for thread in (poller, asker):
            thread.over.set()
            thread.join()
    print(f"{len(asker.answers)} queries over all tables")
    assert len(asker.answers) >= 20
    assert asker.wrong == []
    assert len(poller.versions) == len(published) == 6
    assert [wrong for version in poller.versions for wrong in mixed(version)] == []
    near = near_to(poller.polls, published)
    print(f"{len(poller.polls)} polls, {len(near)} within 100 ms of a publish")
    assert len(poller.polls) >= 200
    assert len(near) >= 20


def near_to(polls: list[float], published: list[int]) -> list[float]:
    """The polls within 100 ms of a publish."""
    return [at for at in polls if any(abs(at - ms) < 100 for ms in published)]


@pytest.mark.soak
@pytest.mark.parametrize(("runs", "least", "near"), [SOAK if "ICEFIELD_SOAK_SECONDS" in os.environ else (3, 9, 0)])
def test_many_questions_over_all_tables_each_see_one_version(tmp_path: Path, runs: int, least: int, near: int) -> None:
    """`make soak`: at least 200 questions, 20 of them within 100 ms of a publish; else what three runs allow."""
    project = tiny(tmp_path)
    askers = [Asker(project.lake) for _ in range(3)]
    published = []
    for asker in askers:
        asker.start()
    try:
        for number in range(runs):
            project.land(f"{number}.csv", [order(10 * number + n, f"c{n}") for n in range(5)])
            published.append(moment(project.run(full_refresh=number % 5 == 4)))
    finally:
        for asker in askers:
            asker.over.set()
            asker.join()
    asked = [at for asker in askers for at in asker.answers]
    print(f"{len(asked)} queries over all tables, {len(near_to(asked, published))} within 100 ms of a publish")
    assert [wrong for asker in askers for wrong in asker.wrong] == []
    assert len(asked) >= least
    assert len(near_to(asked, published)) >= near


def test_a_run_that_creates_grows_rebuilds_and_then_fails_leaves_no_trace(tmp_path: Path) -> None:
    project = tiny(tmp_path)
    project.land("a.csv", [order(1), order(2, "")])
    assert project.run().status == "published"
    before, rows = project.lake.pointers(), project.everything()
    project.declare(FAILING)
    project.land("b.csv", [order(3)])
    failed = project.run()
    assert failed.status == "failed"
    assert "few" in failed.error
    now = project.lake.pointers()
    assert {t: at for t, at in now.items() if not t.startswith("ops.")} == {
        t: at for t, at in before.items() if not t.startswith("ops.")
    }
    assert project.everything() == rows
    assert status_of(project, failed.run) == ["failed"]
    (kept,) = project.lake.catalog.branches().items()
    assert kept[1] == failed.run
    staged = ask(project.lake.pointers(kept[0]), "SELECT count(*) FROM silver.sales WHERE one = 1")
    assert staged == [(2,)], "what failed can be looked at"
    project.declare(ORDERS)
    again = project.run()
    assert again.status == "published"
    assert {t.table: t.action for t in again.tables if t.status == "published"}["silver.sales"] == "append"
    assert sorted(project.ask("SELECT id FROM silver.sales")) == [(1,), (3,)]


def status_of(project: TinyProject, run: str) -> list[Any]:
    return [status for (status,) in project.ask(f"SELECT status FROM ops.runs WHERE run = '{run}'")]
