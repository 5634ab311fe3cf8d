"""What is shown while a run goes on: drawn on a terminal, told line by line otherwise."""

from __future__ import annotations

import io
import re
import sys

import pytest

from icefield.cli import output
from icefield.cli.progress import showing
from icefield.plan import Plan, Step
from icefield.run.events import PhaseStarted, RunBeside, RunOvertaken, TableOutcome, TableStarted

PLAN = Plan(steps=(Step(table="bronze.a", action="build"), Step(table="gold.b", action="build")))
EVENTS = [
    PhaseStarted(phase="plan"),
    PhaseStarted(phase="start"),
    PhaseStarted(phase="stage", plan=PLAN),
    TableStarted(table="bronze.a", action="build", reason="first run"),
    TableOutcome(
        table="bronze.a",
        action="build",
        reason="first run",
        status="published",
        rows_added=20_000,
        rows_quarantined=3,
        seconds=3.24,
    ),
    TableStarted(table="gold.b", action="build", reason="first run"),
    TableOutcome(table="gold.b", action="build", reason="", status="failed", error="ICE-601 ..."),
    RunOvertaken(tables=("bronze.a",)),
    RunOvertaken(tables=("bronze.a", "silver.b", "gold.c", "gold.d", "gold.e")),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_a_line_for_each_step(capsys: pytest.CaptureFixture[str]) -> None:
    with showing() as listener:
        for event in EVENTS:
            listener(event)
    told = capsys.readouterr()
    assert told.out == ""
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in told.err.splitlines())
    assert [line[9:] for line in told.err.splitlines()] == [
        "starting Spark",
        "staging",
        "bronze.a  build  20,000 rows  3 quarantined  3.2 s",
        "gold.b  build  FAILED",
        "another run published bronze.a first; planning again",
        "another run published bronze.a, silver.b, gold.c and 2 more first; planning again",
    ]


def test_a_phase_that_goes_on_is_told_once_and_again_after_the_run_was_overtaken(
    capsys: pytest.CaptureFixture[str],
) -> None:
    phases = [PhaseStarted(phase=phase) for phase in ("plan", "start", "fetch", "start", "fetch", "start", "stage")]
    with showing() as listener:
        for event in (*phases, RunOvertaken(tables=("a.b",)), *phases[:2]):
            listener(event)
    assert [line[9:] for line in capsys.readouterr().err.splitlines()] == [
        "starting Spark",
        "downloading Iceberg's jars (first run only)",
        "staging",
        "another run published a.b first; planning again",
        "starting Spark",
    ]


@pytest.mark.parametrize("drawn", [False, True])
def test_another_run_on_the_lake_is_told_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], drawn: bool
) -> None:
    monkeypatch.setattr(output, "progress_is_drawn", lambda: drawn)
    with showing() as listener:
        listener(RunBeside(run="20260101T000000-aaaaaa", pid=42, started_ms=0))
    told = " ".join(capsys.readouterr().err.split())
    assert re.search(r"another run \(20260101T000000-aaaaaa, since \d\d:00:00, pid 42\) is working on this lake;", told)


def test_a_terminal_gets_a_table_that_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with showing() as listener:
        for event in EVENTS[:6]:
            listener(event)
    drawn = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue())
    assert re.search(r"bronze\.a +done +20,000 +3 +3\.2 s", drawn)
    assert re.search(r"gold\.b +build", drawn)
    assert "staging  1 of 2 tables" in drawn
    assert "\x1b[2K" in terminal.getvalue(), "it is taken away again"


def test_results_on_a_terminal_are_drawn_and_elsewhere_plain(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = ["name", output.Column(name="n", right=True)]
    output.table(columns, [("[red]a", output.Count(1000)), (None, 2)])
    assert capsys.readouterr().out == "name        n\n[red]a  1,000\n            2\n"
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.delenv("NO_COLOR", raising=False)
    output.table(columns, [("[red]a", output.Count(1000))])
    assert "[red]a" in terminal.getvalue()
    assert "\x1b[1mname" in terminal.getvalue()
    output.table(columns, [("[red]a", output.Count(1000))], wide=True)
    assert "─" in terminal.getvalue()


def test_a_row_that_a_terminal_has_no_room_for_is_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    names = [f"column_{number}" for number in range(6)]
    output.table(names, [["a value of some length"] * 6, ["short"] * 5 + ["two\nlines"]], wide=True)
    told = terminal.getvalue().splitlines()
    assert told[0].startswith("-- row 1 ---")
    assert told[1] == "column_0  a value of some length"
    assert told[-2:] == ["column_5  two", "          lines"]
    terminal.truncate(0)
    output.table(names[:2], [["a long value " * 20, "b"]], wide=True)
    assert "─" in terminal.getvalue(), "a long text alone is folded in its column"
