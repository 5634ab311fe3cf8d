"""What the benchmark of streams found, as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from report import GB, machine_text, table

from latency.contestants import ICEFIELD, STREAMING

#: A third of the measured time may take so many times as long as the first third.
GROWTH = 1.3
MOST_GROWTH = 1.3
HOW = (
    "Seconds from the moment at which a reading is sent to Kafka to the moment at which a reader in another process "
    "has read the row of `metrics.sensor_minutes` that it is part of. The reader asks the SQL catalog for the table "
    "fifty times a second and reads the last minutes with PyIceberg; the time that this takes is part of the latency. "
    "One contestant after the other, on the same broker and with the same stream: {rate:,.0f} readings a second of 100 "
    "sensors, 2 % of them up to ten minutes late, 1 % sent again, 0.5 % malformed. The first {warm:.0f} s, with the "
    "start of everything, are not counted; the following {seconds:.0f} s are. All readings in time count. Late ones "
    "are checked in the end: the table is then compared with what all readings give."
)
WHO = (
    f"{ICEFIELD} runs the sensors project as it is: it also stores every reading, sets malformed ones aside, checks "
    "all tables, keeps `metrics.sensor_status`, looks after storage, and publishes all of this by one commit. "
    f"{STREAMING} only keeps the minutes: deduplication and windows in its state with a watermark of 15 minutes, "
    "update mode, one MERGE a batch, batches without a pause (`bench/latency/structured_streaming.py`). Nobody looks "
    "after its table here."
)
CPU = (
    "CPU is that of the contestant's processes in the measured time, on all cores; load is the machine's load average "
    "at the beginning and at the end of it."
)
FLAT = (
    "{runs} runs of one warm process over {rows:,} new readings each (`bench/watch_flat.py`), upkeep in between "
    "({times} times, {seconds:.1f} s in all). Files, manifests, snapshots and metadata: the most that any table had "
    "after any of these runs; files and run folders: of the whole lake, those of versions that stay readable included."
)


def held(results: Mapping[str, Any]) -> list[tuple[str, str, str, bool]]:
    """What is promised, what was found, and whether it holds."""
    found = []
    for turn in results.get("latency", {}).get("turns", {}).get(ICEFIELD, ()):
        value = growth(turn["median_of_slices_s"])
        found.append(
            (
                "lag does not grow: last third against the first",
                f"at most {GROWTH} times",
                f"{value:.2f} times",
                value <= GROWTH,
            )
        )
    if it := results.get("flat"):
        limit = f"at most {MOST_GROWTH} times"
        told = f"seconds a run, the last 30 of {it['runs']} runs against the first 30"
        found.append((told, limit, f"{it['ratio']:.2f} times", it["ratio"] <= MOST_GROWTH))
    return found


def growth(slices: Sequence[float]) -> float:
    """The median of the last third of the slices against that of the first."""
    third = max(1, len(slices) // 3)
    return statistics.median(slices[-third:]) / statistics.median(slices[:third])


def doubts(results: Mapping[str, Any]) -> list[str]:
    """What cannot be right."""
    found = []
    for name, turns in results.get("latency", {}).get("turns", {}).items():
        for turn in turns:
            if not turn["right"]:
                found.append(f"the table of {name} is not what the readings give")
            if turn["readings"] != turn["sent"]:
                found.append(f"{name}: {turn['readings']:,} of {turn['sent']:,} readings were seen")
    if results.get("flat") and not results["flat"]["right"]:
        found.append("after all runs, the tables are not what the files give")
    return found


def markdown(results: Mapping[str, Any]) -> str:
    """The results for a reader."""
    lines = [f"# Latency of a stream, {results['date']}", "", machine_text(results["machine"]), ""]
    if note := results.get("note"):
        lines += [note, ""]
    if "latency" in results:
        lines += _latency(results["latency"])
    if "flat" in results:
        lines += _flat(results["flat"])
    rows = [[what, limit, seen, "held" if ok else "**not held**"] for what, limit, seen, ok in held(results)]
    lines += table(["held to", "limit", "found", ""], rows)
    lines += [f"- **{doubt}**" for doubt in doubts(results)]
    return "\n".join(lines).rstrip() + "\n"


def _latency(found: Mapping[str, Any]) -> list[str]:
    told = HOW.format(rate=found["rate"], warm=found["warm_s"], seconds=found["seconds"])
    header = ["seconds to be seen", "median", "95 %", "most", "runs or batches", "s each", "CPU s", "peak GB", "load"]
    rows, curves = [], []
    for name, turns in found["turns"].items():
        for turn in turns:
            runs = [run for run in turn["runs"] if run["seconds"]]
            each = statistics.median(run["seconds"] for run in runs[-turn["versions_seen"] :] or runs)
            rows.append(
                [
                    name,
                    *[f"{turn[key]:.2f}" for key in ("median_s", "p95_s", "most_s")],
                    str(turn["versions_seen"]),
                    f"{each:.2f}",
                    f"{turn['cpu_s']:.0f}",
                    f"{turn['peak_bytes'] / GB:.2f}",
                    " to ".join(f"{load:.1f}" for load in turn["load"]),
                ]
            )
            curves.append([name, " ".join(f"{value:.1f}" for value in turn["median_of_slices_s"])])
    return [
        told,
        "",
        WHO,
        "",
        *table(header, rows),
        *table(["median of every ten seconds", "s"], curves),
        CPU,
        "",
    ]


def _flat(found: Mapping[str, Any]) -> list[str]:
    header = [
        "runs",
        "median s",
        "data and delete files",
        "manifests",
        "snapshots",
        "metadata kB",
        "files",
        "run folders",
    ]
    rows = []
    for number, part in enumerate(found["parts"]):
        rows.append(
            [
                f"{30 * number + 6} to {30 * number + 35}",
                f"{part['median_s']:.2f}",
                *[str(part[key]) for key in ("files", "manifests", "snapshots")],
                f"{part['metadata_bytes'] / 1000:.0f}",
                str(part["stored_files"]),
                str(part["run_folders"]),
            ]
        )
    return [
        FLAT.format(runs=found["runs"], rows=found["rows"], **found["upkeep"]),
        "",
        *table(header, rows),
    ]
