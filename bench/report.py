"""What the benchmark found, as JSON for machines and Markdown for people, with the machine it was found on."""

from __future__ import annotations

import os
import platform
import re
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contestants import HANDWRITTEN, ICEFIELD, Counts

if TYPE_CHECKING:
    from measure import Measured

PACKAGES = ("icefield", "pyspark", "pyiceberg", "duckdb", "polars", "pyarrow")
GB = 1e9
MOST_SECONDS = {"nothing new": 1.0, "--help": 0.4, "ls": 0.4}
MOST_BYTES = 4 * GB


def machine(java: Path) -> dict[str, Any]:
    """The machine and the versions; nothing that tells whose machine it is or where things lie on it."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GB, 1),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "java": _java(java),
        "packages": {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
    }


def summary(runs: Sequence[Measured]) -> dict[str, Any]:
    """Median and spread of some runs of one command."""
    seconds = [run.seconds for run in runs]
    return {
        "median_s": round(statistics.median(seconds), 3),
        "min_s": round(min(seconds), 3),
        "max_s": round(max(seconds), 3),
        "seconds": [round(value, 3) for value in seconds],
        "cpu_median_s": round(statistics.median(run.cpu_seconds for run in runs), 2),
        "peak_bytes": max(run.peak_bytes for run in runs),
        "lingered_max_s": round(max(run.lingered for run in runs), 3),
        "java": any(run.java for run in runs),
    }


def cold_ratios(cold: Mapping[str, Sequence[Measured]]) -> dict[str, dict[str, float]]:
    """How many times as long as each other one icefield took: by medians, and the least and most of any pair."""
    if ICEFIELD not in cold:
        return {}
    own = [run.seconds for run in cold[ICEFIELD]]
    found = {}
    for name, runs in cold.items():
        if name != ICEFIELD:
            other = [run.seconds for run in runs]
            pairs = [a / b for a, b in zip(own, other, strict=True)]
            found[name] = {
                "of_medians": round(statistics.median(own) / statistics.median(other), 3),
                "least_of_a_pair": round(min(pairs), 3),
                "most_of_a_pair": round(max(pairs), 3),
            }
    return found


def verdicts(results: Mapping[str, Any]) -> list[tuple[str, str, str, bool]]:
    """What is promised, what was found, and whether it holds."""
    found = []
    if ratio := results["ratios"].get(HANDWRITTEN):
        value = ratio["of_medians"]
        found.append((f"cold run against {HANDWRITTEN}", "at most 1.00 times", f"{value:.2f} times", value <= 1))
    for name, most in MOST_SECONDS.items():
        if it := results["quick"].get(name):
            found.append((name, f"at most {most:g} s", f"{it['median_s']:.2f} s", it["median_s"] <= most))
    if it := results["quick"].get("nothing new"):
        found.append(("nothing new", "no JVM", "a JVM" if it["java"] else "none", not it["java"]))
    peaks = [it["peak_bytes"] for it in [results["cold"].get(ICEFIELD), *results["quick"].values()] if it]
    if peaks:
        found.append(
            ("peak memory, Java and Python", "at most 4 GB", f"{max(peaks) / GB:.2f} GB", max(peaks) <= MOST_BYTES)
        )
    return found


def doubts(counts: Mapping[str, Counts], landed: Counts) -> list[str]:
    """What cannot be right: rows of a feed lost or doubled, or a table that is missing or empty."""
    found = []
    wanted = {table for of in counts.values() for table in of if _is_named(table)} | landed.keys()
    for name, of in counts.items():
        found += [f"{name} has no rows in {table}" for table in sorted(wanted) if not of.get(table)]
    for table, rows in landed.items():
        exact = {
            ICEFIELD: counts.get(ICEFIELD, {}).get(table, 0) + counts.get(ICEFIELD, {}).get(f"{table}__quarantine", 0),
            HANDWRITTEN: counts.get(HANDWRITTEN, {}).get(table, 0),
        }
        found += [
            f"{name} accounts for {had:,} of the {rows:,} rows landed for {table}"
            for name, had in exact.items()
            if name in counts and had != rows
        ]
    return found


def markdown(results: Mapping[str, Any]) -> str:
    """The results for a reader."""
    data, machine_ = results["data"], results["machine"]
    lines = [
        f"# {data['rows']:,} rows in {data['days']} days, {results['date']}",
        "",
        f"{machine_['cpu']}, {machine_['cores']} cores, {machine_['memory_gb']} GB, {machine_['system']}; "
        f"load before the start {machine_['load_before']}. Python {machine_['python']}, Java {machine_['java']}, "
        + ", ".join(f"{name} {number}" for name, number in machine_["packages"].items())
        + f". Commit {machine_['commit']}.",
        "",
        "Wall time of whole commands, each in a new process, one after another in turns; set-up done and page cache "
        "warm. Memory is the sum of resident pages of a command's processes, CPU the time they used on all cores, both "
        "sampled five times a second.",
        "",
        *_table(
            [
                "cold run: CSV to gold",
                "median s",
                "least",
                "most",
                "CPU s",
                "peak GB",
                f"{ICEFIELD} takes",
                "in any pair",
            ],
            [_cold_row(name, it, results["ratios"]) for name, it in results["cold"].items()],
        ),
        *_table(
            [ICEFIELD, "median s", "least", "most", "CPU s", "peak GB", "Java", "runs"],
            [
                [name, *_spread(it), "yes" if it["java"] else "no", str(len(it["seconds"]))]
                for name, it in results["quick"].items()
            ],
        ),
        *_table(
            ["held to", "limit", "found", ""],
            [[what, limit, seen, "held" if held else "**not held**"] for what, limit, seen, held in verdicts(results)],
        ),
        *_counts_table(results["counts"]),
        *[f"- **{doubt}**" for doubt in results["doubts"]],
    ]
    return "\n".join(lines).rstrip() + "\n"


def _cold_row(name: str, it: Mapping[str, Any], ratios: Mapping[str, Mapping[str, float]]) -> list[str]:
    ratio = ratios.get(name)
    told = (
        [f"{ratio['of_medians']:.2f} times", f"{ratio['least_of_a_pair']:.2f} to {ratio['most_of_a_pair']:.2f}"]
        if ratio
        else ["", ""]
    )
    return [name, *_spread(it), *told]


def _spread(it: Mapping[str, Any]) -> list[str]:
    times = [f"{it[key]:.2f}" for key in ("median_s", "min_s", "max_s", "cpu_median_s")]
    return [*times, f"{it['peak_bytes'] / GB:.2f}"]


def _counts_table(counts: Mapping[str, Counts]) -> list[str]:
    tables = sorted({table for of in counts.values() for table in of if not table.startswith("ops.")})
    shown = [[table, *[f"{of[table]:,}" if table in of else "" for of in counts.values()]] for table in tables]
    if not shown:
        return []
    note = "Only icefield checks: the others keep rows that it quarantines (DuckDB drops the malformed ones)."
    return [note, "", *_table(["rows", *counts], shown)]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    rule = ["---", *["---:" for _ in header[1:]]]
    return [*["| " + " | ".join(row) + " |" for row in [header, rule, *rows]], ""]


def _is_named(table: str) -> bool:
    """Whether everyone has to have the table: not the run's history or a table only icefield writes."""
    return not (table.startswith("ops.") or "__" in table or table == "silver.stock_levels")


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists() and (named := re.search(r"^model name\s*:\s*(.+)$", info.read_text(encoding="utf-8"), re.M)):
        return named.group(1)
    return _said("sysctl", "-n", "machdep.cpu.brand_string") or platform.processor() or "unknown"


def _java(java: Path) -> str:
    told = re.search(r'version "([^"]+)"', _said(str(java), "-version"))
    return told.group(1) if told else "unknown"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "from source"


def _commit() -> str:
    commit = _said("git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD")
    changed = _said("git", "-C", str(Path(__file__).parent), "status", "--porcelain", "--", "../src", "../pipelines")
    return (commit or "unknown") + (" with changes" if changed else "")


def _said(*command: str) -> str:
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return (answer.stdout + answer.stderr).strip() if answer.returncode == 0 else ""
