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

from contestants import DBT, DUCKDB, HANDWRITTEN, ICEFIELD, Counts
from startup import MOST

if TYPE_CHECKING:
    from measure import Measured

PACKAGES = ("icefield", "pyspark", "pyiceberg", "duckdb", "polars", "pyarrow")
GB = 1e9
FULL, NOTHING, DAY, WARM_DAY = "full build", "nothing new", "one more day", "one more day, warm processes"
#: A day of the default data: what it costs to take in must not depend on how much is there.
FEW_ROWS = 3_800_000 // 90
FEW = f"{FEW_ROWS:,} more rows"
MOST_SECONDS = {NOTHING: 1.0, "--help": 0.4, "ls": 0.4}
MOST_BYTES = 4 * GB
#: One more of 90 days, of the time that all of them take.
MOST_OF_FULL = 0.10


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


def spread(seconds: Sequence[float]) -> dict[str, Any]:
    """Median and range of some times."""
    return {
        "median_s": round(statistics.median(seconds), 3),
        "min_s": round(min(seconds), 3),
        "max_s": round(max(seconds), 3),
        "seconds": [round(value, 3) for value in seconds],
    }


def summary(runs: Sequence[Measured]) -> dict[str, Any]:
    """Some runs of one command."""
    return {
        **spread([run.seconds for run in runs]),
        "cpu_median_s": round(statistics.median(run.cpu_seconds for run in runs), 2),
        "peak_bytes": max(run.peak_bytes for run in runs),
        "lingered_max_s": round(max(run.lingered for run in runs), 3),
        "java": any(run.java for run in runs),
    }


def ratios(
    measures: Mapping[str, Mapping[str, Sequence[Measured]]], warm: Mapping[str, Sequence[float]]
) -> dict[str, dict[str, dict[str, float]]]:
    """By what was measured and by contestant, how many times as long as it icefield took."""
    seconds = {
        what: {name: [run.seconds for run in runs] for name, runs in of.items()} for what, of in measures.items()
    }
    return {what: _ratios(of) for what, of in {**seconds, WARM_DAY: warm}.items() if ICEFIELD in of}


