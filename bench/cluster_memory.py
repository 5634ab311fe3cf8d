"""What the driver holds while a cluster builds the e-commerce lakehouse: peak memory of its Python and of its Java.

    python bench/cluster_memory.py [--rows 380000 3800000] [--days 90] [--dirty SHARE] [--work DIR]

The cluster is a master and two workers of one core each on this machine, on a shared folder; executors are processes of
the workers and are not counted. Java's heap grows as it likes up to its limit, so what it holds is asked after the
build as well: the objects that are left when it has collected its garbage. The result goes to bench/results.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from contestants import PROJECT, generate
from measure import processes
from report import machine

from icefield.engine.session.java import find_java
from run import RESULTS, say, temporary

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from clusters import standalone  # type: ignore[import-not-found]

MB = 1 << 20
SETTINGS = '"spark.driver.host" = "127.0.0.1"\n"spark.executor.memory" = "1g"\n'
#: One run in this process, and then what Java still holds.
SCRIPT = """
import sys
from icefield.project import open_project
from icefield.run.request import RunRequest
from icefield.run.runner import run_project
result = run_project(open_project(sys.argv[1]), RunRequest())
if not result.ok:
    sys.exit(str(result.error))
from pyspark.sql import SparkSession
jvm = SparkSession.getActiveSession() or SparkSession._instantiatedSession
runtime = jvm._jvm.java.lang.Runtime.getRuntime()
runtime.gc()
print("java holds", runtime.totalMemory() - runtime.freeMemory())
print("rejected", sum(one.rows_quarantined + one.rows_dropped for one in result.tables))
"""


def prepared(work: Path, rows: int, arguments: Sequence[str], address: str) -> Path:
    """The project on a shared folder, with a cluster for its Spark, and its landed files."""
    place = work / f"rows-{rows}"
    place.mkdir()
    for file in PROJECT.iterdir():
        if file.is_file():
            (place / file.name).write_bytes(file.read_bytes())
    toml = place / "icefield.toml"
    text = toml.read_text(encoding="utf-8").replace('lake = "lake"\n', 'lake = "lake"\nshared = true\n')
    settings = f'[profile.local.spark]\n"spark.master" = "{address}"\n{SETTINGS}'
    toml.write_text(text.replace("[profile.local.spark]\n", settings), encoding="utf-8")
    subprocess.run(generate(place / "landing", "--rows", str(rows), *arguments), check=True, capture_output=True)
    return place


class Peaks(threading.Thread):
    """The most memory that a process and its Java ever had, as the kernel remembers it."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.python = self.java = 0
        self.start()

    def run(self) -> None:
        """Looks until the process is gone."""
        while Path(f"/proc/{self.pid}").exists():
            self.python = max(self.python, _peak(self.pid))
            children = [pid for pid, it in processes().items() if it.parent == self.pid and it.name == "java"]
            self.java = max([self.java, *map(_peak, children)])
            time.sleep(0.1)


def _peak(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:  # it has ended
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def measured(place: Path) -> dict[str, Any]:
    """One first build."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(place)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    peaks = Peaks(process.pid)
    output, _ = process.communicate()
    peaks.join()
    if process.returncode:
        sys.exit(output[-3000:])
    told = dict(line.rsplit(" ", 1) for line in output.splitlines() if line.startswith(("java holds", "rejected")))
    return {
        "seconds": round(time.perf_counter() - begun, 1),
        "python_peak_mb": round(peaks.python / MB),
        "java_peak_mb": round(peaks.java / MB),
        "java_holds_mb": round(int(told["java holds"]) / MB),
        "rejected_rows": int(told["rejected"]),
        "landed_mb": round(sum(file.stat().st_size for file in place.glob("landing/*/*.csv")) / MB),
    }


def main() -> int:
    """Builds of each size on one cluster, one after the other."""
    parser = argparse.ArgumentParser(description="Measure what the driver of a cluster holds.")
    parser.add_argument("--rows", type=int, nargs="+", default=[380_000, 3_800_000])
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--dirty", type=float, help="the share of rows that are to be rejected, of each kind")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--results", type=Path, default=RESULTS)
    asked = parser.parse_args()
    more = [] if asked.dirty is None else ["--dirty", str(asked.dirty)]
    found = {}
    with temporary(asked.work) as work:
        (work / "cluster").mkdir()
        with standalone(work / "cluster") as address:
            for rows in asked.rows:
                place = prepared(work, rows, ["--days", str(asked.days), *more], address)
                found[str(rows)] = measured(place)
                say(f"{rows:,} rows: {found[str(rows)]}")
    results = {
        "date": date.today().isoformat(),
        "machine": machine(find_java().executable),
        "days": asked.days,
        "dirty": asked.dirty,
        "builds": found,
    }
    text = json.dumps(results, indent=1)
    of = "-dirty" if asked.dirty else ""
    name = f"{results['date']}-cluster-memory{of}-{results['machine']['commit'][:7]}.json"
    (asked.results / name).write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    sys.exit(main())
