"""The sensors project, whole: every table equals what plain Python works out from the recorded messages."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sensors import recorded, require_equal

from projects import TinyProject

pytestmark = pytest.mark.spark

PROJECT = Path(__file__).parents[2] / "pipelines" / "sensors"
TOPIC = "sensor-readings"


def project(root: Path) -> TinyProject:
    shutil.copytree(PROJECT, root, ignore=shutil.ignore_patterns("lake*", ".icefield", "__pycache__"))
    return TinyProject(root)


def produce(project: TinyProject, seed: int, start: str, *arguments: str) -> None:
    wanted = ["--recorded", str(project.root / "recorded"), "--seed", str(seed), "--start", start]
    more = ["--rate", "4", "--seconds", "120", "--sensors", "9", "--late", "0.2", "--bad", "0.05", *arguments]
    subprocess.run([sys.executable, str(project.root / "produce.py"), *wanted, *more], check=True, capture_output=True)


def test_the_project_as_it_comes_is_exact_and_late_readings_correct_their_minutes(tmp_path: Path) -> None:
    made = project(tmp_path / "sensors")
    assert made.run().ok
    first = require_equal(made.lake.pointers(), recorded(made.root / "recorded" / TOPIC))
    assert first.rejected, "it comes with bad messages"
    for number in (1, 2):
        produce(made, number, f"2026-11-15T12:0{4 + number}:00")
        result = made.run()
        assert result.tables[0].action == "append"
        assert {one.promise for one in result.tables} == {"proven"}
        require_equal(made.lake.pointers(), recorded(made.root / "recorded" / TOPIC))
    assert made.run(full_refresh=True).ok
    require_equal(made.lake.pointers(), recorded(made.root / "recorded" / TOPIC))


@pytest.mark.thorough
def test_the_same_messages_in_any_batches_give_the_same_lake(tmp_path: Path) -> None:
    whole, cut = project(tmp_path / "whole"), project(tmp_path / "cut")
    for one in (whole, cut):
        shutil.rmtree(one.root / "recorded")
        (one.root / "recorded" / TOPIC).mkdir(parents=True)
    produce(whole, 3, "2026-11-15T12:00:00", "--partitions", "3")
    lines = (whole.root / "recorded" / TOPIC / "00000.jsonl").read_text().splitlines()
    assert whole.run().ok
    chance = random.Random(20261118)
    place = cut.root / "recorded" / TOPIC
    number = 0
    while lines:  # partitions come at different speeds, each in its own order
        chosen = set(chance.sample(range(3), chance.randint(1, 3)))
        count = chance.randint(60, 250)
        taken = [line for line in lines if json.loads(line)["partition"] in chosen][:count]
        gone = set(taken)
        lines = [line for line in lines if line not in gone]
        (place / f"{number:05d}.jsonl").write_text("".join(f"{line}\n" for line in taken))
        number += 1
        if taken:
            assert cut.run().ok
    require_equal(cut.lake.pointers(), recorded(place))
    for table in ("metrics.sensor_minutes", "metrics.sensor_status"):
        assert cut.rows(table) == whole.rows(table)
