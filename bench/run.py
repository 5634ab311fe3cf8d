"""`make bench`: the reference project against peers that build the same tables, its small commands, its start, streams.

    python bench/run.py [--rows 3800000] [--days 90] [--repeat 5] [--quick-repeat 7] [--rebuild-repeat N]
                        [--only PART ...] [--who NAME ...]
    python bench/run.py --against COMMIT                # beside a checkout of another commit, taking turns
    python bench/run.py --only latency [--rate 2000] [--seconds 120] [--warm 60] [--turns 1] [--runs 300]

Results go to bench/results/<date>-<rows>.json and .md, those of streams to <date>-latency.json and .md. Everything else
is made in a temporary folder and removed, but for dbt's environment, which stays in .bench-venv.
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

import against
import latency.bench
import latency.report
import report
import startup
from contestants import (
    DBT,
    DUCKDB,
    HANDWRITTEN,
    ICEFIELD,
    NICKNAMES,
    POLARS,
    Contestant,
    Counts,
    contestants,
    dbt_versions,
    generate,
    icefield,
    install_dbt,
    land,
)
from measure import CommandFailed, Measured, measure
from report import DAY, FEW, FEW_ROWS, FULL, NOTHING

from icefield.engine.session.jars import ensure_jars
from icefield.engine.session.java import find_java

BENCH = Path(__file__).parent
RESULTS = BENCH / "results"
LATENCY = "latency"
PARTS = ("startup", "full", "nothing", "day", "warm", "commands", LATENCY)
#: How many readings a second are sent; a run of the watcher finds about those of two seconds.
STREAM_RATE, RUN_SECONDS = 2_000, 2
# Those of one row take turns, so that a machine that becomes slower or faster meanwhile does so for all of them.
TURNS = ((ICEFIELD, HANDWRITTEN), (DUCKDB, DBT, POLARS))
START_PAIRS = 7
WARM_UP = ("--rows", "3800", "--days", "3")


@dataclass(slots=True, kw_only=True)
class Bench:
    """One benchmark in its temporary folder."""

    work: Path
    environment: dict[str, str]
    everyone: dict[str, Contestant]
    measures: dict[str, dict[str, list[Measured]]] = field(default_factory=dict)
    warm: dict[str, list[float]] = field(default_factory=dict)
    #: Few rows in a warm process, whatever a day has.
    warm_few: list[float] = field(default_factory=list)
    commands: dict[str, list[Measured]] = field(default_factory=dict)
    counts: dict[str, Counts] = field(default_factory=dict)
    landed: Counts = field(default_factory=dict)
    rows_a_day: int = 0

    @property
    def landing(self) -> Path:
        return self.work / "landing"

    def generate(self, rows: int, days: int) -> None:
        """The landing data, once for all."""
        say(f"generating {rows:,} rows in {days} days")
        self.rows_a_day = rows // days
        self._generate(self.landing, "--rows", str(rows), "--days", str(days))

    def warm_up(self) -> None:
        """Everyone once on little data: jars and libraries in the page cache, Python compiled, classes archived."""
        say("warming up")
        little = self.work / "little"
        self._generate(little, *WARM_UP)
        for contestant in self.everyone.values():
            # icefield records its class archive in one start and has it from the next one on.
            for _ in range(2 if contestant.name == ICEFIELD else 1):
                self._build(contestant, little)

    def build_full(self, repeat: int) -> None:
        """Every contestant from nothing."""
        for row in TURNS:
            taking_part = [self.everyone[name] for name in row if name in self.everyone]
            for _ in range(repeat):
                for contestant in taking_part:
                    self._note(FULL, contestant, self._build(contestant, self.landing))
        self._count()

    def run_nothing(self, repeat: int) -> None:
        """A run with nothing new, of those that can tell that there is nothing."""
        for _ in range(repeat):
            for contestant in self.everyone.values():
                if contestant.incremental:
                    self._note(NOTHING, contestant, self._run(contestant))

    def run_day(self, repeat: int, rebuild: int) -> None:
        """One more day each time; those that are not incremental build all anew, in the last of the turns."""
        for turn in range(repeat):
            self._generate(self.landing, "--append", "--days", "1")
            for contestant in self.everyone.values():
                if not contestant.incremental and turn < repeat - rebuild:
                    continue
                land(self.landing, self._place(contestant))
                contestant.clear(self._place(contestant))
                measured = self._run(contestant)
                self._note(DAY, contestant, measured)
                if NOTHING in self.measures and not contestant.incremental:
                    self._note(NOTHING, contestant, measured)  # the same work, so it is not done twice
        self._count()

    def run_warm(self, repeat: int, rebuild: int) -> None:
        """One more day each time, all in one process, so that every run but the first finds its process warm."""
        days = [self._more(self.work / "days" / str(number)) for number in range(repeat + 1)]
        for contestant in self.everyone.values():
            if not contestant.incremental:
                for day in days[: repeat - rebuild]:
                    land(day, self._place(contestant))
            taken = days if contestant.incremental else days[repeat - rebuild :]
            self.warm[contestant.name] = self._warm(contestant, taken)
            say(f"{DAY}, {contestant.name}, warm: {self.warm[contestant.name]} s")
        self._count()
        if ICEFIELD in self.everyone and self.rows_a_day != FEW_ROWS:
            few = [self._more(self.work / "few" / str(number), FEW_ROWS) for number in range(repeat + 1)]
            self.warm_few = self._warm(self.everyone[ICEFIELD], few)
            say(f"{FEW}, {ICEFIELD}, warm: {self.warm_few} s")

    def _warm(self, contestant: Contestant, folders: Sequence[Path]) -> list[float]:
        """The seconds of each run but the first, which is cold."""
        output = self.work / "output" / f"{contestant.nickname}-warm.json"
        place = self._place(contestant)
        command = [contestant.python, str(BENCH / "warm.py"), contestant.nickname, str(output), str(place)]
        self._measure(f"{contestant.nickname}-warm", [*command, *map(str, folders)])
        seconds: list[float] = json.loads(output.read_text(encoding="utf-8"))
        return seconds[1:]

    def run_commands(self, repeat: int) -> None:
        """Small commands of icefield on the lake that is there, and few rows whatever a day has."""
        project = self._place(self.everyone[ICEFIELD])
        self._measure("ls", icefield("ls", "-p", str(project)))
        for name, command in {"ls": icefield("ls", "-p", str(project)), "--help": icefield("--help")}.items():
            for _ in range(repeat):
                self._note_command(name, self._measure(name, command))
        for _ in range(repeat if self.rows_a_day != FEW_ROWS else 0):
            self._generate(self.landing, "--append", "--days", "1", "--rows", str(FEW_ROWS))
            land(self.landing, project)
            self._note_command(FEW, self._run(self.everyone[ICEFIELD]))

    def _more(self, folder: Path, rows: int | None = None) -> Path:
        """One more day, of as many rows as usual or as said, in a folder of its own besides."""
        before = set(self.landing.glob("*/*.csv"))
        self._generate(self.landing, "--append", "--days", "1", *([] if rows is None else ["--rows", str(rows)]))
        for file in set(self.landing.glob("*/*.csv")) - before:
            (folder / file.parent.name).mkdir(parents=True, exist_ok=True)
            os.link(file, folder / file.parent.name / file.name)
        return folder

    def _count(self) -> None:
        """What everyone has, at a moment when everyone has taken in all that has landed."""
        manifest = json.loads((self.landing / "manifest.json").read_text(encoding="utf-8"))
        feeds = manifest["feeds"].items()
        self.landed = {f"bronze.{feed}": sum(day["rows"] for day in days.values()) for feed, days in feeds}
        self.counts = {name: it.counts(self._place(it)) for name, it in self.everyone.items()}

    def _generate(self, out: Path, *arguments: str) -> None:
        subprocess.run(generate(out, *arguments), check=True, capture_output=True, env=self.environment)

    def _place(self, contestant: Contestant) -> Path:
        return self.work / contestant.nickname

    def _build(self, contestant: Contestant, landing: Path) -> Measured:
        contestant.prepare(landing, self._place(contestant))
        return self._run(contestant)

    def _run(self, contestant: Contestant) -> Measured:
        place = self._place(contestant)
        read(place / "landing")
        return self._measure(contestant.nickname, contestant.command(place))

    def _measure(self, name: str, command: Sequence[str]) -> Measured:
        # What an earlier command wrote must not be written back to disk on the time of this one.
        os.sync()
        return measure(command, output=self.work / "output" / f"{name}.txt", environment=self.environment)

    def _note(self, what: str, contestant: Contestant, measured: Measured) -> None:
        self.measures.setdefault(what, {}).setdefault(contestant.name, []).append(measured)
        say(f"{what}, {contestant.name}: {told(measured)}")

    def _note_command(self, name: str, measured: Measured) -> None:
        self.commands.setdefault(name, []).append(measured)
        say(f"{name}: {told(measured)}")


def read(folder: Path) -> None:
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
    parser = argparse.ArgumentParser(description="Measure icefield against its peers.")
    parser.add_argument("--rows", type=int, default=3_800_000, help="rows landed, over all feeds and days")
    parser.add_argument("--days", type=int, default=90, help="days of landed files")
    parser.add_argument("--repeat", type=int, default=5, help="times that everyone builds all tables")
    parser.add_argument("--quick-repeat", type=int, default=7, help="times of everything else but the start")
    parser.add_argument("--rebuild-repeat", type=int, help="of these, how often those that build all anew take part")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="what is measured")
    parser.add_argument("--who", nargs="+", choices=NICKNAMES, default=list(NICKNAMES), help="who takes part")
    parser.add_argument("--rate", type=int, default=STREAM_RATE, help="latency: readings a second")
    parser.add_argument("--seconds", type=float, default=120, help="latency: how long it is measured")
    parser.add_argument("--warm", type=float, default=60, help="latency: how long everyone may warm up before")
    parser.add_argument("--turns", type=int, default=1, help="latency: how often everyone is measured")
    parser.add_argument("--runs", type=int, default=300, help="latency: runs of one process, 0 for none")
    parser.add_argument("--note", default="", help="latency: a sentence for the results")
    parser.add_argument("--against", metavar="COMMIT", help="measure this tree beside another commit of it instead")
    parser.add_argument("--work", type=Path, help="where the temporary folder is made (default: the system's)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the results are written")
    asked = parser.parse_args(argv)
    if asked.rebuild_repeat is None:
        asked.rebuild_repeat = asked.quick_repeat
    if asked.repeat < 1 or not 1 <= asked.rebuild_repeat <= asked.quick_repeat:
        parser.error(
            "--repeat, --quick-repeat and --rebuild-repeat must be at least 1, and the last not above the second"
        )
    return asked


def run(asked: argparse.Namespace) -> dict[str, Any]:
    """All that is asked for; returns what is written to the results."""
    java = find_java()
    # Everyone on the Java that icefield chooses.
    environment = {**os.environ, "JAVA_HOME": str(java.home)}
    chosen = [NICKNAMES[name] for name in asked.who]
    results: dict[str, Any] = {"date": date.today().isoformat(), "machine": report.machine(java.executable)}
    if DBT in chosen:
        install_dbt()
        results["machine"]["packages"] |= dbt_versions()
    if "startup" in asked.only:
        say(f"starting sessions, {START_PAIRS} pairs")
        results["startup"] = startup.summary(startup.pairs(START_PAIRS, environment))
    if set(asked.only) - {"startup", LATENCY}:
        with temporary(asked.work) as work:
            bench = Bench(work=work, environment=environment, everyone=contestants(chosen, ensure_jars()))
            results |= run_parts(bench, asked)
    return results


def run_latency(asked: argparse.Namespace) -> dict[str, Any]:
    """How long a stream's events take, and whether that stays so."""
    results = {"date": date.today().isoformat(), "machine": report.machine(find_java().executable), "note": asked.note}
    with temporary(asked.work) as work:
        if asked.turns:
            results["latency"] = latency.bench.latency(
                work, rate=asked.rate, warm=asked.warm, seconds=asked.seconds, turns=asked.turns
            )
        if asked.runs:
            results["flat"] = latency.bench.flat(work, asked.runs, asked.rate * RUN_SECONDS)
    return results


