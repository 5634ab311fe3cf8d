"""What each command prints, its JSON, and its exit code; without Spark, over lakes that PyIceberg wrote."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from commands import icefield, icefield_as_nobody, imported, lines

import batched
from batched import taxi
from icefield.cli.app import COMMANDS, build_app
from icefield.lake.ops import Journal, at
from icefield.project.config import read_config
from lakes import change, finish, new_lake, open_branch, publish, told
from projects import ORDERS, TinyProject, order, tiny, without_rights

FIRST, SECOND = "20260101T000000-aaaaaa", "20260102T000000-bbbbbb"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> TinyProject:
    """A project of which nothing was built yet."""
    project = tiny(tmp_path_factory.mktemp("cli") / "tiny")
    project.land("1.csv", [order(1), order(2)])
    return project


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> TinyProject:
    """A project whose lake has two runs, a table that nobody declares, and a quarantine."""
    project = tiny(tmp_path_factory.mktemp("published") / "tiny")
    lake = new_lake(project.root / "lake")
    publish(lake, {"gold.old": [1, 2]}, FIRST)
    publish(lake, {"gold.old": [3]}, SECOND)
    _fill_quarantine(project)
    return project


@pytest.fixture(scope="module")
def trips(tmp_path_factory: pytest.TempPathFactory) -> TinyProject:
    """A project that takes in files by months."""
    return taxi(tmp_path_factory.mktemp("trips") / "taxi")


def _fill_quarantine(project: TinyProject) -> None:
    import pyarrow as pa

    branch = open_branch(project.lake, "20260103T000000-cccccc")
    project.lake.catalog.add_namespace(branch.name, "bronze")
    bad = pa.table(
        {
            "id": pa.array([7, None], pa.int64()),
            "raw": pa.array([b"7,,1.00", b"x,ann"], pa.binary()),
            "reasons": [["customer is not null"], ["malformed: 2 columns instead of 4"]],
            "run": [branch.run] * 2,
            "line": pa.array([3, 2], pa.int64()),
            "arrival": pa.array([1, 0], pa.int64()),
            "quarantined_at": [at(0)] * 2,
        }
    )
    name = "bronze.orders__quarantine"
    folder, properties = str(project.lake.table_folder(name)), branch.own_properties(name)
    branch.pyiceberg().create_table(name, bad.schema, location=folder, properties=properties).append(bad)
    files = [
        {
            "table": "bronze.orders",
            "path": f"landing/orders/{n}.csv",
            "run": branch.run,
            "arrival": n,
            "taken_at": at(0),
        }
        for n in range(2)
    ]
    branch.publish({name: {}}, Journal(runs=told(branch.run).runs, files=files))


# -- help


def test_help_lists_every_command() -> None:
    done = icefield("--help")
    assert done.code == 0
    for name in COMMANDS:
        assert f" {name} " in done.out


@pytest.mark.parametrize("name", list(COMMANDS))
def test_the_list_of_commands_says_what_each_says_of_itself(name: str) -> None:
    app = build_app([name])
    found = [group.typer_instance.info.help for group in app.registered_groups]
    found += [(command.callback.__doc__ or "").split("\n")[0] for command in app.registered_commands]
    assert found == [COMMANDS[name]]


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help(name: str) -> None:
    assert icefield(name, "--help").code == 0


def test_the_version_is_that_of_the_package() -> None:
    import icefield as package

    assert icefield("--version").out == f"icefield {package.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["sql"],
        ["ls", "--nope"],
        ["quarantine", "show", "x", "--limit", "0"],
        ["table", "compare", "x"],
        ["table", "tree", "x", "--snapshots", "0"],
    ],
)
def test_wrong_usage_is_2(arguments: list[str]) -> None:
    done = icefield(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err


@pytest.mark.parametrize(
    "command",
    [
        "ls",
        "plan",
        "run",
        "check",
        "sql SELECT",
        "table history x",
        "table compare x y",
        "table tree x",
        "quarantine ls",
        "runs",
    ],
)
def test_outside_of_a_project_every_command_says_so(tmp_path: Path, command: str) -> None:
    done = icefield(*command.split(), "-p", str(tmp_path))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error ICE-201 there is no icefield.toml")
    assert "icefield init DIR" in done.err


def test_a_traceback_is_shown_only_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Traceback" not in icefield("ls", "-p", str(tmp_path)).err
    monkeypatch.setenv("ICEFIELD_DEBUG", "1")
    assert "Traceback" in icefield("ls", "-p", str(tmp_path)).err


# -- ls


def test_ls_shows_what_is_declared(project: TinyProject) -> None:
    done = icefield("ls", "-p", str(project.root))
    assert done.code == 0
    assert lines(done.out) == [
        "table refresh inputs checks rows state",
        "bronze.orders append landing/orders/*.csv 3 not built yet",
        "silver.sales append bronze.orders not built yet",
        "gold.by_customer full silver.sales 1 not built yet",
    ]


def test_ls_takes_selectors(project: TinyProject) -> None:
    done = icefield("ls", "+gold.by_customer", "--exclude", "bronze.*", "--json", "-p", str(project.root))
    assert [row["table"] for row in json.loads(done.out)] == ["silver.sales", "gold.by_customer"]
    wrong = icefield("ls", "gold.by_custmer", "-p", str(project.root))
    assert wrong.code == 2
    assert "did you mean `gold.by_customer`" in wrong.err


def test_ls_as_json_has_everything(published: TinyProject) -> None:
    rows = {row["table"]: row for row in json.loads(icefield("ls", "--json", "-p", str(published.root)).out)}
    assert list(rows) == ["bronze.orders", "silver.sales", "gold.by_customer", "gold.old"]
    assert rows["bronze.orders"] == {
        "table": "bronze.orders",
        "declared": True,
        "refresh": "append",
        "promise": None,
        "source": "landing/orders/*.csv",
        "inputs": [],
        "checks": ["customer is not null", "amount is positive", "id is unique"],
        "tags": [],
        "owners": [],
        "comment": "",
        "location": "tables.py:6",
        "code_changed": False,
        "inputs_newer": False,
        "run": None,
        "rows": None,
        "published_at": None,
    }
    assert (rows["gold.old"]["declared"], rows["gold.old"]["run"], rows["gold.old"]["rows"]) == (False, SECOND, 3)


def test_a_manifest_tells_what_is_declared_and_by_which_files(trips: TinyProject) -> None:
    told = json.loads(icefield("ls", "--manifest", "-p", str(trips.root)).out)
    assert (told["project"], told["profile"]) == ("tiny", "local")
    assert told["made_from"]["files"] == {
        name: hashlib.sha256((trips.root / name).read_bytes()).hexdigest()[:32]
        for name in ("icefield.toml", "tables.py")
    }
    assert told["made_from"]["listings"] == {"tables.py": ["tables.py"], "*.py": ["tables.py"], "*/__init__.py": []}
    assert told["tables"] == [
        {
            "table": "raw.trips",
            "refresh": "by_key",
            "source": "landing/trips/{month}.csv",
            "batch": "month",
            "inputs": [],
            "checks": [],
            "tags": [],
            "comment": "",
            "location": "tables.py:6",
        },
        {
            "table": "marts.months",
            "refresh": "by_key",
            "source": None,
            "batch": None,
            "inputs": ["raw.trips"],
            "checks": [],
            "tags": [],
            "comment": "",
            "location": "tables.py:15",
        },
    ]
    chosen = json.loads(icefield("ls", "--manifest", "marts", "-p", str(trips.root)).out)
    assert [one["table"] for one in chosen["tables"]] == ["marts.months"]


def test_ls_lists_what_is_no_longer_declared(published: TinyProject) -> None:
    assert "undeclared, published" in icefield("ls", "-p", str(published.root)).out


@pytest.mark.parametrize(("select", "tables"), [([], 3), (["silver.sales+"], 2)])
def test_ls_draws_the_graph(project: TinyProject, tmp_path: Path, select: list[str], tables: int) -> None:
    file = tmp_path / "graph.svg"
    done = icefield("ls", *select, "--svg", str(file), "-p", str(project.root))
    assert (done.code, done.out) == (0, "")
    assert ElementTree.parse(file).getroot().get("aria-label") == f"{tables} tables"
    assert icefield("ls", *select, "--svg", "-", "-p", str(project.root)).out == file.read_text()


def test_ls_lists_batches_and_gaps(trips: TinyProject) -> None:
    done = icefield("ls", "--batches", "-p", str(trips.root))
    assert (done.code, done.err) == (0, "")
    assert lines(done.out) == [
        "table batch state files",
        "raw.trips 2026-01 changed 1",
        "raw.trips 2026-02 taken 1",
        "raw.trips 2026-04 new 1",
        "raw.trips: 3 batches, 2026-01 to 2026-04, no files for 2026-03",
    ]
    assert json.loads(icefield("ls", "--batches", "--json", "-p", str(trips.root)).out) == [
        {
            "table": "raw.trips",
            "batches": [
                {"batch": "2026-01", "state": "changed", "files": 1},
                {"batch": "2026-02", "state": "taken", "files": 1},
                {"batch": "2026-04", "state": "new", "files": 1},
            ],
            "gaps": ["2026-03"],
        }
    ]


def test_ls_of_batches_where_there_are_none_is_a_sentence(project: TinyProject, trips: TinyProject) -> None:
    done = icefield("ls", "--batches", "-p", str(project.root))
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("No table is taken in by batches: ")
    assert icefield("ls", "--batches", "--json", "-p", str(project.root)).out == "[]\n"
    assert icefield("ls", "marts", "--batches", "--json", "-p", str(trips.root)).out == "[]\n", "none that is selected"


def test_ls_draws_tables_or_lists_batches(trips: TinyProject) -> None:
    done = icefield("ls", "--batches", "--svg", "-", "-p", str(trips.root))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error ICE-809 --svg and --batches cannot be combined")


# -- runs


def test_runs_are_listed_and_shown(published: TinyProject) -> None:
    done = icefield("runs", "--last", "2", "-p", str(published.root))
    assert [line.split()[:2] for line in lines(done.out)[1:]] == [
        [SECOND, "published"],
        ["20260103T000000-cccccc", "published"],
    ]
    one = icefield("runs", SECOND[:12], "-p", str(published.root))
    assert (one.code, lines(one.out)[:2]) == (0, [f"run {SECOND}", "status published"])
    assert [row["run"] for row in json.loads(icefield("runs", FIRST, "--json", "-p", str(published.root)).out)] == [
        FIRST
    ]


def test_runs_that_are_not_there_are_said_so(published: TinyProject, project: TinyProject) -> None:
    unknown = icefield("runs", "2027", "-p", str(published.root))
    assert (unknown.code, unknown.err.splitlines()[0]) == (2, "error ICE-305 no recorded run starts with `2027`")
    several = icefield("runs", "2026", "-p", str(published.root))
    assert (several.code, several.err.splitlines()[0]) == (2, "error ICE-305 several recorded runs start with `2026`")
    assert icefield("runs", "--label", "x", "-p", str(published.root)).err == "No run is recorded with the label x\n"
    assert icefield("runs", "--json", "-p", str(project.root)).out == "[]\n", "of a lake that is not there yet"


# -- plan


def test_plan_says_what_and_why(project: TinyProject) -> None:
    done = icefield("plan", "-p", str(project.root))
    assert done.code == 0
    assert lines(done.out) == [
        "table refresh action why reads",
        "bronze.orders append build first run 1 file, 84 B",
        "silver.sales append build first run decided when run",
        "gold.by_customer full build first run decided when run",
        "3 tables of 3 to refresh",
    ]


def test_plan_as_json(project: TinyProject) -> None:
    done = icefield("plan", "--json", "-s", "bronze.orders", "-p", str(project.root))
    assert json.loads(done.out) == {
        "work": 1,
        "steps": [
            {
                "table": "bronze.orders",
                "action": "build",
                "reason": "first run",
                "decided": True,
                "files": {"new": ["landing/orders/1.csv"], "gone": [], "bytes": 84},
                "offsets": None,
                "relation": None,
                "inputs": {},
                "changed": {},
                "promise": None,
            }
        ],
        "undeclared": [],
        "problems": [],
    }


def test_plan_of_tables_whose_inputs_are_not_there(project: TinyProject) -> None:
    done = icefield("plan", "-s", "gold.by_customer", "-p", str(project.root))
    assert done.code == 0
    assert "gold.by_customer is waiting for silver.sales" in done.out


def test_a_missing_landing_folder_is_one_paragraph(tmp_path: Path) -> None:
    root = str(tiny(tmp_path / "tiny").root)
    done = icefield("plan", "-p", root)
    assert done.code == 2
    assert lines(done.out)[1:3] == [
        "bronze.orders append refused ICE-401, see below",
        "silver.sales append none waiting for bronze.orders",
    ]
    assert done.err.startswith("error ICE-401")
    ran = icefield("run", "-p", root)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == done.err


def test_plan_foresees_all_that_a_run_would_refuse(tmp_path: Path) -> None:
    more = """

