"""Upkeep that is killed at any place: every row is there once, every kept version can be read, the next one goes on.

Without Spark: PyIceberg writes the rows, and upkeep needs no Spark either.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest

from icefield.failpoint import POINTS
from icefield.lake import metadata as meta
from icefield.lake.embedded import EmbeddedLake
from icefield.plan.upkeep import FEW
from icefield.project import open_project
from icefield.run.upkeep import Upkeep
from lakes import new_lake, publish
from projects import Process, TinyProject, rows_of, tiny

pytestmark = pytest.mark.faults

PLACES = (
    ("run.opened", *(p for p in POINTS if p.startswith(("publish.", "upkeep."))))
    if os.environ.get("ICEFIELD_FAULTS") == "all"
    else ("upkeep.compacted", "publish.before-commit", "publish.committed", "upkeep.removing")
)
COMMITTED = ("publish.before-answer", "publish.committed", "publish.cleaned", "upkeep.published", "upkeep.removing")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> TinyProject:
    """One lake for all cases: each lands as many small files as are written together."""
    found = tiny(tmp_path_factory.mktemp("upkeep") / "tiny")
    with (found.root / "icefield.toml").open("a") as file:
        file.write('[profile.local.upkeep]\nkeep = "0s"\ngrace = "0s"\n')
    new_lake(found.lake.root)
    return found


def values(lake: EmbeddedLake) -> Counter[tuple[Any, ...]]:
    return rows_of(lake.pointers()["a.one"])


@pytest.mark.parametrize("point", PLACES)
def test_killed_at_any_place_of_upkeep_no_row_is_lost_and_the_next_one_completes_it(
    project: TinyProject, point: str
) -> None:
    lake = project.lake
    for number in range(FEW + 1):
        publish(lake, {"a.one": [number]})
    before, rows, runs = lake.pointers(), values(lake), project.ask("SELECT count(*) FROM ops.runs")
    command = ["-m", "icefield", "upkeep", "-p", str(project.root)]
    ended = Process.start_script(command, {"ICEFIELD_FAILPOINTS": f"{point}=kill"}).end()
    assert ended.killed, ended.output

    assert (lake.pointers() != before) is (point in COMMITTED)
    assert values(lake) == rows
    for at in lake.pointers().values():
        for snapshot in meta.load(at)["snapshots"]:
            rows_of(at, snapshot["snapshot-id"])

    done = Upkeep(open_project(project.root)).carry_out()
    assert done.put_off == ""
    assert values(lake) == rows
    assert project.ask("SELECT count(*) FROM ops.runs") == runs, "upkeep that died is no run that died"
    assert meta.total_files(meta.load(lake.pointers()["a.one"])) < FEW
    assert (lake.catalog.branches(), list(lake.runs.glob("*.lock"))) == ({}, [])
    publish(lake, {"a.one": [99]})
    assert values(lake) == rows + Counter([(99,)])