def run_parts(bench: Bench, asked: argparse.Namespace) -> dict[str, Any]:
    """The parts that work on landed data, in such an order that all have the same files whenever rows are counted."""
    bench.generate(asked.rows, asked.days)
    bench.warm_up()
    # The other parts need a build, too, if only one.
    bench.build_full(asked.repeat if "full" in asked.only else 1)
    if "nothing" in asked.only:
        bench.run_nothing(asked.quick_repeat)
    if "day" in asked.only:
        bench.run_day(asked.quick_repeat, asked.rebuild_repeat)
    if "warm" in asked.only:
        bench.run_warm(asked.quick_repeat, asked.rebuild_repeat)
    if "commands" in asked.only and ICEFIELD in bench.everyone:
        bench.run_commands(asked.quick_repeat)
    return {
        "data": {"rows": asked.rows, "days": asked.days, "landed": bench.landed},
        "measures": {
            what: {name: report.summary(runs) for name, runs in of.items()} for what, of in bench.measures.items()
        },
        "warm": {name: report.spread(seconds) for name, seconds in bench.warm.items()},
        "warm_few": report.spread(bench.warm_few) if bench.warm_few else {},
        "commands": {name: report.summary(runs) for name, runs in bench.commands.items()},
        "rebuilding": [name for name, contestant in bench.everyone.items() if not contestant.incremental],
        "ratios": report.ratios(bench.measures, bench.warm),
        "counts": bench.counts,
        "doubts": report.doubts(bench.counts, bench.landed),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """0 when all was measured and the tables agree, 1 when something cannot be right."""
    asked = arguments(argv)
    # Told to end, it ends what it started and removes its folder, as on Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if asked.against:
        with temporary(asked.work) as work:
            results = against.compare(asked.against, work, asked.rows, asked.days, asked.repeat, asked.only)
        print(against.written(results, asked.results))
        return 0
    written: list[str] = []
    doubts: list[str] = []
    try:
        if LATENCY in asked.only:
            results = run_latency(asked)
            written += [write(asked, results, LATENCY, latency.report.markdown(results))]
            doubts = latency.report.doubts(results)
        if set(asked.only) != {LATENCY}:
            results = run(asked)
            name = str(asked.rows) if "data" in results else "startup"
            written += [write(asked, results, name, report.markdown(results))]
            doubts += results.get("doubts", ())
    except CommandFailed as error:
        say(f"bench: {error}")
        return 1
    except KeyboardInterrupt:
        say("bench: stopped")
        return 130
    print("\n".join(written))
    return 1 if doubts else 0


def write(asked: argparse.Namespace, results: dict[str, Any], name: str, text: str) -> str:
    """Writes results as JSON and as text, which it returns."""
    asked.results.mkdir(parents=True, exist_ok=True)
    place = asked.results / f"{results['date']}-{name}"
    place.with_name(f"{place.name}.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    place.with_name(f"{place.name}.md").write_text(text, encoding="utf-8")
    return text


if __name__ == "__main__":
    sys.exit(main())
