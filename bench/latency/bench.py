"""Measures how long it takes from an event that is sent to a row that another process can read, and whether that lasts.

One after the other on one broker, each on a new topic with the same stream: a sender, the contestant, and a reader in
a process of its own. The first seconds, in which everyone starts and warms up, are not counted. In the end the table
has to be what the sent readings give.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from measure import CommandFailed

from latency import figures
from latency.contestants import ICEFIELD, STREAMING, TOPIC, Contestant, Program, icefield, streaming
from latency.reader import pointer

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

EVERYONE = {ICEFIELD: icefield, STREAMING: streaming}
PARTITIONS = 2
#: How long the last readings may take to be seen, and how often that is looked for.
DRAIN_SECONDS, LOOK_SECONDS = 120, 0.2
WARM_RUNS = 5
PART = 30


def latency(work: Path, *, rate: float, warm: float, seconds: float, turns: int) -> dict[str, Any]:
    """Everyone in turns; returns what was found of each turn."""
    from servers import ServiceError, start_kafka

    found: dict[str, list[dict[str, Any]]] = {name: [] for name in EVERYONE}
    try:
        kafka = start_kafka()
    except ServiceError as error:
        raise CommandFailed(str(error)) from error
    with kafka:
        brokers = str(kafka.client()["bootstrap.servers"])
        for turn in range(turns):
            for name, contestant in EVERYONE.items():
                place = work / f"{turn}-{name.replace(' ', '-')}"
                place.mkdir(parents=True)
                with new_topic(brokers):
                    one = _measured(contestant(), brokers, place, rate=rate, warm=warm, seconds=seconds)
                found[name].append(one)
                say(f"{name}: median {one['median_s']} s, 95 % within {one['p95_s']} s, {one['cpu_s']} s of CPU")
    return {"rate": rate, "warm_s": warm, "seconds": seconds, "turns": found}


@contextmanager
def new_topic(brokers: str) -> Iterator[None]:
    """A topic with the broker's clock, as the sensors project wants it; it is gone afterwards."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin: Any = AdminClient({"bootstrap.servers": brokers})
    topic = NewTopic(TOPIC, PARTITIONS, 1, config={"message.timestamp.type": "LogAppendTime"})
    admin.create_topics([topic])[TOPIC].result(30)
    try:
        yield
    finally:
        admin.delete_topics([TOPIC])[TOPIC].result(30)
        until = time.monotonic() + DRAIN_SECONDS
        while TOPIC in admin.list_topics(timeout=10).topics and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)


def _measured(
    contestant: Contestant, brokers: str, place: Path, *, rate: float, warm: float, seconds: float
) -> dict[str, Any]:
    """One contestant, from its start to the last reading that it was sent."""
    sent, seen, lake = place / "sent.csv", place / "seen.jsonl", contestant.lake(place)
    with ExitStack() as running:
        engine = contestant.start(brokers, place)
        running.callback(engine.kill)
        reader = Program.start(
            [str(HERE / "reader.py"), str(lake), contestant.catalog, str(seen)], place / "reader.txt"
        )
        running.callback(reader.kill)
        told = [brokers, TOPIC, str(rate), str(warm + seconds), str(sent)]
        sender = Program.start([str(HERE / "sender.py"), *told], place / "sender.txt")
        running.callback(sender.kill)
        say(f"{contestant.name}: {warm:.0f} s to warm up, {seconds:.0f} s are measured")
        _wait(warm, engine, reader, sender)
        begun, cpu, load = time.time_ns() // 1000, engine.family.cpu_seconds, os.getloadavg()[0]
        _wait(seconds, engine, reader)
        cpu = engine.family.cpu_seconds - cpu
        sender.require_success(60)
        ended = time.time_ns() // 1000
        right = _drained(contestant, lake, sent, engine)
        drained = (time.time_ns() // 1000 - ended) / 1e6
        loads = [round(load, 2), round(os.getloadavg()[0], 2)]
        reader.stop(by=None)
        engine.stop()
        peak = engine.family.peak_bytes
    measured = [one for one in figures.manifest(sent) if begun <= one.at < begun + int(1e6 * seconds)]
    found = figures.looks(seen)
    latencies = figures.seconds_to_be_seen(measured, found)
    recent = [look for look in found if begun <= look.at < begun + int(1e6 * seconds)]
    return {
        **figures.summary(latencies, begun),
        "sent": sum(not one.late for one in measured),
        "versions_seen": len(recent),
        "read_median_s": round(statistics.median(look.read for look in recent), 3) if recent else None,
        "cpu_s": round(cpu, 1),
        "peak_bytes": peak,
        "load": loads,
        "drained_s": round(drained, 2),
        "right": right,
        "runs": contestant.runs(place),
    }


def _wait(seconds: float, *alive: Program) -> None:
    """Lets time pass as long as everyone works."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        for one in alive:
            if one.process.poll() is not None and one.process.returncode != 0:
                one.require_alive()
        time.sleep(min(left, 0.5))


def _drained(contestant: Contestant, lake: Path, sent: Path, engine: Program) -> bool:
    """Waits until the table is what the readings give; False: it does not become that."""
    expected = figures.minutes(figures.manifest(sent))
    until, seen = time.monotonic() + DRAIN_SECONDS, None
    while time.monotonic() < until:
        engine.require_alive()
        at = pointer(lake / "catalog.db", contestant.catalog)
        if at is not None and at != seen and figures.stored(at) == expected:
            return True
        seen = at
        time.sleep(LOOK_SECONDS)
    return False


def flat(work: Path, runs: int, rows: int) -> dict[str, Any]:
    """Hundreds of runs of one warm process: what the last thirty took and left, against the first thirty."""
    say(f"{runs} runs in one process")
    output = work / "flat.json"
    command = [sys.executable, str(HERE.parent / "watch_flat.py"), "--runs", str(runs), "--rows", str(rows)]
    begun = time.monotonic()
    ended = subprocess.run([*command, "--output", str(output)], check=False, stdout=subprocess.PIPE, text=True)
    if ended.returncode != 0:
        raise CommandFailed(f"watch_flat.py failed:\n{ended.stdout[-3000:]}")
    told = json.loads(output.read_text(encoding="utf-8"))
    counted = told["runs"][WARM_RUNS:]
    parts = [counted[start : start + PART] for start in range(0, len(counted), PART)]
    return {
        "runs": runs,
        "rows": rows,
        "seconds": round(time.monotonic() - begun, 1),
        "ratio": round(told["ratio"], 3),
        "right": all(told["right"].values()),
        "upkeep": {"times": len(told["upkeep"]), "seconds": round(sum(told["upkeep"]), 2)},
        "parts": [_part(part) for part in parts if len(part) == PART or len(parts) == 1],
    }


def _part(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Some runs: their median time, and the most of what a table, or the lake, had after one of them."""
    most = {
        key: max(table[key] for run in runs for table in run["tables"].values())
        for key in ("files", "manifests", "snapshots", "metadata_bytes")
    }
    whole = {key: max(run[key] for run in runs) for key in ("stored_files", "run_folders")}
    return {"median_s": round(statistics.median(run["seconds"] for run in runs), 3), **most, **whole}


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)
