"""How long the shop project takes for a few changes, in one warm process: captured events into all of its tables.

    python bench/shop.py [--runs 10] [--messages 10]

The recorded messages are taken in but for the last ones of each topic; these then come a few at a time.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from icefield import Lake

PROJECT = Path(__file__).resolve().parents[1] / "pipelines" / "shop"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--messages", type=int, default=10, help="new messages of each topic a run")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="icefield-shop-") as folder:
        root = Path(folder) / "shop"
        shutil.copytree(PROJECT, root, ignore=shutil.ignore_patterns("lake*", "landing", ".icefield", "__pycache__"))
        later = hold_back(root / "recorded", given.runs * given.messages)
        lake = Lake(root)
        took = [timed(lake)]
        for number in range(given.runs):
            for file, lines in later.items():
                with file.open("a") as out:
                    out.writelines(lines[number * given.messages : (number + 1) * given.messages])
            took.append(timed(lake))
    told = {"first": took[0], "runs": took[1:], "median": round(statistics.median(took[1:]), 2)}
    print(json.dumps(told))
    if given.output:
        given.output.write_text(json.dumps(told) + "\n", encoding="utf-8")
    return 0


def hold_back(recorded: Path, count: int) -> dict[Path, list[str]]:
    """Takes the last messages away from each topic's last file."""
    found = {}
    for topic in recorded.iterdir():
        file = sorted(topic.iterdir())[-1]
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        cut = max(1, len(lines) - count)
        file.write_text("".join(lines[:cut]), encoding="utf-8")
        found[file] = lines[cut:]
    return found


def timed(lake: Lake) -> float:
    begun = time.perf_counter()
    result = lake.run()
    seconds = round(time.perf_counter() - begun, 2)
    if not result.ok:
        sys.exit(result.error)
    print(f"{seconds} s, {len(result.tables)} tables, {result.status}", file=sys.stderr, flush=True)
    return seconds


if __name__ == "__main__":
    sys.exit(main())
