"""`run --watch`: news are run at once, failures are tried again, the project may change, and a signal ends it cleanly.

Most tests give the loop a clock of their own: nothing sleeps, and what happens while it waits is the test's to say.
"""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from icefield.project import open_project
from icefield.run.request import RunRequest
from icefield.run.watch import Failed, Happening, Ran, Reloaded, Watch
from projects import ORDERS, Process, TinyProject, order, tiny, until

pytestmark = pytest.mark.spark

BY_MONTH = """
from icefield import append, files, table


@table("raw.trips", source=files("landing/trips/{month}.csv", schema="id BIGINT", batch="month"), refresh=append())
def trips(rows):
    return rows.select("id", "month")
"""


class Enough(KeyboardInterrupt):
    """Ends a loop as Ctrl-C does."""


@dataclass
class Days:
    """A clock whose time only passes where the loop waits; each wait does the next thing of a list."""

    events: list[Callable[[], object]] = field(default_factory=list)
    time: float = 0.0
    waits: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.time

    def wait(self, seconds: float) -> None:
        if seconds <= 0:
            return
        self.waits.append(seconds)
        self.time += seconds
        if not self.events:
            raise Enough
        self.events.pop(0)()


def watched(project: TinyProject, *events: Callable[[], object], **options: Any) -> tuple[list[Happening], Days]:
    """What a loop told until it waited once more than there are events."""
    told: list[Happening] = []
    clock = Days(list(events))
    wanted = RunRequest(**options.pop("order", {}))
    loop = Watch(open_again=lambda: open_project(project.root), tell=told.append, clock=clock, order=wanted, **options)
    loop.carry_out()
    return told, clock


def nothing() -> None:
    """Time passes."""


def test_what_arrives_while_it_waits_is_visible_after_the_next_look(tmp_path: Path) -> None:
    project = tiny(tmp_path / "tiny")
    project.land("1.csv", [order(1), order(2, amount="-1.00")])
    seen: list[set[int]] = []

    def look() -> None:
        seen.append({number for (number,) in project.ask("SELECT id FROM silver.sales")})

    def land(name: str, number: int) -> None:
        look()
        project.land(name, [order(number)])

    told, clock = watched(project, lambda: land("2.csv", 3), nothing, lambda: land("3.csv", 4), look)

    assert [(one.number, one.rows) for one in told if isinstance(one, Ran)] == [(1, 2), (2, 1), (3, 1)]
    assert len(told) == 3
    assert seen == [{1}, {1, 3}, {1, 3, 4}]
    assert clock.waits[2] > clock.waits[1], "the longer nothing comes, the longer it waits"
    assert clock.waits[3] == clock.waits[1], "after news it looks again soon"
    (files,) = project.ask("SELECT count(*) FROM ops.files")
    assert files == (3,)


def test_what_was_accepted_in_advance_does_not_count_for_what_comes_later(tmp_path: Path) -> None:
    project = tiny(tmp_path / "tiny")
    project.land("1.csv", [order(1)])
    assert project.run().ok
    changed = ORDERS.replace("return rows", 'return rows.withColumn("x", F.lit(1))')
    told, _ = watched(project, lambda: project.declare(changed), nothing, order={"accept": ("bronze.orders",)})
    (ran,) = [one for one in told if isinstance(one, Ran)]
    assert {one.table: one.action for one in ran.result.tables}["bronze.orders"] == "rebuild"


def test_a_failure_is_told_and_tried_again_after_twice_the_time_until_it_works(tmp_path: Path) -> None:
    project = tiny(tmp_path / "tiny")
    told, clock = watched(project, *[nothing] * 13, lambda: project.land("1.csv", [order(1)]), nothing)

    failures = [one for one in told if isinstance(one, Failed)]
    assert [one.retry_seconds for one in failures] == [1, 2, 4, 8]
    assert [one.times for one in failures] == [1, 2, 3, 4]
    assert all("does not exist" in one.error for one in failures)
    assert sum(clock.waits[:15]) == 1 + 2 + 4 + 8
    assert isinstance(told[-1], Ran)
    assert told[-1].rows == 1


