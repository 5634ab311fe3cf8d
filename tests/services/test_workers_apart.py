"""Workers that see the warehouse and nothing else of the driver: e-commerce and shop give the same tables."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clusters import standalone
from projects import QUICK, SOURCES, TinyProject

pytestmark = [pytest.mark.services, pytest.mark.spark]

PIPELINES = Path(__file__).parents[2] / "pipelines"
#: One process takes in what each step brings, on the cluster. No row goes by the driver's memory if files can do it.
DRIVER = """
import pickle, shutil, sys
from pathlib import Path
from icefield.engine import limits
from projects import TinyProject

limits.LIMITS = limits.Limits(held_bytes=-1, local_rows=-1, driver_rejects=0)
root = Path(sys.argv[1])
for step in sorted((root / "steps").iterdir()):
    for name in ("ecommerce", "shop"):
        if (step / name).exists():
            shutil.copytree(step / name, root / name, dirs_exist_ok=True)
            project = TinyProject(root / name)
            result = project.run(once=False)
            assert result.ok, (step.name, name, result.error)
            (root / f"{name}-{step.name}.pickle").write_bytes(pickle.dumps(project.everything()))
"""


def made(root: Path, name: str, settings: str, profile: str = "") -> TinyProject:
    """A copy of a reference project without data."""
    left = shutil.ignore_patterns("landing", "recorded", "lake*", ".icefield", "__pycache__")
    shutil.copytree(PIPELINES / name, root / name, ignore=left, dirs_exist_ok=True)
    for bronze in (root / name).glob("bronze.py"):  # so that its files can be corrected
        bronze.write_text(bronze.read_text().replace("schema=schema)", 'schema=schema, changed="replace")'))
    toml = root / name / "icefield.toml"
    text = toml.read_text().replace("[profile.local]\n", f"[profile.local]\n{profile}\n")
    if "[profile.local.spark]\n" not in text:
        text += "\n[profile.local.spark]\n"
    toml.write_text(text.replace("[profile.local.spark]\n", f"[profile.local.spark]\n{settings}\n"))
    return TinyProject(root / name)


def prepare(root: Path) -> None:
    """What each step brings: a first load, more of it, and, of the e-commerce project, a corrected file."""
    shop = made(root / "made", "ecommerce", "").root
    generate = [sys.executable, str(shop / "generate.py"), "--seed", "11", "--dirty", "0.05", "--rows"]
    for step, more in enumerate((("1900", "--days", "3"), ("400", "--append", "--days", "1"))):
        before = {path for path in (shop / "landing").rglob("*") if path.is_file()}
        subprocess.run([*generate, *more], check=True, capture_output=True)
        for path in sorted({path for path in (shop / "landing").rglob("*") if path.is_file()} - before):
            place = root / "steps" / str(step) / "ecommerce" / path.relative_to(shop)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
    corrected = sorted((root / "steps" / "0" / "ecommerce" / "landing").rglob("*.csv"))[0]
    lines = corrected.read_bytes().splitlines(keepends=True)
    place = root / "steps" / "2" / corrected.relative_to(root / "steps" / "0")
    place.parent.mkdir(parents=True)
    place.write_bytes(b"".join([*lines[:3], *lines[4:]]))
    for topic in sorted((PIPELINES / "shop" / "recorded").iterdir()):
        told = (topic / "00000.jsonl").read_text("utf-8").splitlines(keepends=True)
        cut = len(told) * 3 // 5
        for step, part in enumerate((told[:cut], told[cut:])):
            place = root / "steps" / str(step) / "shop" / "recorded" / topic.name
            place.mkdir(parents=True)
            (place / f"{step:05}.jsonl").write_text("".join(part), encoding="utf-8")


def on_the_cluster(root: Path, cluster: Path) -> None:
    warehouses = [root / name / "lake" / "warehouse" for name in ("ecommerce", "shop")]
    for warehouse in warehouses:
        warehouse.mkdir(parents=True)
    with standalone(cluster, hidden=root, visible=warehouses) as address:
        settings = {
            **QUICK,
            "spark.master": address,
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "512m",
        }
        told = "\n".join(f'"{key}" = "{value}"' for key, value in settings.items())
        for name in ("ecommerce", "shop"):
            made(root, name, told, "shared = true")
        ended = subprocess.run(
            [sys.executable, "-c", DRIVER, str(root)],
            env={"PYTHONPATH": f"{SOURCES}:{Path(__file__).parents[1]}", "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr


Rows = dict[str, Counter[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], tuple[Rows, Rows]]:
    """All rows of a project after a step: on the cluster, and embedded."""
    folder = tmp_path_factory.mktemp("apart")
    driver, alone = folder / "driver", folder / "alone"
    driver.mkdir()
    (folder / "cluster").mkdir()
    prepare(driver)
    on_the_cluster(driver, folder / "cluster")
    quick = "\n".join(f'"{key}" = "{value}"' for key, value in QUICK.items())
    projects = {name: made(alone, name, quick) for name in ("ecommerce", "shop")}
    embedded: dict[tuple[str, int], Rows] = {}

    def at(name: str, step: int) -> tuple[Rows, Rows]:
        if (name, step) not in embedded:
            shutil.copytree(driver / "steps" / str(step) / name, projects[name].root, dirs_exist_ok=True)
            assert projects[name].run(once=False).ok
            embedded[name, step] = projects[name].everything()
        return pickle.loads((driver / f"{name}-{step}.pickle").read_bytes()), embedded[name, step]

    return at


@pytest.mark.parametrize(("name", "steps"), [("ecommerce", 3), ("shop", 2)])
def test_every_table_is_the_same(both: Callable[[str, int], tuple[Rows, Rows]], name: str, steps: int) -> None:
    for step in range(steps):
        apart, embedded = both(name, step)
        assert apart.keys() == embedded.keys()
        for table in embedded:
            assert apart[table] == embedded[table], (step, table)
