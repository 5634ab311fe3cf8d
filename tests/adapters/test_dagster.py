"""The Dagster adapter in Dagster's own environment: definitions, runs in process, and a real `dagster dev`."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from dagsters import dagster_dev

from icefield.lake.embedded import EmbeddedLake
from projects import ORDERS, QUICK, SOURCES, TinyProject, ask, order, tiny, until
from service_fixtures import python_of

pytestmark = pytest.mark.adapters

ROOT = Path(__file__).parents[2]
INSIDE = Path(__file__).parent / "dagster_inside"
LEFT = shutil.ignore_patterns("landing", "lake", "downloads", "reports", ".icefield", "__pycache__")
DEFINITIONS = "orchestration/dagster_definitions.py"


@pytest.fixture(scope="module")
def python() -> Path:
    """The Python of Dagster's environment."""
    return python_of("dagster")


def in_dagster(python: Path, *command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(filter(None, [str(SOURCES), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(
        [str(python), "-m", *command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("module", ["inside_definitions.py", "inside_runs.py"])
def test_in_dagsters_environment(python: Path, module: str, tmp_path: Path) -> None:
    options = ["-q", "--tb=short", "-p", "no:cacheprovider", "-o", "filterwarnings=", "--show-capture=no"]
    done = in_dagster(python, "pytest", *options, f"--basetemp={tmp_path / 'inside'}", str(INSIDE / module))
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def test_its_types_are_those_of_dagster(python: Path) -> None:
    done = in_dagster(python, "mypy", "src/icefield/adapters/dagster")
    assert done.returncode == 0, done.stdout


def test_dagster_validates_the_reference_projects_and_names_the_line_of_a_broken_one(
    python: Path, tmp_path: Path
) -> None:
    broken = tiny(tmp_path / "broken", "import nowhere_to_be_found\n")
    define(broken)
    files = []
    for name in ("ecommerce", "taxi"):
        shutil.copytree(ROOT / "pipelines" / name, tmp_path / name, ignore=LEFT)
        files += ["-f", f"{name}/{DEFINITIONS}"]
    good = in_dagster(python, "dagster", "definitions", "validate", *files, cwd=tmp_path)
    assert good.returncode == 0, good.stdout + good.stderr
    assert "All code locations passed validation" in good.stdout + good.stderr
    bad = in_dagster(python, "dagster", "definitions", "validate", "-f", "broken/definitions.py", cwd=tmp_path)
    assert bad.returncode != 0
    assert "ICE-204 tables.py cannot be imported: ModuleNotFoundError" in bad.stdout + bad.stderr
    assert "where: tables.py:1" in bad.stdout + bad.stderr


def define(project: TinyProject, more: str = "") -> Path:
    file = project.root / "definitions.py"
    file.write_text(
        "from pathlib import Path\nfrom icefield.adapters.dagster import Job, definitions\n"
        f"defs = definitions(Path(__file__).parent{more})\n"
    )
    return file


def reference(root: Path, name: str) -> Path:
    """A copy of a reference project with settings for a few rows."""
    shutil.copytree(ROOT / "pipelines" / name, root, ignore=LEFT)
    toml = root / "icefield.toml"
    quick = "\n".join(f'"{key}" = "{value}"' for key, value in QUICK.items())
    toml.write_text(toml.read_text().replace('"spark.driver.memory" = "3g"', quick))
    return root


def generate(root: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, str(root / "generate.py"), *arguments], check=True, capture_output=True)


@pytest.fixture
def tlc(tmp_path: Path) -> Iterator[str]:
    """A server that has two months, as the TLC's has."""
    (made := tmp_path / "made").mkdir()
    generate(ROOT / "pipelines" / "taxi", "--landing", str(made), "--months", "2", "--rows", "150")
    for folder, pattern in (("trip-data", "*.parquet"), ("misc", "*.csv")):
        (place := tmp_path / "tlc" / folder).mkdir(parents=True)
        for file in made.glob(pattern):
            shutil.move(file, place)
    handler = functools.partial(_Quiet, directory=str(tmp_path / "tlc"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        return


def test_dagster_dev_runs_jobs_backfills_and_sensors(python: Path, tmp_path: Path, tlc: str) -> None:
    """By its web server: the shop by a run, the taxis by a backfill from download to report, a sensor by new files."""
    shop, taxi = reference(tmp_path / "ecommerce", "ecommerce"), reference(tmp_path / "taxi", "taxi")
    generate(shop, "--rows", "1500", "--days", "1")
    watched = tiny(tmp_path / "watched", ORDERS)
    watched.land("1.csv", [order(1), order(2, "bob")])
    jobs = ', jobs=[Job(name="watched", sensor=("files",), every=1, running=True)]'
    files = {"shop": shop / DEFINITIONS, "taxi": taxi / DEFINITIONS, "watched": define(watched, jobs)}
    with dagster_dev(python, tmp_path, files, {"TAXI_BASE_URL": tlc}) as server:
        # Two at once on one lake: the sensor has found the first file, and somebody starts the job beside it.
        until(lambda: server.runs("watched"), 120, what="the sensor has started a run")
        server.launch("watched", "watched")
        server.launch("shop", "everything")
        server.backfill("taxi", "month", ["2023-01", "2023-02"])

        both = server.ended("watched", 2)
        assert [bool(one["tags"].get("dagster/sensor_name")) for one in both] == [True, False]
        assert watched.ask("SELECT count(*), count(DISTINCT id) FROM bronze.orders") == [(2, 2)]
        assert watched.ask("SELECT count(*) FROM ops.runs WHERE status = 'published'") == [(1,)]
        watched.land("2.csv", [order(3)])
        assert server.ended("watched", 3)[-1]["tags"]["icefield/due"] == "bronze.orders: 1 new file"
        assert watched.ask("SELECT count(*) FROM bronze.orders") == [(3,)]

        server.ended("everything", 1)
        server.ended("month", 2)
        found = server.materialized()
        assert len([name for name in found if name.startswith(("bronze/", "silver/", "gold/")) and found[name]]) >= 12
        assert {one["partition"] for one in found["raw/yellow_trips"]} == {"2023-01", "2023-02"}
        assert {one["partition"] for one in found["downloads/months"]} == {"2023-01", "2023-02"}
        assert len(found["reports/snapshots"]) == 2
    months_were_taken_in_one_after_the_other(taxi)


def months_were_taken_in_one_after_the_other(taxi: Path) -> None:
    runs = ask(
        EmbeddedLake(taxi / "lake").pointers(),
        "SELECT batch, epoch_ms(started_at), epoch_ms(finished_at) FROM ops.runs ORDER BY started_at",
    )
    assert sorted(batch for batch, _, _ in runs) == ["2023-01", "2023-02"]
    assert runs[0][2] <= runs[1][1]
    assert "| 2023-02 |" in (taxi / "reports" / "snapshots.md").read_text()
