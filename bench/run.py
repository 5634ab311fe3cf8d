"""`make bench`: the reference project against scripts that build the same tables by hand, and its small commands.

    python bench/run.py [--rows 3800000] [--days 90] [--repeat 5] [--quick-repeat 7] [--only NAME ...]

Results go to bench/results/<date>-<rows>.json and .md. Everything else is made in a temporary folder and removed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import report
from contestants import (
    DUCKDB,
    HANDWRITTEN,
    ICEFIELD,
    POLARS,
    Contestant,
    Counts,
    contestants,
    generate,
    icefield,
)
from measure import CommandFailed, Measured, measure

from icefield.engine.jars import ensure_jars
from icefield.engine.java import find_java

RESULTS = Path(__file__).parent / "results"
# Alternated in pairs, so that a machine that becomes slower or faster meanwhile does so for both.
PAIRS = ((ICEFIELD, HANDWRITTEN), (DUCKDB, POLARS))
#: A day of the default data: what it costs to take in must not depend on how much is there.
LITTLE_MORE = 3_800_000 // 90
WARM_UP = ("--rows", "3800", "--days", "3")
NICKNAMES = {"icefield": ICEFIELD, "pyspark": HANDWRITTEN, "duckdb": DUCKDB, "polars": POLARS}


@dataclass(slots=True, kw_only=True)
class Bench:
    """One benchmark in its temporary folder."""

    work: Path
    environment: dict[str, str]
    everyone: dict[str, Contestant]
    cold: dict[str, list[Measured]] = field(default_factory=dict)
    quick: dict[str, list[Measured]] = field(default_factory=dict)
    counts: dict[str, Counts] = field(default_factory=dict)
    rows_a_day: int = 0

    @property
    def landing(self) -> Path:
        return self.work / "landing"

    def warm_up(self) -> None:
        """Everyone once on little data: jars and libraries in the page cache, Python compiled, classes archived."""
        say("warming up")
        little = self.work / "little"
        self._generate(little, *WARM_UP)
        for contestant in self.everyone.values():
            # icefield records its class archive in one start and has it from the next one on.
            for _ in range(2 if contestant.name == ICEFIELD else 1):
                self._build(contestant, little, self._place(contestant))

    def build_cold(self, repeat: int) -> None:
        """Every contestant from nothing, in alternating pairs; the last result of each is counted."""
        for pair in PAIRS:
            taking_part = [self.everyone[name] for name in pair if name in self.everyone]
            for turn in range(1, repeat + 1):
                for contestant in taking_part:
                    place = self._place(contestant)
                    measured = self._build(contestant, self.landing, place)
                    self.cold.setdefault(contestant.name, []).append(measured)
                    say(f"{contestant.name}, {turn} of {repeat}: {told(measured)}")
                    self.counts[contestant.name] = contestant.counts(place)

    def run_quick(self, repeat: int) -> None:
        """Commands on a lake that is there: nothing to do, little to do, only to look."""
        project = self._place(self.everyone[ICEFIELD])
        self._measure("icefield ls", icefield("ls", "-p", str(project)))
        for name, command in {
            "nothing new": icefield("run", "-p", str(project)),
            "ls": icefield("ls", "-p", str(project)),
            "--help": icefield("--help"),
        }.items():
            self._repeat(name, command, repeat)
        for _ in range(repeat):
            self._generate(project / "landing", "--append", "--days", "1")
            self._repeat("one more day", icefield("run", "-p", str(project)), 1)
        for _ in range(repeat if self.rows_a_day != LITTLE_MORE else 0):
            self._generate(project / "landing", "--append", "--days", "1", "--rows", str(LITTLE_MORE))
            self._repeat(f"{LITTLE_MORE:,} more rows", icefield("run", "-p", str(project)), 1)
        self._run_warm(project, repeat)

    def _run_warm(self, project: Path, repeat: int) -> None:
        """One more day each, all in one process, so that every one but the first finds a session that is warm."""
        days = [project / f"day-{number}" for number in range(repeat + 1)]
        for day in days:
            shutil.copytree(project / "landing", day, ignore=shutil.ignore_patterns("*.csv"))
            self._generate(project / "landing", "--append", "--days", "1")
            newest = json.loads((project / "landing" / "manifest.json").read_text(encoding="utf-8"))["feeds"]
            for feed, files in newest.items():
                (day / feed).mkdir(exist_ok=True)
                shutil.move(project / "landing" / feed / f"{max(files)}.csv", day / feed)
        output = self.work / "output" / "warm.json"
        command = [sys.executable, str(Path(__file__).parent / "warm.py"), str(project), str(output), *map(str, days)]
        self._measure("one more day, warm session", command)
        for seconds in json.loads(output.read_text(encoding="utf-8"))[1:]:
            measured = Measured(seconds=seconds, cpu_seconds=0.0, peak_bytes=0, lingered=0.0, java=True)
            self.quick.setdefault("one more day, warm session", []).append(measured)
            say(f"one more day, warm session: {seconds:.2f} s")

    def landed(self) -> Counts:
        """Rows of each feed, as the generator tells them."""
        manifest = json.loads((self.landing / "manifest.json").read_text(encoding="utf-8"))
        return {f"bronze.{feed}": sum(day["rows"] for day in days.values()) for feed, days in manifest["feeds"].items()}

    def generate(self, rows: int, days: int) -> None:
        """The landing data, once for all."""
        say(f"generating {rows:,} rows in {days} days")
        self.rows_a_day = rows // days
        self._generate(self.landing, "--rows", str(rows), "--days", str(days))

    def _generate(self, out: Path, *arguments: str) -> None:
        subprocess.run(generate(out, *arguments), check=True, capture_output=True, env=self.environment)

    def _place(self, contestant: Contestant) -> Path:
        return self.work / contestant.name.split()[0].lower()

    def _build(self, contestant: Contestant, landing: Path, place: Path) -> Measured:
        shutil.rmtree(place, ignore_errors=True)
        contestant.prepare(landing, place)
        warm(landing)
        return self._measure(contestant.name, contestant.command(landing, place))

    def _repeat(self, name: str, command: Sequence[str], repeat: int) -> None:
        for _ in range(repeat):
            measured = self._measure(name, command)
            self.quick.setdefault(name, []).append(measured)
            say(f"{name}, {len(self.quick[name])}: {told(measured)}")

    def _measure(self, name: str, command: Sequence[str]) -> Measured:
        # What an earlier command wrote must not be written back to disk on the time of this one.
        os.sync()
        return measure(command, output=self.work / "output" / f"{name}.txt", environment=self.environment)


def warm(folder: Path) -> None:
    """Read every file once, so that nobody waits for the disk."""
    for file in folder.rglob("*.csv"):
        with file.open("rb", buffering=0) as source:
            while source.read(1 << 20):
                pass


def told(measured: Measured) -> str:
    """One measurement in words."""
    after = f", its processes went on for {measured.lingered:.1f} s" if measured.lingered > 1 else ""
    memory = f"{measured.peak_bytes / report.GB:.2f} GB"
    return f"{measured.seconds:.2f} s, {measured.cpu_seconds:.1f} s of CPU, {memory}{after}"


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def temporary(parent: Path | None) -> Iterator[Path]:
    """A folder that is gone afterwards, however it ends."""
    folder = Path(tempfile.mkdtemp(prefix="icefield-bench-", dir=parent)).resolve()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure icefield against hand-written scripts.")
    parser.add_argument("--rows", type=int, default=3_800_000, help="rows landed, over all feeds and days")
    parser.add_argument("--days", type=int, default=90, help="days of landed files")
    parser.add_argument("--repeat", type=int, default=5, help="times that everyone builds all tables")
    parser.add_argument(
        "--quick-repeat", type=int, default=7, help="times of each of icefield's small commands; 0: none"
    )
    parser.add_argument("--only", nargs="+", choices=NICKNAMES, default=list(NICKNAMES), help="who takes part")
    parser.add_argument("--work", type=Path, help="where the temporary folder is made (default: the system's)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the results are written")
    asked = parser.parse_args(argv)
    if asked.repeat < 1 or asked.quick_repeat < 0:
        parser.error("--repeat must be at least 1, and --quick-repeat not negative")
    return asked


def run(asked: argparse.Namespace) -> dict[str, Any]:
    """The whole benchmark; returns what is written to the results."""
    java = find_java()
    # Everyone on the Java that icefield chooses.
    environment = {**os.environ, "JAVA_HOME": str(java.home)}
    facts = report.machine(java.executable)
    everyone = contestants(ensure_jars())
    chosen = {NICKNAMES[name] for name in asked.only}
    with temporary(asked.work) as work:
        bench = Bench(work=work, environment=environment, everyone={n: it for n, it in everyone.items() if n in chosen})
        bench.generate(asked.rows, asked.days)
        bench.warm_up()
        bench.build_cold(asked.repeat)
        if ICEFIELD in chosen and asked.quick_repeat:
            bench.run_quick(asked.quick_repeat)
        return {
            "date": date.today().isoformat(),
            "machine": facts,
            "data": {"rows": asked.rows, "days": asked.days, "landed": bench.landed()},
            "cold": {name: report.summary(runs) for name, runs in bench.cold.items()},
            "ratios": report.cold_ratios(bench.cold),
            "quick": {name: report.summary(runs) for name, runs in bench.quick.items()},
            "counts": bench.counts,
            "doubts": report.doubts(bench.counts, bench.landed()),
        }


def main(argv: Sequence[str] | None = None) -> int:
    """0 when all was measured and the tables agree, 1 when something cannot be right."""
    asked = arguments(argv)
    # Told to end, it ends what it started and removes its folder, as on Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        results = run(asked)
    except CommandFailed as error:
        say(f"bench: {error}")
        return 1
    except KeyboardInterrupt:
        say("bench: stopped")
        return 130
    text = report.markdown(results)
    asked.results.mkdir(parents=True, exist_ok=True)
    name = f"{results['date']}-{asked.rows}"
    (asked.results / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (asked.results / f"{name}.md").write_text(text, encoding="utf-8")
    print(text)
    return 1 if results["doubts"] else 0


if __name__ == "__main__":
    sys.exit(main())
