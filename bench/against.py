"""This tree beside another commit of it, taking turns: first build, one more day, nothing new; each by its own command.

    python bench/run.py --against COMMIT [--rows 3800000] [--repeat 3] [--only full warm]

The other commit is checked out into a temporary folder and runs in the same environment. CPU time is noted as well: on
a machine with other work it tells more than wall time.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from contestants import generate, land
from measure import Measured, measure
from report import machine

from icefield.engine.session.java import find_java

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
WARM_UP = ("--rows", "3800", "--days", "3")
#: How often each side has its turn of days in one process.
WARM_TURNS = 2


@dataclass(slots=True)
class Side:
    """One of the two trees, with its own copy of the project."""

    name: str
    tree: Path
    place: Path
    runs: dict[str, list[Measured]] = field(default_factory=dict)

    def prepare(self) -> None:
        """The project without a lake."""
        shutil.rmtree(self.place, ignore_errors=True)
        ignored = shutil.ignore_patterns("landing", "lake", ".icefield", "__pycache__")
        shutil.copytree(self.tree / "pipelines" / "ecommerce", self.place, ignore=ignored)

    def run(self, environment: Mapping[str, str]) -> Measured:
        """One run of its command."""
        own = {**environment, "PYTHONPATH": str(self.tree / "src")}
        command = [sys.executable, "-m", "icefield", "run", "-p", str(self.place)]
        os.sync()
        return measure(command, output=self.place.parent / f"{self.name}.txt", environment=own)

    def warm(self, folders: Sequence[Path], environment: Mapping[str, str]) -> list[float]:
        """The seconds of each folder but the first, taken in one after the other by one process."""
        own = {**environment, "PYTHONPATH": str(self.tree / "src")}
        output = self.place.parent / f"{self.name}-warm.json"
        command = [sys.executable, str(BENCH / "warm.py"), "icefield", str(output), str(self.place)]
        subprocess.run([*command, *map(str, folders)], check=True, env=own, stdout=subprocess.DEVNULL)
        seconds: list[float] = json.loads(output.read_text(encoding="utf-8"))
        return seconds[1:]

    def told(self) -> dict[str, dict[str, list[float]]]:
        """Wall and CPU time of every run."""
        return {
            what: {"seconds": [round(one.seconds, 2) for one in of], "cpu": [round(one.cpu_seconds, 1) for one in of]}
            for what, of in self.runs.items()
        }


def checked_out(commit: str, folder: Path) -> Path:
    """Another commit of this repository."""
    subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--detach", str(folder), commit], check=True)
    return folder


def compare(commit: str, work: Path, rows: int, days: int, repeat: int, only: Collection[str]) -> dict[str, Any]:
    """Both trees in turns; the ratio is ours to theirs. Days follow the builds, if they are asked for."""
    other = checked_out(commit, work / "other")
    try:
        return _compared(commit, other, work, rows, days, repeat, only)
    finally:
        subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(other)], check=True)


def _compared(
    commit: str, other: Path, work: Path, rows: int, days: int, repeat: int, only: Collection[str]
) -> dict[str, Any]:
    sides = [Side("this", ROOT, work / "this"), Side(commit, other, work / "theirs")]
    landing = work / "landing"
    environment = dict(os.environ)
    subprocess.run(generate(landing, "--rows", str(rows), "--days", str(days)), check=True)
    subprocess.run(generate(work / "little", *WARM_UP), check=True, capture_output=True)
    for side in sides * 2:  # the first start records a class archive, which the next ones have
        side.prepare()
        land(work / "little", side.place)
        side.run(environment)
    for _ in range(repeat):
        for side in sides:
            side.prepare()
            land(landing, side.place)
            said(side, "first build", environment)
    for _ in range(repeat if "day" in only else 0):
        subprocess.run(generate(landing, "--append", "--days", "1"), check=True, capture_output=True)
        for side in sides:
            land(landing, side.place)
            said(side, "one more day", environment)
            said(side, "nothing new", environment)
    warm: dict[str, list[float]] = {side.name: [] for side in sides}
    for turn in range(WARM_TURNS if "warm" in only else 0):
        folders = [_one_more_day(landing, work / "days" / f"{turn}-{number}") for number in range(repeat + 1)]
        for side in sides:
            warm[side.name] += side.warm(folders, environment)
            print(f"one more day, warm, {side.name}: {warm[side.name]}", file=sys.stderr, flush=True)
    told = {side.name: side.told() for side in sides}
    medians = {
        name: {what: {of: round(statistics.median(v), 2) for of, v in both.items()} for what, both in one.items()}
        for name, one in told.items()
    }
    ratios = {
        what: {of: round(value / medians[commit][what][of], 3) for of, value in both.items()}
        for what, both in medians["this"].items()
    }
    return {
        "date": date.today().isoformat(),
        "machine": machine(find_java().executable),
        "against": commit,
        "rows": rows,
        "runs": told,
        "medians": medians,
        "ratios": ratios,
        "warm": _warm_ratio(warm, commit) if any(warm.values()) else {},
    }


def _one_more_day(landing: Path, folder: Path) -> Path:
    """One more day, in a folder of its own besides."""
    before = set(landing.glob("*/*.csv"))
    subprocess.run(generate(landing, "--append", "--days", "1"), check=True, capture_output=True)
    for file in set(landing.glob("*/*.csv")) - before:
        (folder / file.parent.name).mkdir(parents=True, exist_ok=True)
        os.link(file, folder / file.parent.name / file.name)
    return folder


def _warm_ratio(warm: Mapping[str, list[float]], commit: str) -> dict[str, Any]:
    medians = {name: round(statistics.median(seconds), 2) for name, seconds in warm.items()}
    return {"runs": warm, "medians": medians, "ratio": round(medians["this"] / medians[commit], 3)}


def said(side: Side, what: str, environment: Mapping[str, str]) -> None:
    """One run, told."""
    found = side.run(environment)
    side.runs.setdefault(what, []).append(found)
    print(f"{what}, {side.name}: {found.seconds:.2f} s, {found.cpu_seconds:.1f} s of CPU", file=sys.stderr, flush=True)


def written(results: Mapping[str, Any], folder: Path) -> str:
    """The results as text, kept in a file."""
    text = json.dumps(results, indent=1)
    commit = results["machine"]["commit"][:7]
    name = f"{results['date']}-{results['rows']}-against-{results['against'][:7]}-{commit}.json"
    (folder / name).write_text(text + "\n", encoding="utf-8")
    return text