def _ratios(seconds: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """By medians, and the least and most of any pair."""
    own = seconds[ICEFIELD]
    found = {}
    for name, other in seconds.items():
        if name != ICEFIELD:
            # Who builds all anew may have taken part in the last turns only.
            pairs = [a / b for a, b in zip(own[-len(other) :], other, strict=True)]
            found[name] = {
                "of_medians": round(statistics.median(own) / statistics.median(other), 3),
                "least_of_a_pair": round(min(pairs), 3),
                "most_of_a_pair": round(max(pairs), 3),
            }
    return found


def verdicts(results: Mapping[str, Any]) -> list[tuple[str, str, str, bool]]:
    """What is promised, what was found, and whether it holds."""
    found = []
    for moment, value in results.get("startup", {}).get("ratios", {}).items():
        found.append(
            (f"start against a plain session, {moment}", f"at most {MOST} times", f"{value:.2f} times", value <= MOST)
        )
    measures, commands = results.get("measures", {}), results.get("commands", {})
    if ratio := results.get("ratios", {}).get(FULL, {}).get(HANDWRITTEN):
        value = ratio["of_medians"]
        found.append((f"{FULL} against {HANDWRITTEN}", "at most 1.00 times", f"{value:.2f} times", value <= 1))
    own = {**commands, **{what: of[ICEFIELD] for what, of in measures.items() if ICEFIELD in of}}
    for name, most in MOST_SECONDS.items():
        if it := own.get(name):
            found.append((name, f"at most {most:g} s", f"{it['median_s']:.2f} s", it["median_s"] <= most))
    if it := own.get(NOTHING):
        found.append((NOTHING, "no JVM", "a JVM" if it["java"] else "none", not it["java"]))
    day, full = results.get("warm", {}).get(ICEFIELD), measures.get(FULL, {}).get(ICEFIELD)
    if day and full:
        value = day["median_s"] / full["median_s"]
        limit = f"at most {MOST_OF_FULL:.2f} times"
        found.append((f"{WARM_DAY}, against the {FULL}", limit, f"{value:.3f} times", value <= MOST_OF_FULL))
    if own:
        peak = max(it["peak_bytes"] for it in own.values())
        found.append(("peak memory, Java and Python", "at most 4 GB", f"{peak / GB:.2f} GB", peak <= MOST_BYTES))
    return found


def doubts(counts: Mapping[str, Counts], landed: Counts) -> list[str]:
    """What cannot be right: rows lost or doubled, a table that is missing or empty, two of one kind that differ."""
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
    if DBT in counts and DUCKDB in counts:  # by the same queries
        found += [
            f"{DBT} has {counts[DBT].get(table, 0):,} rows in {table}, and {DUCKDB} {rows:,}"
            for table, rows in counts[DUCKDB].items()
            if counts[DBT].get(table, 0) != rows
        ]
    return found


def markdown(results: Mapping[str, Any]) -> str:
    """The results for a reader."""
    lines = [
        f"# {_title(results)}, {results['date']}",
        "",
        machine_text(results["machine"]),
        "",
        *(_startup(results["startup"]) if "startup" in results else []),
        *(_parts(results) if "data" in results else []),
        *table(
            ["held to", "limit", "found", ""],
            [[what, limit, seen, "held" if held else "**not held**"] for what, limit, seen, held in verdicts(results)],
        ),
        *_counts_table(results.get("counts", {})),
        *[f"- **{doubt}**" for doubt in results.get("doubts", ())],
    ]
    return "\n".join(lines).rstrip() + "\n"


def _title(results: Mapping[str, Any]) -> str:
    data = results.get("data")
    return f"{data['rows']:,} rows in {data['days']} days" if data else "The start of a session"


def machine_text(it: Mapping[str, Any]) -> str:
    packages = ", ".join(f"{name} {number}" for name, number in it["packages"].items())
    return (
        f"{it['cpu']}, {it['cores']} cores, {it['memory_gb']} GB, {it['system']}; load before the start "
        f"{it['load_before']}. Python {it['python']}, Java {it['java']}, {packages}. Commit {it['commit']}."
    )


def _startup(found: Mapping[str, Any]) -> list[str]:
    """A table of the two starts."""
    medians, moments = found["medians_s"], list(found["ratios"])
    rows = [[which, *[f"{of[moment]:.2f} s" for moment in moments]] for which, of in medians.items()]
    pairs = len(found["starts"][ICEFIELD])
    return [
        f"From a new Python process to a Spark session with the same jars, master, heap and extensions; medians of "
        f"{pairs} alternating pairs.",
        "",
        *table(["start", *moments], [*rows, ["ratio", *[f"{found['ratios'][moment]:.2f}" for moment in moments]]]),
    ]


def _parts(results: Mapping[str, Any]) -> list[str]:
    """What was measured on landed data."""
    rebuilding = ", ".join(results["rebuilding"])
    return [
        "Wall time of whole commands, each in a new process, one after another in turns; set-up done and page cache "
        "warm. Memory is the sum of resident pages of a command's processes, CPU the time they used on all cores, both "
        "sampled five times a second.",
        "",
        *([f"Not incremental, so that each run builds all anew: {rebuilding}.", ""] if rebuilding else []),
        *_overview(results["ratios"]),
        *[line for what, of in results["measures"].items() for line in _peers(what, of, results["ratios"])],
        *_warm(results["warm"], results["ratios"]),
        *table(
            [f"{ICEFIELD}, warm process", "median s", "least", "most"],
            [[FEW, *_times(results["warm_few"])]] if results["warm_few"] else [],
        ),
        *table(
            [ICEFIELD, "median s", "least", "most", "CPU s", "peak GB", "Java", "runs"],
            [
                [name, *_figures(it), "yes" if it["java"] else "no", str(len(it["seconds"]))]
                for name, it in results["commands"].items()
            ],
        ),
    ]


def _overview(ratios: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[str]:
    names = list(dict.fromkeys(name for of in ratios.values() for name in of))
    rows = [
        [name, *[f"{of[name]['of_medians']:.2f}" if name in of else "" for of in ratios.values()]] for name in names
    ]
    return table([f"times as long as this one {ICEFIELD} takes", *ratios], rows)


def _peers(what: str, found: Mapping[str, Any], ratios: Mapping[str, Any]) -> list[str]:
    header = [what, "median s", "least", "most", "CPU s", "peak GB", f"{ICEFIELD} takes", "in any pair"]
    return table(header, [[name, *_figures(it), *_ratio(ratios, what, name)] for name, it in found.items()])


def _warm(found: Mapping[str, Any], ratios: Mapping[str, Any]) -> list[str]:
    header = [WARM_DAY, "median s", "least", "most", f"{ICEFIELD} takes", "in any pair"]
    return table(header, [[name, *_times(it), *_ratio(ratios, WARM_DAY, name)] for name, it in found.items()])


def _ratio(ratios: Mapping[str, Any], what: str, name: str) -> list[str]:
    ratio = ratios.get(what, {}).get(name)
    if ratio is None:
        return ["", ""]
    return [f"{ratio['of_medians']:.2f} times", f"{ratio['least_of_a_pair']:.2f} to {ratio['most_of_a_pair']:.2f}"]


def _times(it: Mapping[str, Any]) -> list[str]:
    return [f"{it[key]:.2f}" for key in ("median_s", "min_s", "max_s")]


def _figures(it: Mapping[str, Any]) -> list[str]:
    return [*_times(it), f"{it['cpu_median_s']:.2f}", f"{it['peak_bytes'] / GB:.2f}"]


def _counts_table(counts: Mapping[str, Counts]) -> list[str]:
    tables = sorted({table for of in counts.values() for table in of if not table.startswith("ops.")})
    shown = [[table, *[f"{of[table]:,}" if table in of else "" for of in counts.values()]] for table in tables]
    if not shown:
        return []
    note = "Only icefield checks: the others keep rows that it quarantines (DuckDB and dbt drop the malformed ones)."
    return [note, "", *table(["rows", *counts], shown)]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
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
