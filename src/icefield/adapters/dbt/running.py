"""Runs dbt, in its own environment, to compile a project for icefield."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from icefield.adapters.dbt.compiled import Compiled, digests
from icefield.adapters.dbt.manifest import Answer, convert, files_of
from icefield.errors import DbtFailed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

#: Which dbt is meant, where no option says it.
VARIABLE = "ICEFIELD_DBT"
PROJECT_FILE = "dbt_project.yml"
#: Adapters of dbt that write Spark's SQL.
SPARK = ("spark", "databricks")
_DRIVER = Path(__file__).with_name("driver.py")


def compile_project(folder: Path, *, dbt: str = "", options: Sequence[str] = ()) -> Compiled:
    """What icefield takes of a dbt project, compiled as a full refresh by the dbt that is asked for."""
    project = find_project(folder)
    python = find_python(dbt)
    with tempfile.TemporaryDirectory(prefix="icefield-dbt-") as output:
        _drive(python, project, output, options)
        manifest = json.loads(Path(output, "manifest.json").read_text(encoding="utf-8"))
        told = json.loads(Path(output, "answer.json").read_text(encoding="utf-8"))
    return _converted(project, manifest, Answer(errors=told["errors"], seeds=told["seeds"]))


def read_manifest(folder: Path, file: Path) -> Compiled:
    """The same from a manifest that dbt has written already, by `dbt compile --full-refresh`."""
    project = find_project(folder)
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        _require_full_refresh(manifest, file)
        return _converted(project, manifest, Answer())
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise DbtFailed(
            f"{file} is not a manifest that dbt compiled: {problem}",
            where=str(file),
            remedy="write it with `dbt compile --full-refresh`, or let icefield do so: leave out --manifest",
        ) from None


def find_project(folder: Path) -> Path:
    """The folder of a dbt project."""
    if not (folder / PROJECT_FILE).is_file():
        raise DbtFailed(
            f"there is no {PROJECT_FILE} in {folder}",
            where=str(folder),
            remedy="name the folder of the dbt project",
        )
    return folder.resolve()


def find_python(dbt: str = "") -> Path:
    """The Python of the environment that dbt is installed in."""
    given = dbt or os.environ.get(VARIABLE, "") or _nearest()
    path = Path(given).expanduser().absolute() if given else None
    if path is not None and path.is_dir():
        path = (path if (path / "python").exists() else path / "bin") / "python"
    elif path is not None and not path.name.startswith("python"):
        path = path.resolve().with_name("python")  # a command such as ~/.local/bin/dbt links into its environment
    if path is None or not path.is_file():
        raise DbtFailed(
            f"{given} is not in an environment of dbt" if given else "dbt is not installed where icefield can find it",
            remedy=f"name it with --dbt PATH or {VARIABLE}=PATH (the command, or the folder of its environment), or"
            " install it here: pip install 'icefield[dbt]'",
        )
    return path


def _nearest() -> str:
    beside = Path(sys.executable).with_name("dbt")
    return str(beside) if beside.exists() else shutil.which("dbt") or ""


def _drive(python: Path, project: Path, output: str, options: Sequence[str]) -> None:
    command = [str(python), "-", str(project), output, *options]
    quiet = {"DO_NOT_TRACK": "1", "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}
    try:
        done = subprocess.run(
            command,
            input=_DRIVER.read_text(encoding="utf-8"),
            cwd=output,
            env={**os.environ, **quiet},
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as problem:
        raise DbtFailed(f"{python} cannot be started: {problem.strerror}", remedy="name dbt with --dbt PATH") from None
    if done.returncode:
        raise DbtFailed(
            f"dbt cannot compile the project: {_last(done.stderr) or _last(done.stdout)}",
            where=str(project / PROJECT_FILE),
            remedy=_remedy(done.stderr),
        )


def _last(text: str) -> str:
    """What dbt has to say: the end of it, on one line."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return " ".join(lines[-6:])[-600:]


def _remedy(told: str) -> str:
    if "No module named" in told or "Could not find adapter" in told:
        return "install what is missing in dbt's environment: pip install dbt-core dbt-spark pyspark"
    if "dbt deps" in told:
        return "run `dbt deps` in the dbt project"
    return "make `dbt parse` work in the dbt project"


def _converted(project: Path, manifest: Mapping[str, Any], answer: Answer) -> Compiled:
    adapter = manifest["metadata"]["adapter_type"]
    if adapter not in SPARK:
        raise DbtFailed(
            f"the project is compiled for {adapter}, but icefield runs Spark's SQL",
            where=str(project / PROJECT_FILE),
            remedy="compile it for a target of dbt-spark; without --target, icefield has one of its own",
        )
    return replace(convert(manifest, answer), files=digests(project, files_of(manifest)))


def _require_full_refresh(manifest: Mapping[str, Any], file: Path) -> None:
    """An incremental model that was compiled for an existing table has only the query for new rows."""
    incremental = [n for n in manifest["nodes"].values() if n["config"].get("materialized") == "incremental"]
    if not incremental:
        return
    results = json.loads(file.with_name("run_results.json").read_text(encoding="utf-8"))
    if results["metadata"]["invocation_id"] != manifest["metadata"]["invocation_id"]:
        raise ValueError("run_results.json beside it is of another command, so it may hold queries for new rows only")
    if not results["args"].get("full_refresh"):
        raise ValueError("it was compiled without --full-refresh, so it holds queries for new rows only")
