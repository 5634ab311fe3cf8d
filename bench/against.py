"""This tree beside another commit of it, taking turns: first build, one more day, nothing new; each by its own command.

    python bench/run.py --against COMMIT [--rows 3800000] [--repeat 3]

The other commit is checked out into a temporary folder and runs in the same environment.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from contestants import generate, land
from measure import Measured, measure

ROOT = Path(__file__).resolve().parent.parent


@dataclass(slots=True)
class Side:
    """One of the two trees, with its own copy of the project."""

    name: str
    tree: Path
    place: Path
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def prepare(self) -> None:
        """The project without a lake."""
        shutil.rmtree(self.place, ignore_errors=True)
        ignored = shutil.ignore_patterns("landing", "lake", ".icefield", "__pycache__")
        shutil.copytree(self.tree / "pipelines" / "ecommerce", self.place, ignore=ignored)

    def run(self, what: str, environment: Mapping[str, str]) -> Measured:
        """One run of its command, noted."""
        own = {**environment, "PYTHONPATH": str(self.tree / "src")}
        command = [sys.executable, "-m", "icefield", "run", "-p", str(self.place)]
        os.sync()
        found = measure(command, output=self.place.parent / f"{self.name}.txt", environment=own)
        self.seconds.setdefault(what, []).append(round(found.seconds, 2))
        return found


def checked_out(commit: str, folder: Path) -> Path:
    """Another commit of this repository."""
    subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--detach", str(folder), commit], check=True)
    return folder


def compare(commit: str, work: Path, rows: int, days: int, repeat: int) -> dict[str, Any]:
    """Both trees in turns; the ratio is ours to theirs."""
    other = checked_out(commit, work / "other")
    try:
        return _compared(commit, other, work, rows, days, repeat)
    finally:
        subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(other)], check=True)


def _compared(commit: str, other: Path, work: Path, rows: int, days: int, repeat: int) -> dict[str, Any]:
    sides = [Side("this", ROOT, work / "this"), Side(commit, other, work / "theirs")]
    landing = work / "landing"
    environment = dict(os.environ)
    subprocess.run(generate(landing, "--rows", str(rows), "--days", str(days)), check=True)
    for _ in range(repeat):
        for side in sides:
            side.prepare()
            land(landing, side.place)
            said(side, "first build", environment)
    for _ in range(repeat):
        subprocess.run(generate(landing, "--append", "--days", "1"), check=True, capture_output=True)
        for side in sides:
            land(landing, side.place)
            said(side, "one more day", environment)
            said(side, "nothing new", environment)
    medians = {side.name: {what: statistics.median(of) for what, of in side.seconds.items()} for side in sides}
    ratios = {what: round(medians["this"][what] / medians[commit][what], 3) for what in medians["this"]}
    return {
        "date": date.today().isoformat(),
        "against": commit,
        "rows": rows,
        "seconds": {side.name: side.seconds for side in sides},
        "medians": medians,
        "ratios": ratios,
    }


def said(side: Side, what: str, environment: Mapping[str, str]) -> None:
    """One run, told."""
    found = side.run(what, environment)
    print(f"{what}, {side.name}: {found.seconds:.2f} s, {found.cpu_seconds:.1f} s of CPU", file=sys.stderr, flush=True)


def written(results: Mapping[str, Any], folder: Path) -> str:
    """The results as text, kept in a file."""
    text = json.dumps(results, indent=1)
    name = f"{results['date']}-{results['rows']}-against-{results['against'][:7]}.json"
    (folder / name).write_text(text + "\n", encoding="utf-8")
    return text
