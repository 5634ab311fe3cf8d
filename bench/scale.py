"""`make scale`: a hundred times the default data, landed and taken in slice by slice, with 6 GB for Java.

    python bench/scale.py [--rows 380000000] [--slices 10] [--heap 6g] [--work FOLDER]

What a slice landed is removed once it was taken in, so that only the lake grows. Linear is as many times a full build
of one slice: that of the first, and those of every third, which is also built alone, in a lake of its own, for a
machine's speed changes within an hour. Results go to bench/results/<date>-scale-<rows>.json and .md after every slice.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

import report
from contestants import ICEFIELD, Contestant, contestants, generate
from measure import CommandFailed, Measured, measure

from icefield.engine.session.java import find_java
from run import RESULTS, say, temporary, told

DAYS = 90
MOST = 1.1
EVERY = 3


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure icefield on much data, slice by slice.")
    parser.add_argument("--rows", type=int, default=380_000_000, help="rows landed in all")
    parser.add_argument("--slices", type=int, default=10, help=f"runs, each of which takes in {DAYS} days")
    parser.add_argument("--heap", default="6g", help="memory for Java")
    parser.add_argument("--work", type=Path, help="where the temporary folder is made (default: the system's)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the results are written")
    return parser.parse_args(argv)


def set_heap(project: Path, heap: str) -> None:
    """The project's one setting that differs from what its users have."""
    config = project / "icefield.toml"
    text = config.read_text(encoding="utf-8")
    changed = text.replace('"spark.driver.memory" = "3g"', f'"spark.driver.memory" = "{heap}"')
    if changed == text:
        raise SystemExit(f"{config} does not say how much memory Java has")
    config.write_text(changed, encoding="utf-8")


def land_slice(landing: Path, number: int, rows: int, environment: Mapping[str, str]) -> None:
    """Lands one slice; what was landed before is gone."""
    for file in landing.glob("*/*.csv"):
        file.unlink()
    more = ["--append"] if number else []
    command = generate(landing, *more, "--rows", str(rows), "--days", str(DAYS))
    subprocess.run(command, check=True, capture_output=True, env=environment)
    os.sync()


def take(own: Contestant, place: Path, environment: Mapping[str, str]) -> Measured:
    """Takes in what has landed."""
    return measure(own.command(place), output=place.parent / "output.txt", environment=environment)


def build_alone(own: Contestant, place: Path, heap: str, environment: Mapping[str, str]) -> Measured:
    """Builds what has landed in a lake of its own, which is gone afterwards."""
    alone = place.parent / "alone"
    own.prepare(place / "landing", alone)
    set_heap(alone, heap)
    measured = take(own, alone, environment)
    shutil.rmtree(alone)
    return measured


def lost(own: Contestant, place: Path) -> list[str]:
    """Feeds of which not every landed row is in the table or in its quarantine."""
    counts = own.counts(place)
    manifest = json.loads((place / "landing" / "manifest.json").read_text(encoding="utf-8"))
    landed = {f"bronze.{feed}": sum(d["rows"] for d in days.values()) for feed, days in manifest["feeds"].items()}
    found = {table: counts.get(table, 0) + counts.get(f"{table}__quarantine", 0) for table in landed}
    return [f"{table}: {found[table]:,} of {rows:,} rows" for table, rows in landed.items() if found[table] != rows]


def ratio_of(results: Mapping[str, Any]) -> float:
    """How many times linear it took."""
    alone = [it["seconds"] for it in results["alone"]]
    return sum(it["seconds"] for it in results["slices"]) / len(results["slices"]) / (sum(alone) / len(alone))


def markdown(results: Mapping[str, Any]) -> str:
    """The results for a reader."""
    slices = results["slices"]
    total, ratio = sum(it["seconds"] for it in slices), ratio_of(results)
    alone = ", ".join(f"{it['seconds']:.1f}" for it in results["alone"])
    lines = [
        f"# {results['rows']:,} rows in {results['wanted']} slices, {results['heap']} for Java, {results['date']}",
        "",
        f"{len(slices)} of {results['wanted']} slices done: {total:,.0f} s, {ratio:.2f} times linear (held to {MOST})."
        f" A slice built alone: {alone} s. {results['stored_gb']:.1f} GB stored.",
        "",
        "| slice | seconds | CPU s | peak GB |",
        "| --- | ---: | ---: | ---: |",
        *[
            f"| {number} | {it['seconds']:.1f} | {it['cpu_seconds']:.0f} | {it['peak_bytes'] / report.GB:.2f} |"
            for number, it in enumerate(slices, 1)
        ],
        *([""] + [f"- **{line}**" for line in results["lost"]] if results["lost"] else []),
    ]
    return "\n".join(lines) + "\n"


def keep(results: Mapping[str, Any], folder: Path) -> None:
    """What is known so far."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{results['date']}-scale-{results['rows']}"
    (folder / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text(markdown(results), encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """0 when every slice went in, no row is missing and the time was near linear."""
    asked = arguments(argv)
    java = find_java()
    environment = {**os.environ, "JAVA_HOME": str(java.home)}
    results: dict[str, Any] = {
        "date": date.today().isoformat(),
        "machine": report.machine(java.executable),
        "rows": asked.rows,
        "wanted": asked.slices,
        "heap": asked.heap,
        "slices": [],
        "alone": [],
    }
    (own,) = contestants([ICEFIELD], []).values()
    with temporary(asked.work) as work:
        place = work / own.nickname
        own.prepare(work / "nothing", place)
        set_heap(place, asked.heap)
        for number in range(asked.slices):
            land_slice(place / "landing", number, asked.rows // asked.slices, environment)
            try:
                measured = take(own, place, environment)
                alone = build_alone(own, place, asked.heap, environment) if number and number % EVERY == 0 else None
            except CommandFailed as error:
                say(f"scale: slice {number + 1}: {error}")
                return 1
            results["slices"].append(asdict(measured))
            if alone is not None or not number:
                results["alone"].append(asdict(alone or measured))
            results["lost"] = lost(own, place)
            results["stored_gb"] = sum(f.stat().st_size for f in (place / "lake").rglob("*") if f.is_file()) / report.GB
            keep(results, asked.results)
            free = shutil.disk_usage(work).free / report.GB
            beside = f"; alone {told(alone)}" if alone is not None else ""
            stored = f"{results['stored_gb']:.1f} GB stored, {free:.0f} GB free"
            say(f"slice {number + 1}: {told(measured)}{beside}; {stored}")
    print(markdown(results))
    return 1 if results["lost"] or ratio_of(results) > MOST else 0


if __name__ == "__main__":
    sys.exit(main())
