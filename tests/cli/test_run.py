"""Real runs from the command line: what they print, their exit codes, and what stays of them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from commands import Done, icefield, imported, lines

from projects import ORDERS, SOURCES, TinyProject, order, tiny

pytestmark = pytest.mark.spark

FAILING = """

@table("gold.doubted", checks=[expect_table("there are many", "count(*) > 1000")])
def doubted(sales: DataFrame) -> DataFrame:
    return sales
"""
WARNING = """

@table("gold.warned", checks=[expect_table("there are many", "count(*) > 1000", otherwise="warn")])
def warned(sales: DataFrame) -> DataFrame:
    return sales
"""


@pytest.fixture(scope="module")
def starter(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """The project that `init` makes, and its first run."""
    root = tmp_path_factory.mktemp("init") / "visits"
    assert icefield("init", str(root)).code == 0
    return root, icefield("run", "-p", str(root))


def run_json(project: TinyProject, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = icefield("run", "--json", *arguments, "-p", str(project.root))
    return done.code, json.loads(done.out)


def test_the_first_run_reports_everything(starter: tuple[Path, Done]) -> None:
    root, done = starter
    assert done.code == 0, done.err
    figures = r"\d+\.\d s|\d+ ms|\d+ min \d+ s|\d+\.\d [KM]B|(?<= )\d+\.\d(?= |$)"
    told = lines(re.sub(figures, "#", done.out, flags=re.MULTILINE))
    run = re.search(r"Run (\S+) published", done.out)[1]
    assert told == [
        "table action added total rejected seconds read check write",
        "bronze.visits build 5 5 4 # # # #",
        "gold.visits_a_day build 2 2 # # #",
        "Quarantined rows",
        "table reason rows",
        "bronze.visits malformed 1",
        "bronze.visits seconds is not negative 1",
        "bronze.visits visit_id is not null 1",
        "bronze.visits visit_id is unique 1",
        "time plan #, start #, stage #, audit #, publish #",
        f"lake {root}/lake",
        f"log {root}/lake/runs/{run}/spark.log",
        "Next",
        f'icefield sql -p {root} "SELECT * FROM gold.visits_a_day LIMIT 10"',
        f"icefield table history -p {root} gold.visits_a_day",
        f"icefield quarantine show -p {root} bronze.visits",
        f'icefield sql -p {root} "SELECT * FROM ops.runs ORDER BY started_at"',
        f"Run {run} published 2 tables in #.",
        "Done. PASS=1 WARN=1 ERROR=0 SKIP=0 TOTAL=2",
    ]


def test_progress_is_plain_lines_on_stderr(starter: tuple[Path, Done]) -> None:
    told = [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in lines(starter[1].err)]
    assert told[:2] == ["starting Spark", "staging"]
    assert re.fullmatch(r"bronze.visits build 5 rows 4 quarantined .* s", told[2])
    assert re.fullmatch(r"gold.visits_a_day build 2 rows .* s", told[3])
    assert told[4:] == ["checking across tables", "publishing"]


def test_the_next_commands_it_names_work(starter: tuple[Path, Done]) -> None:
    root, done = starter
    import shlex

    for command in [line.strip() for line in done.out.splitlines() if line.startswith("  icefield ")]:
        assert icefield(*shlex.split(command)[1:]).code == 0, command
    query = "SELECT day, visits, long_visits FROM gold.visits_a_day ORDER BY 1"
    assert json.loads(icefield("sql", query, "--json", "-p", str(root)).out) == [
        {"day": "2026-01-01", "visits": 3, "long_visits": 1},
        {"day": "2026-01-02", "visits": 2, "long_visits": 1},
    ]


def test_nothing_new_is_one_line_and_imports_nothing_heavy(starter: tuple[Path, Done]) -> None:
    root, _ = starter
    done = icefield("run", "-p", str(root))
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(r"Nothing new: 2 tables up to date \((\d\.\d s|\d+ ms)\)\n", done.out)
    assert icefield("plan", "-p", str(root)).out == "Nothing new: 2 tables up to date\n"
    assert imported(["run", "-p", str(root)]) == []
    assert imported(["plan", "-p", str(root)]) == []
    assert imported(["ls", "-p", str(root)]) == []


def test_check_evaluates_what_is_published(starter: tuple[Path, Done]) -> None:
    root, _ = starter
    before = sorted(path for path in (root / "lake").rglob("*") if path.suffix in (".parquet", ".json"))
    done = icefield("check", "-p", str(root))
    assert (done.code, done.out) == (0, "5 checks, all passed\n")
    assert sorted(path for path in (root / "lake").rglob("*") if path.suffix in (".parquet", ".json")) == before
    results = json.loads(icefield("check", "--json", "-s", "bronze.visits", "-p", str(root)).out)
    assert {(result["check"], result["otherwise"], result["status"]) for result in results} == {
        ("visit_id is not null", "quarantine", "passed"),
        ("page is not null", "quarantine", "passed"),
        ("started_at is not null", "quarantine", "passed"),
        ("visit_id is unique", "quarantine", "passed"),
        ("seconds is not negative", "quarantine", "passed"),
    }


def test_the_starters_own_tests_pass(starter: tuple[Path, Done]) -> None:
    root, _ = starter
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=root, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_ctrl_c_ends_a_run_within_seconds_and_leaves_the_lake_as_it_was(tmp_path: Path) -> None:
    project = tiny(tmp_path / "tiny")
    project.land("1.csv", [order(1)])
    process = start("run", "-p", str(project.root))
    try:
        assert process.stderr is not None
        assert "starting Spark" in process.stderr.readline()
        begun = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to everyone
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 2
    assert time.monotonic() - begun < 6
    assert "published" in err
    assert "Traceback" not in err
    assert [table for table in project.lake.pointers() if not table.startswith("ops.")] == []
    assert icefield("run", "-p", str(project.root)).code == 0


def test_a_failed_check_is_1_and_its_rows_can_be_seen(tmp_path: Path) -> None:
    from projects import ORDERS

    project = tiny(tmp_path / "tiny")
    project.land("1.csv", [order(1), order(2)])
    code, first = run_json(project)
    assert (code, first["status"], first["ok"], first["runs"]) == (0, "published", True, [first["run"]])
    assert [(table["table"], table["rows_added"]) for table in first["tables"]][:1] == [("bronze.orders", 2)]
    assert set(first["phases"]) == {"plan", "start", "stage", "audit", "publish"}
    assert {table["table"]: table["promise"] for table in first["tables"]} == {
        "bronze.orders": "proven", "silver.sales": "proven", "gold.by_customer": "full",
    }  # fmt: skip

    project.declare(ORDERS + FAILING + WARNING)
    project.land("2.csv", [order(3)])
    done = icefield("run", "--label", "nightly", "-p", str(project.root))
    assert done.code == 1
    run = re.search(r"Run (\S+) failed", done.out)[1]
    assert "error ICE-601 gold.doubted was not published: check `there are many` failed" in done.err
    assert "Traceback" not in done.err
    assert re.search(r"Done\. PASS=\d WARN=\d ERROR=1 SKIP=\d TOTAL=\d", done.out)
    count = "SELECT count(*) AS n FROM gold.doubted"
    assert json.loads(icefield("sql", count, "--run", run, "--json", "-p", str(project.root)).out) == [{"n": 3}]
    assert icefield("sql", count, "-p", str(project.root)).code == 2, "nothing of it is published"
    assert "kept" in icefield("doctor", "-p", str(project.root)).out

    recorded = json.loads(icefield("runs", "--label", "nightly", "--json", "-p", str(project.root)).out)
    assert [(one["run"], one["status"]) for one in recorded] == [(run, "failed")]
    errors = {row["table"]: row["error"] for row in recorded[0]["tables"] if row["status"] == "failed"}
    assert list(errors) == ["gold.doubted"]
    assert errors["gold.doubted"] == recorded[0]["error"]

    going_on = icefield("run", "--keep-going", "-p", str(project.root))
    assert going_on.code == 1
    assert going_on.out.rstrip().endswith("Done. PASS=3 WARN=1 ERROR=1 SKIP=0 TOTAL=5")
    assert "gold.warned there are many warned" in " ".join(lines(going_on.out))

    # In a process that has looked at another lake before: the session must not answer for that one.
    checked = icefield("check", "-s", "gold.warned gold.doubted", "-p", str(project.root))
    assert checked.code == 0, "a warning is no failure, and a table that is not there is deferred"
    assert "2 checks: 0 passed, 2 did not" in checked.out


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from icefield.cli import main; main()", *arguments],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_replay_and_discard_tell_what_became_of_the_rows(tmp_path: Path) -> None:
    project = tiny(tmp_path, ORDERS.partition('@table("silver')[0])
    project.land("1.csv", [order(1), order(2, "bob", "-2.00"), order(3, "", "-3.00"), "x,ann,1.00,2026-08-01 10:00:00"])
    project.run()

    def quarantine(*arguments: str) -> Done:
        return icefield("quarantine", *arguments, "-p", str(project.root))

    def told(done: Done) -> list[str]:
        assert done.code == 0, done.err
        found = [re.sub(r" \([\d.]+ m?s\)$", "", line) for line in lines(done.out)]
        return [line for line in found if re.match(r"No quarantined|Nothing changed|Replayed|Discarded|\d+ line", line)]

    refused = quarantine("discard", "orders", "--reason", " ")
    assert refused.code != 0
    assert "--reason is empty" in refused.err
    unreadable = "malformed lines cannot be repaired with --set: correct the file, or discard them"
    assert told(quarantine("discard", "orders", "--reason", "gone", "--where", "id = 77")) == [
        "No quarantined row of bronze.orders matches: nothing to do"
    ]
    assert told(quarantine("replay", "orders", "--set", "id = 7", "--where", "line = 5")) == [
        f"Nothing changed for 1 quarantined row of bronze.orders: {unreadable}"
    ]
    outcome = (
        "Replayed 3 quarantined rows of bronze.orders: 1 passed, 2 still quarantined; why: customer is not null (1 row)"
    )
    dry = quarantine("replay", "orders", "--set", "amount = abs(amount)", "--dry-run")
    assert told(dry)[:2] == [outcome, f"1 line: {unreadable}"]
    assert lines(dry.out)[-1].startswith("Nothing was published: this was a dry run")
    assert project.ask("SELECT count(*)::INT FROM bronze.orders__quarantine") == [(3,)]
    assert told(quarantine("replay", "orders", "--set", "amount = abs(amount)")) == [outcome, f"1 line: {unreadable}"]
    data = json.loads(quarantine("discard", "orders", "--reason", "gone", "--where", "id = 3", "--json").out)
    assert data["replayed"] == [
        {"table": "bronze.orders", "kind": "discard", "matched": 1, "unreadable": 0, "waiting": 0, "reasons": {}}
    ]
    assert told(quarantine("discard", "orders", "--reason", "gone")) == ["Discarded 1 quarantined row of bronze.orders"]
    assert told(quarantine("discard", "orders", "--reason", "gone")) == [
        "No quarantined row of bronze.orders matches: nothing to do"
    ]


def test_a_rejected_duplicate_names_the_line_that_it_repeats(tmp_path: Path) -> None:
    project = tiny(tmp_path, ORDERS.partition('@table("silver')[0])
    project.land("1.csv", [order(1), "", order(2), order(3)])
    project.run()
    project.land("2.csv", [order(4), order(3), order(4, "eve")])
    project.run()
    done = icefield("quarantine", "show", "orders", "-p", str(project.root))
    assert lines(done.out)[1:] == [
        "landing/orders/2.csv:3 id is unique (repeats landing/orders/1.csv:5) 3,ann,1.00,2026-08-01 10:00:00",
        "landing/orders/2.csv:4 id is unique (repeats landing/orders/2.csv:2) 4,eve,1.00,2026-08-01 10:00:00",
    ]
    shown = json.loads(icefield("quarantine", "show", "orders", "--json", "-p", str(project.root)).out)
    assert [row["repeats"] for row in shown] == ["landing/orders/1.csv:5", "landing/orders/2.csv:2"]
    (project.root / "landing" / "orders" / "1.csv").unlink()
    assert "(repeats landing/orders/1.csv)" in icefield("quarantine", "show", "orders", "-p", str(project.root)).out