def test_the_wait_grows_to_a_minute_at_most(tmp_path: Path) -> None:
    project = tiny(tmp_path / "tiny")
    told, _ = watched(project, *[nothing] * 200)
    assert [one.retry_seconds for one in told if isinstance(one, Failed)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_run_that_fails_a_check_is_tried_again_and_its_mended_file_goes_in_once(tmp_path: Path) -> None:
    project = tiny(tmp_path / "tiny", ORDERS.replace('otherwise="quarantine",', ""))
    project.land("1.csv", [order(1)])
    project.land("2.csv", [order(2, amount="-1.00")])
    told, _ = watched(project, lambda: project.land("2.csv", [order(2, amount="1.00")]), nothing)
    failure, ran = told
    assert isinstance(failure, Failed)
    assert failure.result is not None
    assert "amount is positive" in failure.error
    assert isinstance(ran, Ran)
    assert ran.rows == 2
    assert Counter(project.ask("SELECT id FROM silver.sales")) == Counter([(1,), (2,)])


def test_a_changed_project_is_loaded_and_a_broken_one_goes_on_as_soon_as_it_is_mended(tmp_path: Path) -> None:
    project = tiny(tmp_path / "tiny")
    project.land("1.csv", [order(1)])
    changed = ORDERS.replace('F.count("*").alias("orders")', '(F.count("*") * 2).alias("orders")')

    def mend() -> None:
        project.declare(changed)

    told, clock = watched(project, lambda: project.declare(changed + "\noh dear"), mend, nothing)
    first, failure, reloaded, again = told
    assert isinstance(first, Ran)
    assert isinstance(failure, Failed)
    assert "tables.py" in failure.error
    assert isinstance(reloaded, Reloaded)
    assert isinstance(again, Ran)
    assert sum(clock.waits[1:2]) <= failure.retry_seconds
    assert project.ask("SELECT orders FROM gold.by_customer") == [(2,)]


def test_runs_start_at_least_so_long_after_one_another(tmp_path: Path) -> None:
    project = tiny(tmp_path / "tiny")
    project.land("1.csv", [order(1)])
    told, clock = watched(project, lambda: project.land("2.csv", [order(2)]), nothing, nothing, every=30)
    assert len(told) == 2
    assert clock.waits[1] == pytest.approx(30 - clock.waits[0])


def test_what_was_asked_for_once_is_done_once(tmp_path: Path) -> None:
    project = tiny(tmp_path / "tiny")
    project.land("1.csv", [order(1)])
    wanted = {"full_refresh": True, "select": "bronze.orders"}
    told, _ = watched(project, lambda: project.land("2.csv", [order(2)]), nothing, order=wanted)
    actions = [one.result.tables[0].action for one in told if isinstance(one, Ran)]
    assert actions == ["build", "append"]


def test_each_batch_is_a_run_of_its_own(tmp_path: Path) -> None:
    project = tiny(tmp_path / "tiny", BY_MONTH)
    for month in ("2026-01", "2026-02"):
        project.land(f"{month}.csv", "id\n1\n", folder="trips")
    told, _ = watched(project, lambda: project.land("2026-03.csv", "id\n1\n2\n", folder="trips"), nothing)
    assert [(one.number, one.rows) for one in told if isinstance(one, Ran)] == [(1, 1), (2, 1), (3, 2)]
    assert project.ask("SELECT month, count(*) FROM raw.trips GROUP BY 1 ORDER BY 1") == [
        ("2026-01", 1), ("2026-02", 1), ("2026-03", 2)
    ]  # fmt: skip


def test_it_ends_after_so_many_runs(tmp_path: Path) -> None:
    project = tiny(tmp_path / "tiny")
    project.land("1.csv", [order(1)])
    told, clock = watched(project, runs=1)
    assert len(told) == 1
    assert clock.waits == []


# -- processes


@pytest.fixture
def start(request: pytest.FixtureRequest) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def begin(project: TinyProject, failpoints: str = "", *options: str) -> Process:
        command = ["-m", "icefield", "run", "--watch", "--json", "-p", str(project.root), *options]
        started.append(Process.start_script(command, {"ICEFIELD_FAILPOINTS": failpoints}))
        return started[-1]

    yield begin
    for process in started:
        process.kill()


def next_event(process: Process, event: str) -> dict[str, Any]:
    assert process.popen.stdout is not None
    said = []
    for line in process.popen.stdout:
        said.append(line)
        if line.startswith("{") and (found := json.loads(line))["event"] == event:
            return dict(found)
    raise AssertionError(f"no {event}, but: {''.join(said)[-3000:]}")


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough)])
def test_a_signal_ends_a_waiting_loop_at_once_with_exit_code_0(
    tmp_path: Path, start: Callable[..., Process], number: int
) -> None:
    project = tiny(tmp_path / "tiny")
    project.land("1.csv", [order(1)])
    process = start(project)
    assert next_event(process, "run")["rows"] == 1
    process.signal(number)
    begun = time.monotonic()
    ended = process.end()
    assert (ended.code, time.monotonic() - begun < 5) == (0, True), ended.output
    assert "Stopped after 1 run." in ended.output


def test_a_signal_in_the_middle_of_a_run_abandons_it_and_the_next_loop_takes_in_what_it_would_have(
    tmp_path: Path, start: Callable[..., Process]
) -> None:
    project = tiny(tmp_path / "tiny")
    project.land("1.csv", [order(1)])
    process = start(project, "stage.before-write@silver.sales=pause")
    until(lambda: process.stopped)
    process.signal(signal.SIGTERM)
    process.signal(signal.SIGCONT)
    begun = time.monotonic()
    ended = process.end()
    assert (ended.code, time.monotonic() - begun < 6) == (0, True), ended.output
    assert "silver.sales" not in project.lake.pointers()
    assert [type(one) for one in watched(project)[0]] == [Ran]
    assert project.ask("SELECT id FROM silver.sales") == [(1,)]


def test_killed_in_a_run_nothing_is_lost_and_nothing_is_doubled(tmp_path: Path, start: Callable[..., Process]) -> None:
    project = tiny(tmp_path / "tiny")
    project.land("1.csv", [order(1)])
    assert start(project, "publish.before-commit=kill").end().killed
    assert start(project, "publish.committed=kill").end().killed  # in the commit that records the first one's death
    project.land("2.csv", [order(2)])
    watched(project)
    assert Counter(project.ask("SELECT id FROM silver.sales")) == Counter([(1,), (2,)])
    assert Counter(project.ask("SELECT status FROM ops.runs")) == Counter({("died",): 1, ("published",): 1})


@pytest.mark.thorough
def test_two_loops_on_one_lake_take_in_every_file_once(tmp_path: Path, start: Callable[..., Process]) -> None:
    project = tiny(tmp_path / "tiny")
    project.land("0.csv", [order(0)])
    loops = [start(project), start(project)]
    until(lambda: "silver.sales" in project.lake.pointers(), what="the first run")
    for number in range(1, 5):
        project.land(f"{number}.csv", [order(number)])
        until(lambda n=number: (n,) in project.ask("SELECT id FROM silver.sales"), what=f"file {number}")
    for loop in loops:
        loop.signal(signal.SIGTERM)
    assert [loop.end().code for loop in loops] == [0, 0]
    assert Counter(project.ask("SELECT id FROM silver.sales")) == Counter((n,) for n in range(5))
