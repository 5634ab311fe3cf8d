"""Lets one contestant take in one folder of new files after the other, all in one process; writes the seconds of each.

    python bench/warm.py NICKNAME OUTPUT.json PLACE FOLDER ...

Each keeps between its runs what its user would keep: icefield and PySpark their session, dbt its parsed project.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contestants import land

# They write where nothing is; PySpark replaces the tables of its open catalog.
REMOVED_BEFORE = ("duckdb", "polars")


def icefield(place: Path) -> None:
    from icefield import Lake

    result = Lake(place).run()
    if not result.ok:
        sys.exit(result.error)


def pyspark(place: Path) -> None:
    import handwritten_pyspark

    from icefield.engine.session.jars import ensure_jars

    # The builder hands over the session that there is.
    spark = handwritten_pyspark.session(place / "tables", [str(jar) for jar in ensure_jars()])
    handwritten_pyspark.build(spark, place / "landing")


def duckdb(place: Path) -> None:
    import duckdb_script

    duckdb_script.main(place / "landing", place / "tables")


def polars(place: Path) -> None:
    import polars_pyiceberg

    polars_pyiceberg.main(place / "landing", place / "tables")


@functools.cache
def parsed_project() -> Any:
    from dbt.cli.main import dbtRunner

    return dbtRunner().invoke(["parse"]).result


def dbt(place: Path) -> None:
    from dbt.cli.main import dbtRunner

    os.chdir(place)
    result = dbtRunner(manifest=parsed_project()).invoke(["run"])
    if not result.success:
        sys.exit(str(result.exception or result.result))


RUNS: dict[str, Callable[[Path], None]] = {run.__name__: run for run in (icefield, pyspark, duckdb, dbt, polars)}


def main(nickname: str, output: Path, place: Path, folders: list[Path]) -> None:
    seconds = []
    for folder in folders:
        land(folder, place)
        if nickname in REMOVED_BEFORE:
            shutil.rmtree(place / "tables", ignore_errors=True)
        os.sync()
        begun = time.perf_counter()
        RUNS[nickname](place)
        seconds.append(round(time.perf_counter() - begun, 3))
    output.write_text(json.dumps(seconds), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), [Path(name) for name in sys.argv[4:]])
