"""`make scale`: a hundred times the default data, landed and taken in slice by slice, with 6 GB for Java.

    python bench/scale.py [--rows 380000000] [--slices 10] [--heap 6g] [--work FOLDER]

What a slice landed is removed once it was taken in, so that only the lake grows. Linear is as many times the first
slice, which is a full build. Results go to bench/results/<date>-scale-<rows>.json and .md after every slice.
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
from contestants import ICEFIELD, contestants, generate
from measure import CommandFailed, Measured, measure

from icefield.engine.java import find_java
from run import RESULTS, say, temporary, told

DAYS = 90
MOST = 1.1


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


def take_slice(place: Path, number: int, rows: int, environment: Mapping[str, str]) -> Measured:
    """Lands and takes in one slice; its files are gone afterwards."""
    landing = place / "landing"
    more = ["--append"] if number else []
    command = generate(landing, *more, "--rows", str(rows), "--days", str(DAYS))
    subprocess.run(command, check=True, capture_output=True, env=environment)
    os.sync()
    (own,) = contestants([ICEFIELD], []).values()
    measured = measure(own.command(place), output=place.parent / "output.txt", environment=environment)
    for file in landing.glob("*/*.csv"):
        file.unlink()
    return measured


def lost(place: Path) -> list[str]:
    """Feeds of which not every landed row is in the table or in its quarantine."""
    (own,) = contestants([ICEFIELD], []).values()
    counts = own.counts(place)
    manifest = json.loads((place / "landing" / "manifest.json").read_text(encoding="utf-8"))
    landed = {f"bronze.{feed}": sum(d["rows"] for d in days.values()) for feed, days in manifest["feeds"].items()}
    found = {table: counts.get(table, 0) + counts.get(f"{table}__quarantine", 0) for table in landed}
    return [f"{table}: {found[table]:,} of {rows:,} rows" for table, rows in landed.items() if found[table] != rows]


def markdown(results: Mapping[str, Any]) -> str:
    """The results for a reader."""
    slices = results["slices"]
    first, total = slices[0]["seconds"], sum(it["seconds"] for it in slices)
    ratio = total / (first * len(slices))
    lines = [
        f"# {results['rows']:,} rows in {results['wanted']} slices, {results['heap']} for Java, {results['date']}",
        "",
        f"{len(slices)} of {results['wanted']} slices done: {total:,.0f} s, {ratio:.2f} times linear from the first"
        f" (held to {MOST}). {results['stored_gb']:.1f} GB stored.",
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
    }
    (own,) = contestants([ICEFIELD], []).values()
    with temporary(asked.work) as work:
        place = work / own.nickname
        own.prepare(work / "nothing", place)
        set_heap(place, asked.heap)
        for number in range(asked.slices):
            try:
                measured = take_slice(place, number, asked.rows // asked.slices, environment)
            except CommandFailed as error:
                say(f"scale: slice {number + 1}: {error}")
                return 1
            results["slices"].append(asdict(measured))
            results["lost"] = lost(place)
            results["stored_gb"] = sum(f.stat().st_size for f in (place / "lake").rglob("*") if f.is_file()) / report.GB
            keep(results, asked.results)
            free = shutil.disk_usage(work).free / report.GB
            say(f"slice {number + 1}: {told(measured)}; {results['stored_gb']:.1f} GB stored, {free:.0f} GB free")
    print(markdown(results))
    first, total = results["slices"][0]["seconds"], sum(it["seconds"] for it in results["slices"])
    return 1 if results["lost"] or total > MOST * first * asked.slices else 0


if __name__ == "__main__":
    sys.exit(main())
