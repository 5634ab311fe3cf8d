"""`icefield init`: a project to begin with."""

from __future__ import annotations

import importlib.util
import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

import icefield
from icefield.cli import output
from icefield.cli.guard import guarded
from icefield.declare.suggest import did_you_mean
from icefield.errors import FolderInUse, UnknownTemplate

STARTER = Path(__file__).parent / "starter"
#: Files of the starter carry this, so that no tool takes them for modules of icefield.
SUFFIX = ".template"
#: Stands in the starter for the name of the project.
NAME = "PROJECT_NAME"
#: What a run leaves in a project's folder, and what Python and dbt do: not part of the project.
LEFT_BEHIND = (
    *("landing", "downloads", "reports", "lake", "lake-kafka", ".icefield"),
    *("__pycache__", "spark-warehouse", "target", "logs"),
)


#: What makes data for a first run, where it needs more words than the script's name.
_FIRST = {"ecommerce": "generate.py --out landing --rows 38000 --days 9"}


def register(app: typer.Typer) -> None:
    app.command("init")(guarded(init))


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The new project's folder.")],
    reference: Annotated[
        str | None,
        typer.Option("--from", metavar="NAME", help="Copy a reference project: ecommerce, sensors, shop or taxi."),
    ] = None,
) -> None:
    """Create a small commented project, or a copy of a reference project with its data generator."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise FolderInUse(f"{directory} is not empty", remedy="choose a new folder: icefield init DIR")
    if reference is None:
        with output.writing(directory):
            _copy_starter(directory)
        steps = ["icefield run", 'icefield sql "SELECT * FROM gold.visits_a_day"', *_testing()]
    else:
        project = _reference(reference)
        with output.writing(directory):
            shutil.copytree(project, directory, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*LEFT_BEHIND))
        generated = (directory / "generate.py").exists()  # others come with recorded messages
        first = [f"{_python()} {_FIRST.get(reference, 'generate.py')}"] if generated else []
        steps = [*first, "icefield run"]
    here = directory.resolve() == Path.cwd()
    output.line(f"Created a project {'here' if here else f'in {directory}'}. Next:")
    for step in ([] if here else [f"cd {shlex.quote(str(directory))}"]) + steps:
        output.line(f"  {step}")


def _testing() -> list[str]:
    """The commands that test the new project; pytest is an extra, since only authors need it."""
    return ["pytest"] if importlib.util.find_spec("pytest") else ["pip install 'icefield[test]'", "pytest"]


def _python() -> str:
    """The Python that has what icefield has: the one that a shell finds may be another."""
    found = shutil.which("python")
    same = found is not None and Path(found).parent == Path(sys.executable).parent
    return "python" if same else shlex.quote(sys.executable)


def _copy_starter(directory: Path) -> None:
    name = json.dumps(directory.resolve().name, ensure_ascii=False)[1:-1]  # TOML and JSON quote alike
    for file in sorted(STARTER.rglob(f"*{SUFFIX}")):
        target = directory / str(file.relative_to(STARTER)).removesuffix(SUFFIX)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(file.read_text(encoding="utf-8").replace(NAME, name), encoding="utf-8")


def _reference(name: str) -> Path:
    """A reference project: inside the installed package, or in the repository that this package is run from."""
    package = Path(icefield.__file__).parent
    homes = (package / "_projects", package.parent.parent / "pipelines")
    known = {folder.name: folder for home in homes if home.is_dir() for folder in home.iterdir() if folder.is_dir()}
    if (found := known.get(name)) is None or not (found / "icefield.toml").is_file():
        raise UnknownTemplate(
            f"there is no reference project `{name}`",
            remedy=did_you_mean(name, known, all_of_them="reference projects"),
        )
    return found