@table("bronze.more", source=files("landing/more/*.csv", schema="id BIGINT, name STRING"), refresh=append())
def more(rows: DataFrame) -> DataFrame:
    return rows
"""
    project = tiny(tmp_path, ORDERS + more)
    project.land("1.csv", "id,costumer,amount,at\n1,ann,1.00,2026-08-01 10:00:00\n")
    project.land("1.csv", "id,name\n1,ann\n", "more")
    project.land("2.csv", "id,nom\n1,ann\n", "more")
    done = icefield("plan", "-p", str(project.root))
    assert done.code == 2
    assert (
        "the header of landing/orders/1.csv does not match the declared columns: it has unknown columns: costumer"
        in done.err
    )
    assert "the header of landing/more/2.csv does not match the declared columns" in done.err
    assert done.err.count("ICE-40") == 2


CONTRACT = """
from icefield import append, table


@table("gold.old", refresh=append(), inputs={"rows": "gold.given"}, columns="{columns}"{more})
def old(rows):
    return rows


@table("gold.given", source=files("landing/x/*.csv", schema="value BIGINT"))
def given(rows):
    return rows
"""


def test_plan_foresees_columns_that_stored_rows_cannot_follow(tmp_path: Path) -> None:
    head = "from icefield import append, files, table\n"
    project = tiny(tmp_path, head + CONTRACT.replace("{columns}", "value STRING").replace("{more}", ""))
    project.land("1.csv", "value\n1\n", "x")
    publish(new_lake(project.root / "lake"), {"gold.old": [1, 2], "gold.given": [1]}, FIRST)

    def planned(columns: str, more: str = "") -> tuple[int, str]:
        project.declare(head + CONTRACT.replace("{columns}", columns).replace("{more}", more))
        done = icefield("plan", "-p", str(project.root), "-s", "gold.old")
        return done.code, done.err

    code, told = planned("value STRING")
    assert code == 2
    assert (
        "ICE-306 the columns of gold.old are incompatible with the stored rows: value was long and is now string"
        in told
    )
    assert "icefield run --select gold.old+ --full-refresh" in told
    code, told = planned("amount BIGINT")
    assert code == 2
    assert "value long was removed" in told
    assert 'renamed={"amount": "value"}' in told
    assert planned("amount BIGINT", ', renamed={"amount": "value"}')[0] == 0
    assert planned("value BIGINT, more STRING")[0] == 0, "a column may be added"


@pytest.mark.parametrize(
    "arguments",
    [
        ("-p", "{root}", "ls"),
        ("--project={root}", "ls"),
        ("-p", "{root}", "--profile", "local", "table", "show", "gold.old"),
    ],
)
def test_the_project_may_be_named_before_the_command(published: TinyProject, arguments: tuple[str, ...]) -> None:
    done = icefield(*(word.replace("{root}", str(published.root)) for word in arguments))
    assert done.code == 0, done.err
    assert "gold.old" in done.out


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_selection_that_leaves_nothing_says_so(project: TinyProject, command: str) -> None:
    done = icefield(command, "-s", "orders", "--exclude", "orders", "-p", str(project.root))
    assert (done.code, done.out.partition(":")[0]) == (0, "Nothing selected")
    assert icefield("ls", "orders", "--exclude", "orders", "-p", str(project.root)).err == "Nothing selected\n"


@pytest.mark.parametrize("command", ["plan", "run", "check"])
def test_a_project_without_tables_says_so(tmp_path: Path, command: str) -> None:
    project = tiny(tmp_path / "tiny", "")
    done = icefield(command, "-p", str(project.root))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error ICE-206 the project declares no tables")
    listed = icefield("ls", "-p", str(project.root))
    assert (listed.code, listed.err) == (0, "The project declares no tables yet\n")


def test_an_unknown_profile_where_none_is_declared(tmp_path: Path) -> None:
    (tmp_path / "icefield.toml").write_text("")
    assert "profiles: local" in icefield("ls", "--profile", "nope", "-p", str(tmp_path)).err


@pytest.mark.parametrize("command", ["ls", "plan", "run", "check"])
def test_help_tells_of_every_selector(command: str) -> None:
    assert "name+" in icefield(command, "--help").out


# -- sql


def test_sql_prints_rows(published: TinyProject) -> None:
    done = icefield("sql", "SELECT value, value * 1.5 AS more FROM gold.old ORDER BY 1", "-p", str(published.root))
    assert (done.code, done.out) == (0, "value  more\n    1   1.5\n    2   3.0\n    3   4.5\n")
    assert done.err == "3 rows\n"


def test_sql_reads_from_stdin_and_prints_json(published: TinyProject) -> None:
    done = icefield("sql", "-", "--json", "-p", str(published.root), stdin="SELECT max(value) AS most FROM gold.old")
    assert json.loads(done.out) == [{"most": 3}]


def test_json_looks_the_same_whichever_command_prints_it(published: TinyProject) -> None:
    for command in (["sql", "SELECT value FROM gold.old"], ["ls"], ["table", "history", "gold.old"], ["doctor"]):
        first, *rows, last = icefield(*command, "--json", "-p", str(published.root)).out.splitlines()
        assert (first, last) == ("[", "]"), command
        assert all(row.startswith("{") for row in rows), command


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv", "rows.json"])
def test_sql_writes_files(published: TinyProject, tmp_path: Path, name: str) -> None:
    done = icefield("sql", "FROM gold.old", "--out", str(tmp_path / name), "-p", str(published.root))
    assert (done.code, done.out) == (0, "")
    assert "3 rows written" in done.err
    assert (tmp_path / name).stat().st_size


def test_sql_as_of_a_run(published: TinyProject) -> None:
    query = "SELECT count(*) AS n FROM gold.old"
    done = icefield("sql", query, "--as-of", FIRST, "--json", "-p", str(published.root))
    assert json.loads(done.out) == [{"n": 2}]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["SELECT * FROM gold.odl"], "ICE-804", "did you mean `gold.old`"),
        (["SELCT"], "ICE-802", "uses DuckDB's SQL dialect"),
        (["DROP TABLE gold.old"], "ICE-803", "only read"),
        (["SELECT 1", "--as-of", "nope"], "ICE-305", "neither a run"),
        (["SELECT 1", "--run", "nope"], "ICE-305", "runs with staged tables: none"),
        (["SELECT 1", "--json", "--out", "x.csv"], "ICE-809", "--json and --out cannot be combined"),
        (["SELECT 1", "--run", "a", "--as-of", "b"], "ICE-809", "use only one of them"),
        (["SELECT 1", "--out", "x.xlsx"], "ICE-806", ".parquet"),
    ],
)
def test_sql_explains_what_cannot_be(published: TinyProject, arguments: list[str], code: str, told: str) -> None:
    done = icefield("sql", *arguments, "-p", str(published.root))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error {code} ")
    assert told in done.err


def test_sql_without_a_lake(project: TinyProject) -> None:
    done = icefield("sql", "SELECT 1", "-p", str(project.root))
    assert done.code == 2
    assert "icefield run" in done.err


# -- table


def test_table_history(published: TinyProject) -> None:
    done = icefield("table", "history", "old", "-p", str(published.root))
    head, first, second = lines(done.out)
    assert head == "published (UTC) run operation added removed total growth"
    assert first.endswith(f"{FIRST} append 2 0 2 +2")
    assert second.endswith(f"{SECOND} append 1 0 3 +1 (+50.0 %)")
    versions = json.loads(icefield("table", "history", "gold.old", "--json", "-p", str(published.root)).out)
    assert [(v["run"], v["rows_total"], v["growth"]) for v in versions] == [(FIRST, 2, 2), (SECOND, 3, 1)]


def test_table_history_names_batches_where_there_are_some(trips: TinyProject) -> None:
    done = icefield("table", "history", "trips", "-p", str(trips.root))
    head, first, second, third = lines(done.out)
    assert head == "published (UTC) run batch operation added removed total growth"
    assert first.endswith(f"{batched.FIRST} 2026-01 append 2 0 2 +2")
    assert second.endswith(f"{batched.SECOND} 2026-02 append 1 0 3 +1 (+50.0 %)")
    assert third.endswith(f"{batched.THIRD} 2026-02 overwrite 2 1 4 +1 (+33.3 %)")
    versions = json.loads(icefield("table", "history", "trips", "--json", "-p", str(trips.root)).out)
    assert [version["batch"] for version in versions] == ["2026-01", "2026-02", "2026-02"]


def test_table_compare(trips: TinyProject) -> None:
    done = icefield("table", "compare", "trips", "2026-01", "-p", str(trips.root))
    assert (done.code, done.err) == (0, "")
    told = lines(done.out)
    assert told[:4] == [
        "raw.trips",
        "before after",
        f"run {batched.FIRST} {batched.THIRD}",
        "batch 2026-01 2026-02",
    ]
    assert told[6:] == [
        "rows 2 4",
        "Rows",
        "added removed same",
        "2 0 2",
        "Totals",
        "column before after change",
        "id 3 10 +7",
        "fare 30.50 43.75 +13.25",
        "tip 1.50 4.00 +2.50",
        "Batches and periods",
        "column before after added removed",
        "month 2026-01 2026-01, 2026-02 2026-02",
    ]


def test_table_compare_as_json(trips: TinyProject) -> None:
    here = ["--json", "-p", str(trips.root)]
    found = json.loads(icefield("table", "compare", "raw.trips", batched.SECOND[:8], "latest", *here).out)
    assert (found["before"]["run"], found["after"]["batch"]) == (batched.SECOND, "2026-02")
    assert (found["before"]["rows"], found["after"]["rows"]) == (3, 4)
    assert found["rows"] == {"added": 2, "removed": 1, "same": 2}
    assert found["columns"] == {"added": [], "removed": []}
    assert found["totals"][1] == {"column": "fare", "before": 35.5, "after": 43.75, "change": 8.25}
    both = ["2026-01", "2026-02"]
    assert found["values"] == [{"column": "month", "before": both, "after": both, "added": [], "removed": []}]


def test_table_compare_of_an_unknown_version_names_the_nearest(trips: TinyProject) -> None:
    done = icefield("table", "compare", "trips", "2026-07", "-p", str(trips.root))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error ICE-309 raw.trips has no version `2026-07`")
    assert f"did you mean {batched.THIRD} (batch 2026-02)" in done.err


def test_table_compare_needs_no_project_code(published: TinyProject) -> None:
    found = json.loads(icefield("table", "compare", "old", FIRST, "--json", "-p", str(published.root)).out)
    assert found["rows"] == {"added": 1, "removed": 0, "same": 2}


def test_table_tree_goes_from_the_catalog_down_to_the_files(trips: TinyProject) -> None:
    done = icefield("table", "tree", "trips", "--snapshots", "1", "-p", str(trips.root))
    assert (done.code, done.err) == (0, "")
    told = lines(done.out)
    metadata = f"raw/trips/metadata/00002-{batched.THIRD}.metadata.json"
    assert told[:4] == ["catalog entry", "in catalog.db", "database raw", "name trips"]
    assert told[4:7:2] == [f"metadata {metadata}", f"metadata file {metadata}"]
    assert "schema 0: id long, fare decimal(10, 2), tip double, month string" in told
    assert told[-1] == "2 older snapshots: --snapshots N shows more"
    kinds = [line.split(" raw/")[0] for line in told if " raw/trips/" in line and "metadata raw" not in line]
    assert kinds == ["previous", "metadata file", "manifest list", *["manifest", "data file"] * 2]
    assert "bounds id 1 to 2, fare 10.00 to 20.50, tip 0.5 to 1.0, month 2026-01" in told
    assert str(trips.root) not in done.out, "paths are those within the warehouse"


def test_table_tree_names_a_manifest_that_snapshots_share_once(trips: TinyProject) -> None:
    told = lines(icefield("table", "tree", "trips", "-p", str(trips.root)).out)
    assert sum(line.startswith("manifest list") for line in told) == 3
    assert sum(line.startswith("manifest raw") and line.endswith("the same as above") for line in told) == 2
    assert sum(line.startswith("data file raw") for line in told) == 3


def test_table_tree_spells_signs_that_would_not_be_seen(tmp_path: Path) -> None:
    import pyarrow as pa

    project = tiny(tmp_path / "tiny")
    branch = open_branch(new_lake(project.root / "lake"), FIRST)
    change(branch, "gold.words", pa.table({"word": ["a\nb\x1b[31m"]}))
    finish(branch, ["gold.words"])
    assert r"bounds word a\nb\x1b[31m" in lines(icefield("table", "tree", "words", "-p", str(project.root)).out)


def test_table_tree_as_json_has_everything(trips: TinyProject) -> None:
    done = icefield("table", "tree", "raw.trips", "--snapshots", "2", "--files", "0", "--json", "-p", str(trips.root))
    found = json.loads(done.out)
    assert list(found) == ["entry", "metadata", "snapshots", "older"]
    assert found["metadata"]["columns"][1] == {"id": 2, "name": "fare", "type": "decimal(10, 2)"}
    assert ([one["batch"] for one in found["snapshots"]], found["older"]) == (["2026-02", "2026-02"], 1)
    [first, _] = found["snapshots"][0]["manifest_list"]["manifests"]
    assert (first["added"], first["files"], first["more"]) == ({"files": 1, "rows": 2}, [], 1)


def test_table_show(published: TinyProject) -> None:
    facts = json.loads(icefield("table", "show", "gold.old", "--json", "-p", str(published.root)).out)
    assert facts["columns"] == [{"name": "value", "type": "long", "comment": ""}]
    assert (facts["rows"], facts["run"], facts["declared"]) == (3, SECOND, None)
    text = lines(icefield("table", "show", "gold.old", "-p", str(published.root)).out)
    assert text[0] == "table gold.old"
    assert "rows 3" in text
    assert text[-1] == "value long"


def test_an_unknown_table_is_2_with_a_suggestion(published: TinyProject) -> None:
    done = icefield("table", "show", "gold.odl", "-p", str(published.root))
    assert done.code == 2
    assert "did you mean `gold.old`" in done.err


# -- quarantine


def test_quarantine_ls(published: TinyProject) -> None:
    done = icefield("quarantine", "ls", "-p", str(published.root))
    assert lines(done.out) == [
        "table reason rows",
        "bronze.orders customer is not null 1",
        "bronze.orders malformed 1",
        "2 rows in quarantine",
    ]
    assert json.loads(icefield("quarantine", "ls", "--json", "-p", str(published.root)).out) == [
        {"table": "bronze.orders", "rows": 2, "reasons": {"customer is not null": 1, "malformed": 1}}
    ]


def test_quarantine_show(published: TinyProject) -> None:
    done = icefield("quarantine", "show", "orders", "-p", str(published.root))
    assert lines(done.out) == [
        "from reasons text",
        "landing/orders/0.csv:2 malformed: 2 columns instead of 4 x,ann",
        "landing/orders/1.csv:3 customer is not null 7,,1.00",
    ]
    for chosen in (["--reason", "not NULL"], ["--where", "id = 7"]):
        some = icefield("quarantine", "show", "orders", *chosen, "-p", str(published.root))
        assert lines(some.out)[1:] == ["landing/orders/1.csv:3 customer is not null 7,,1.00"]
        assert some.err == "1 of 1 row\n"
    told: list[dict[str, Any]] = json.loads(
        icefield("quarantine", "show", "bronze.orders", "--limit", "1", "--json", "-p", str(published.root)).out
    )
    assert [(row["file"], row["line"], row["raw"]) for row in told] == [("landing/orders/0.csv", 2, "x,ann")]
    assert icefield("quarantine", "show", "gold.old", "-p", str(published.root)).code == 2


# -- doctor


def test_doctor_looks_at_everything(published: TinyProject) -> None:
    found = json.loads(icefield("doctor", "--json", "-p", str(published.root)).out)
    seen = [finding["what"] for finding in found]
    assert seen == [
        *("python", "packages", "java", "jar", "jar", "time zone"),
        *("project", "disk", "file system", "permission", "catalog", "lake"),
    ]
    assert next(f for f in found if f["what"] == "catalog")["told"].endswith("journal mode wal")


def test_doctor_tells_of_open_runs_and_clears_them(tmp_path: Path) -> None:
    project = tiny(tmp_path / "tiny")
    lake = new_lake(project.root / "lake")
    branch = open_branch(lake, FIRST)
    assert f"{FIRST} is in progress" in icefield("doctor", "-p", str(project.root)).out
    os.close(branch._lock)  # as if its process had gone
    done = icefield("doctor", "-p", str(project.root))
    assert f"{FIRST} died" in done.out
    cleared = icefield("doctor", "--clear", FIRST[:10], "-p", str(project.root))
    assert (cleared.code, lake.catalog.branches()) == (0, {})
    assert icefield("doctor", "--clear", FIRST, "-p", str(project.root)).code == 2


def test_doctor_names_a_moved_lake_and_a_broken_project(tmp_path: Path) -> None:
    project = tiny(tmp_path / "here")
    new_lake(project.root / "lake")
    project.root.rename(tmp_path / "there")
    (tmp_path / "there" / "tables.py").write_text("this is no Python")
    done = icefield("doctor", "-p", str(tmp_path / "there"))
    assert done.code == 1
    assert "icefield lake relocate" in done.out
    assert "ICE-204" in done.out


def test_doctor_works_outside_of_a_project(tmp_path: Path) -> None:
    assert "none here" in icefield("doctor", "-p", str(tmp_path)).out


# -- a lake in which files are gone


@pytest.mark.parametrize("kind", ["metadata", "manifest", "data"])
def test_files_that_are_gone_are_named(tmp_path: Path, kind: str) -> None:
    project = tiny(tmp_path / "tiny")
    project.land("1.csv", [order(1)])
    lake = new_lake(project.root / "lake")
    publish(lake, {"gold.old": [1, 2]}, FIRST)
    here = ["-p", str(project.root)]
    assert "none missing" in icefield("doctor", *here).out
    gone = Path(lake.pointers()["gold.old"])
    if kind != "metadata":
        [gone] = (lake.warehouse / "gold").rglob("*.parquet" if kind == "data" else "*-m0.avro")
    gone.unlink()
    done = icefield("doctor", "--json", *here)
    lost = [finding for finding in json.loads(done.out) if finding["what"] in ("lake", "file")]
    assert (done.code, [finding["status"] for finding in lost]) == (1, ["failure", "failure"])
    assert str(gone) in lost[1]["told"]
    for command in ["sql", "FROM gold.old"], *([[c] for c in ("ls", "plan", "run")] if kind == "metadata" else []):
        done = icefield(*command, *here)
        assert (done.code, done.err.split()[:2]) == (2, ["error", "ICE-307"]), done.err
        assert str(gone) in done.err


# -- a lake that may only be read


def test_what_cannot_be_written_can_be_read() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        project = tiny(Path(folder) / "tiny")
        project.land("1.csv", [order(1)])
        publish(new_lake(project.root / "lake"), {"gold.old": [1, 2]}, FIRST)
        here = ["-p", str(project.root)]
        with without_rights(project.root):
            ls, plan, sql, waiting, doctor, run = icefield_as_nobody(
                ["ls", *here],
                ["plan", *here],
                ["sql", "SELECT sum(value) AS s FROM gold.old", "--json", *here],
                ["quarantine", "ls", *here],
                ["doctor", "--json", *here],
                ["run", *here],
            )
    assert (ls.code, plan.code, sql.code, waiting.code) == (0, 0, 0, 0), (ls, plan, sql, waiting)
    assert json.loads(sql.out) == [{"s": 3}]
    assert doctor.out, doctor.err
    found = {finding["what"]: finding for finding in json.loads(doctor.out)}
    assert (doctor.code, found["permission"]["status"], found["catalog"]["status"]) == (1, "failure", "ok")
    assert "the lake can be read, but runs will fail" in found["permission"]["told"]
    assert (run.code, run.err.split()[:2]) == (2, ["error", "ICE-302"])


# -- init


def test_init_copies_a_reference_project(tmp_path: Path) -> None:
    done = icefield("init", "--from", "ecommerce", str(tmp_path / "shop"))
    assert done.code == 0
    assert {"icefield.toml", "bronze.py", "generate.py", ".gitignore"} <= {
        path.name for path in (tmp_path / "shop").iterdir()
    }
    assert not (tmp_path / "shop" / "landing").exists()
    assert icefield("ls", "gold", "--json", "-p", str(tmp_path / "shop")).code == 0


def test_init_names_the_project_after_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = icefield("init", str(tmp_path / 'my "shop"'))
    assert done.out.splitlines()[:2] == [
        f'Created a project in {tmp_path}/my "shop". Next:',
        f"  cd '{tmp_path}/my \"shop\"'",
    ]
    assert read_config(tmp_path / 'my "shop"').name == 'my "shop"'
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert icefield("init", ".").out.splitlines()[:2] == ["Created a project here. Next:", "  icefield run"]
    assert read_config(tmp_path / "empty").name == "empty"


def test_init_says_what_a_test_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert icefield("init", str(tmp_path / "a")).out.splitlines()[-2:] == [
        '  icefield sql "SELECT * FROM gold.visits_a_day"',
        "  pytest",
    ]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert icefield("init", str(tmp_path / "b")).out.splitlines()[-2:] == ["  pip install 'icefield[test]'", "  pytest"]


def test_init_names_a_python_that_has_what_the_generator_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = icefield("init", "--from", "ecommerce", str(tmp_path / "shop"))
    assert f"  {sys.executable} generate.py --out landing" in done.out


def test_init_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    done = icefield("init", str(tmp_path))
    assert done.code == 2
    assert done.err.startswith("error ICE-807")
    wrong = icefield("init", "--from", "ecomerce", str(tmp_path / "new"))
    assert wrong.code == 2
    assert "did you mean `ecommerce`" in wrong.err


# -- starting fast


@pytest.mark.parametrize("arguments", [["--help"], ["ls"], ["ls", "--json"], ["ls", "--manifest"], ["plan"]])
def test_nothing_heavy_is_imported(project: TinyProject, arguments: list[str]) -> None:
    icefield("ls", "-p", str(project.root))  # so that the graph is cached
    where = [] if arguments == ["--help"] else ["-p", str(project.root)]
    assert imported([*arguments, *where]) == []


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["table", "history", "trips"], []),
        (["table", "tree", "trips"], []),
        (["table", "compare", "trips", "2026-01"], ["duckdb"]),
        (["runs", "--label", "x", "--last", "3"], ["duckdb"]),
    ],
)
def test_looking_at_a_table_imports_what_reads_it_and_nothing_else(
    trips: TinyProject, arguments: list[str], heavy: list[str]
) -> None:
    icefield("ls", "-p", str(trips.root))
    assert imported([*arguments, "-p", str(trips.root)]) == heavy


def test_listing_batches_imports_no_spark(trips: TinyProject) -> None:
    icefield("ls", "-p", str(trips.root))
    assert "pyspark" not in imported(["ls", "--batches", "-p", str(trips.root)])


@pytest.mark.parametrize(
    "arguments",
    [
        ["init", "{}/no/project"],
        ["init", "--from", "ecommerce", "{}/no/project"],
        ["ls", "--svg", "{}/no/graph.svg"],
        ["sql", "SELECT 1 AS one", "--out", "{}/no/one.parquet"],
        ["sql", "SELECT 1 AS one", "--out", "{}/no/one.csv"],
        ["sql", "SELECT 1 AS one", "--out", "{}/no/one.json"],
    ],
)
def test_a_place_that_cannot_be_written_to_is_named(
    published: TinyProject, tmp_path: Path, arguments: list[str]
) -> None:
    (tmp_path / "no").touch()  # a file where a folder would have to be: not even root can write there
    at = [] if arguments[0] == "init" else ["-p", str(published.root)]
    done = icefield(*(word.format(tmp_path) for word in arguments), *at)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error ICE-810 {tmp_path}/no/")
    assert "next:  choose a folder that exists" in done.err
