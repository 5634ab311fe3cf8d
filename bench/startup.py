"""How long a Spark session takes to be ready: icefield's against a plain `SparkSession.builder` with the same jars.

    python bench/startup.py plain|icefield BEGUN

One start, in a process of its own: prints, in seconds since BEGUN (of the machine's monotonic clock), when the session
was there and when it had answered a first query. The plain one has the same jars, master, heap and extensions, and
else Spark's defaults.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAIN, OURS = "plain", "icefield"
MOST = 0.65
MASTER = "local[*]"
Starts = dict[str, list[dict[str, float]]]


def pairs(count: int, environment: Mapping[str, str]) -> Starts:
    """Alternating starts of both, after one of each that is not counted."""
    found: Starts = {PLAIN: [], OURS: []}
    for turn in range(count + 1):
        for which, starts in found.items():
            one = _measured(which, environment)
            if turn:
                starts.append(one)
    return found


def summary(starts: Starts) -> dict[str, Any]:
    """Medians of both, and how many times as long as the plain one ours took."""
    medians = {which: _medians(of) for which, of in starts.items()}
    ratios = {moment: round(medians[OURS][moment] / medians[PLAIN][moment], 3) for moment in medians[PLAIN]}
    return {"medians_s": medians, "ratios": ratios, "starts": starts}


def _medians(starts: list[dict[str, float]]) -> dict[str, float]:
    return {moment: round(statistics.median(one[moment] for one in starts), 3) for moment in starts[0]}


def _measured(which: str, environment: Mapping[str, str]) -> dict[str, float]:
    command = [sys.executable, __file__, which, repr(time.monotonic())]
    ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    told: dict[str, float] = json.loads(ended.stdout)
    return told


def _start_plain(scratch: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    from icefield.engine.session.jars import ensure_jars
    from icefield.engine.session.spark import HEAP, ICEBERG_EXTENSIONS

    builder = SparkSession.Builder().master(MASTER).config("spark.driver.memory", HEAP)
    builder = builder.config("spark.driver.extraClassPath", ":".join(map(str, ensure_jars())))
    builder = builder.config("spark.sql.extensions", ICEBERG_EXTENSIONS)
    return builder.config("spark.sql.warehouse.dir", str(scratch)).getOrCreate()


def _start_ours(scratch: Path) -> SparkSession:
    from icefield.engine.session.spark import start_session

    return start_session(app=OURS, conf={"spark.master": MASTER}, log=scratch / "spark.log", effort="least")


def _one_start(start: Callable[[Path], SparkSession], begun: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="icefield-startup-") as scratch:
        spark = start(Path(scratch))
        there = time.monotonic() - begun
        spark.range(1).count()
        return {"session there": round(there, 3), "first answer": round(time.monotonic() - begun, 3)}


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    chosen = {PLAIN: _start_plain, OURS: _start_ours}[sys.argv[1]]
    print(json.dumps(_one_start(chosen, float(sys.argv[2]))))
