"""`icefield init`: a project to begin with."""

from __future__ import annotations

import shutil
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
#: What a run leaves in a project's folder, and what Python does: not part of the project.
LEFT_BEHIND = ("landing", "lake", ".icefield", "__pycache__", "spark-warehouse")


def register(app: typer.Typer) -> None:
    app.command("init")(guarded(init))


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The new project's folder.")],
    reference: Annotated[
        str | None, typer.Option("--from", metavar="NAME", help="Copy a reference project, such as ecommerce.")
    ] = None,
) -> None:
    """Make a small commented project, or a copy of a reference project with its generator."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise FolderInUse(f"{directory} is not empty", remedy="name a new folder: icefield init DIR")
    if reference is None:
        with output.writing(directory):
            _copy_starter(directory)
        steps = ["icefield run", 'icefield sql "SELECT * FROM gold.visits_a_day"', "pytest"]
    else:
        project = _reference(reference)
        with output.writing(directory):
            shutil.copytree(project, directory, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*LEFT_BEHIND))
        steps = ["python generate.py --out landing --rows 38000 --days 9", "icefield run"]
    output.line(f"A project is in {directory}. Next:")
    for step in (f"cd {directory}", *steps):
        output.line(f"  {step}")


def _copy_starter(directory: Path) -> None:
    for file in sorted(STARTER.rglob(f"*{SUFFIX}")):
        target = directory / str(file.relative_to(STARTER)).removesuffix(SUFFIX)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(file.read_text(encoding="utf-8"), encoding="utf-8")


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
