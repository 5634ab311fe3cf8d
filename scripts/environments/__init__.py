"""Environments for tools that tests and demos run beside icefield: Dagster, Airflow, dbt.

    python = environment("dagster")          # the path of its Python; made once, kept in icefield's cache
    python scripts/environments lock dagster  # resolves NAME.in into NAME.lock again

What a tool needs is in `NAME.in`, resolved with hashes into `NAME.lock`. An environment that shares also sees icefield
and its packages, behind its own; one that does not holds its tool alone, as it would be on another team's machine.
Dagster is resolved to agree with icefield's lock; dbt cannot be (it wants an older pathspec), and shares all the same.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from icefield.engine.session.jars import cache_folder

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
#: Each tool, and whether its environment shares icefield's own.
TOOLS = {"dagster": True, "dbt": True, "airflow": False}
AGREEING = {"dagster"}
#: Packages that a tool names but runs without. dbt's other parser (`--use-v2-parser`) is no wheel: its source fetches a
#: program from a place that is no package registry.
LEFT_OUT = {"dbt": ["dbt-core-experimental-parser"]}
UV = Path(sys.executable).with_name("uv")


class EnvironmentUnavailable(Exception):
    """An environment could not be made; the text says why."""


def environment(tool: str) -> Path:
    """The Python of a tool's environment, made when it is first asked for."""
    lock = HERE / f"{tool}.lock"
    digest = hashlib.sha256(lock.read_bytes() + sys.version.encode() + str(_site_packages()).encode()).hexdigest()
    folder = cache_folder() / "environments" / f"{tool}-{digest[:12]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)  # two test processes may ask at once
        if not (folder / "ready").exists():
            shutil.rmtree(folder, ignore_errors=True)
            _make(folder, lock, shares=TOOLS[tool])
            (folder / "ready").touch()
    return folder / "bin" / "python"


def _make(folder: Path, lock: Path, *, shares: bool) -> None:
    if os.environ.get("ICEFIELD_OFFLINE", "").lower() in {"1", "true", "yes"}:
        raise EnvironmentUnavailable(f"the environment of {lock.name} is not in the cache, and ICEFIELD_OFFLINE is set")
    python = folder / "bin" / "python"
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    command = [str(UV), "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--python", str(python)]
    _run([*command, "-r", str(lock)])
    if shares:
        _site_packages(folder).joinpath("icefield-shared.pth").write_text(
            f"import site; site.addsitedir({str(_site_packages())!r})\n", encoding="utf-8"
        )


def _site_packages(folder: Path | None = None) -> Path:
    if folder is None:
        return Path(sysconfig.get_path("purelib"))
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "installed_base": str(folder)}))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EnvironmentUnavailable(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")


def lock(tool: str) -> None:
    """Resolves what a tool needs; the versions that its lock has are kept where they still fit."""
    command = [
        str(UV),
        "pip",
        "compile",
        "--quiet",
        str(HERE / f"{tool}.in"),
        "--output-file",
        str(HERE / f"{tool}.lock"),
    ]
    command += ["--universal", "--python-version", "3.11", "--generate-hashes"]
    command += ["--no-emit-index-url", "--no-annotate", "--no-header"]
    command += [option for package in LEFT_OUT.get(tool, []) for option in ("--no-emit-package", package)]
    if tool in AGREEING:
        command += ["--constraints", str(ROOT / "requirements.lock")]
    subprocess.run(command, cwd=ROOT, check=True)
