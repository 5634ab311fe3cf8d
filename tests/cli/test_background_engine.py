"""`keep_warm`: commands use one engine in the background, and whatever becomes of it, they do what they always did."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import Done

from projects import ORDERS, SOURCES, TinyProject, order, tiny, until

pytestmark = pytest.mark.spark

#: The last table holds the run up as long as there is a file `hold`.
HOLDING = (
    ORDERS.replace("from pyspark", "import time\nfrom pathlib import Path\n\nfrom pyspark", 1)
    + """

HERE = Path(__file__).parent


@table("gold.held", refresh=full(), checks=[expect_table("few", "count(*) < 10", otherwise="fail")])
def held(sales: DataFrame) -> DataFrame:
    print("said by the project")
    while (HERE / "hold").exists():
        (HERE / "held").touch()
        time.sleep(0.05)
    return sales.select("id")
"""
)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "icefield", *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCES)}


def icefield(project: TinyProject, *arguments: str) -> Done:
    done = subprocess.run(
        command(*arguments), cwd=project.root, env=environment(), capture_output=True, text=True, timeout=300
    )
    return Done(code=done.returncode, out=done.stdout, err=done.stderr)


def started(project: TinyProject, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*arguments),
        cwd=project.root,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def engine(project: TinyProject) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(icefield(project, "engine", "status", "--json").out)
    return found


def keep(project: TinyProject, warm: str) -> None:
    """Sets `keep_warm`."""
    file = project.root / "icefield.toml"
    told = [line for line in file.read_text().splitlines() if not line.startswith("keep_warm")]
    told.insert(told.index('lake = "lake"'), f'keep_warm = "{warm}"')
    file.write_text("\n".join([*told, ""]))


@pytest.fixture
def project(tmp_path: Path) -> Iterator[TinyProject]:
    made = tiny(tmp_path / "project", HOLDING)
    keep(made, "5m")
    made.land("a.csv", [order(n) for n in range(5)])
    yield made
    icefield(made, "engine", "stop")


def published(done: Done) -> bool:
    assert done.code == 0, done.err
    return "published" in done.out


def test_commands_share_an_engine_until_it_is_stopped_and_say_what_they_would_say_without(project: TinyProject) -> None:
    first = icefield(project, "run")
    assert published(first)
    assert "said by the project" in first.out
    assert "starting Spark" in first.err
    pid = engine(project)["pid"]
    assert pid != os.getpid()

    tables = project.root / "tables.py"
    tables.write_text(tables.read_text().replace('sales.select("id")', 'sales.selectExpr("id + 100 AS id")'))
    project.land("b.csv", [order(5)])
    assert published(icefield(project, "run"))
    assert project.ask("SELECT min(id), max(id) FROM gold.held") == [(100, 105)]
    assert "all passed" in icefield(project, "check").out
    assert "4 exact" in icefield(project, "verify", "--deep").out
    assert icefield(project, "run").out.startswith("Nothing new: 4 tables up to date")

    project.land("c.csv", [order(n) for n in range(6, 16)])
    failed = icefield(project, "run")
    assert failed.code == 1
    assert "ICE-601 gold.held was not published" in failed.out + failed.err
    wrong = icefield(project, "run", "-s", "nope")
    assert (wrong.code, wrong.err.split()[:2]) == (2, ["error", "ICE-801"])
    told = engine(project)
    assert (told["pid"], told["busy"], told["commands"]) == (pid, False, 7)

    assert icefield(project, "engine", "stop").out == f"Stopped the engine of profile local (pid {pid})\n"
    assert icefield(project, "engine", "status").out == "No engine is running for profile local\n"
    assert icefield(project, "engine", "stop").code == 0


def test_an_engine_is_replaced_when_a_setting_changes_and_ends_when_it_is_idle(project: TinyProject) -> None:
    icefield(project, "run", "-s", "bronze.*")
    pid = engine(project)["pid"]
    toml = project.root / "icefield.toml"
    toml.write_text(toml.read_text() + '"spark.driver.maxResultSize" = "64m"\n')
    assert published(icefield(project, "run"))
    assert engine(project)["pid"] != pid
    keep(project, "1s")
    assert icefield(project, "run").code == 0
    until(lambda: not engine(project)["running"], what="the engine ends")


def test_whoever_is_killed_or_interrupted_leaves_a_whole_lake_and_the_next_command_works(project: TinyProject) -> None:
    assert published(icefield(project, "run"))
    os.kill(engine(project)["pid"], signal.SIGKILL)
    project.land("b.csv", [order(5)])
    hold, held = project.root / "hold", project.root / "held"

    hold.touch()
    interrupted = started(project, "run")
    until(held.exists, what="the run is held up")
    os.killpg(interrupted.pid, signal.SIGINT)
    _, told = interrupted.communicate(timeout=60)
    assert interrupted.returncode == 2
    assert "Interrupted" in told or "ICE-704" in told
    until(lambda: not engine(project)["running"], what="the engine ends")

    held.unlink()
    killed = started(project, "run")
    until(held.exists, what="the run is held up")
    assert engine(project)["busy"]
    assert icefield(project, "run", "-s", "gold.by_customer").out.startswith("Nothing new"), "it waits for nobody"
    killed.kill()
    killed.communicate()
    until(lambda: not engine(project)["running"], what="the engine ends")
    hold.unlink()

    assert project.ask("SELECT count(*) FROM gold.held") == [(5,)]
    assert published(icefield(project, "run"))
    assert project.ask("SELECT count(*) FROM gold.held") == [(6,)]
    assert project.lake.catalog.branches() == {}
