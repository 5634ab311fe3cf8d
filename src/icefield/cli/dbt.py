"""`icefield dbt`: the lake for a dbt project, and a dbt project for icefield."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from icefield.adapters.dbt import compiled as kept
from icefield.adapters.dbt.running import PROJECT_FILE, compile_project, find_project, read_manifest
from icefield.cli import output
from icefield.cli.guard import FAILED, guarded
from icefield.cli.opening import lake_of, same_project
from icefield.cli.options import HERE, Exclude, Json, ProfileName, ProjectDir, Select, duration, words
from icefield.cli.output import Column
from icefield.errors import DbtNotCompiled, WrongUsage, few
from icefield.graph import select
from icefield.project import open_project
from icefield.words import plural

if TYPE_CHECKING:
    from icefield.adapters.dbt.compiled import Compiled, Taken

_COLUMNS = ("dbt", "icefield", Column(name="checks", right=True, optional=True), Column(name="notes", wraps=True))

DbtDir = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the dbt project.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Read the lake from a dbt project, or take over a dbt project as tables.", no_args_is_help=True
    )
    group.command("sources")(guarded(sources))
    group.command("compile")(guarded(compile_models))
    group.command("check")(guarded(check))
    app.add_typer(group, name="dbt")


def sources(
    directory: DbtDir,
    *,
    select_: Select = None,
    exclude: Exclude = None,
    file: Annotated[
        Path, typer.Option("--file", metavar="FILE", help="Where in the dbt project the sources are written.")
    ] = Path("models/sources.yml"),
    warn_after: Annotated[
        str, typer.Option("--warn-after", metavar="TIME", help="Tables are stale so long after a publish; 0s: never.")
    ] = "1d",
    project: ProjectDir = HERE,
    profile: ProfileName = None,
) -> None:
    """Write the published tables as sources of a dbt project, with a profile for dbt-duckdb if it has none."""
    from icefield.adapters.dbt.sources import Freshness, profile_of, profile_yaml, sources_yaml  # noqa: PLC0415
    from icefield.query.pins import pin_now  # noqa: PLC0415 - metadata files are read

    opened = open_project(project, profile)
    found = find_project(directory)
    pins = pin_now(lake_of(opened))
    chosen = [name for name in select(opened.graph, words(select_), exclude=words(exclude)) if name in pins]
    limit = timedelta(seconds=duration(warn_after))
    text = sources_yaml((pins[name] for name in chosen), opened.graph, Freshness(warn_after=limit or None))
    target = found / file
    require_own(target)
    with output.writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    output.line(f"{plural(len(chosen), 'table')} in {directory / file}")
    if (profiles := found / "profiles.yml").exists():
        output.note(f"{directory / 'profiles.yml'} is there already and stays as it is")
        return
    name = profile_of((found / PROJECT_FILE).read_text(encoding="utf-8"))
    place = os.path.relpath(opened.root, found)
    with output.writing(profiles):
        profiles.write_text(profile_yaml(name, place, opened.profile.name, f"target/{name}.duckdb"), encoding="utf-8")
    output.line(f"profile {name} in {directory / 'profiles.yml'}")


def require_own(target: Path) -> None:
    """Refuses to write over what a person wrote."""
    from icefield.adapters.dbt.sources import HEAD  # noqa: PLC0415

    if target.exists() and not target.read_text(encoding="utf-8").startswith(HEAD.partition(",")[0]):
        raise WrongUsage(
            f"{target} was not written by icefield", remedy="name another file: --file models/lake_sources.yml"
        )


def compile_models(
    directory: DbtDir,
    *,
    dbt: Annotated[
        str, typer.Option("--dbt", metavar="PATH", help="The dbt to use: its command or its environment's folder.")
    ] = "",
    target: Annotated[
        str, typer.Option("--target", metavar="NAME", help="A target of your profiles.yml in place of icefield's own.")
    ] = "",
    profiles: Annotated[
        Path | None, typer.Option("--profiles-dir", metavar="DIR", help="Where that profiles.yml is.")
    ] = None,
    variables: Annotated[str, typer.Option("--vars", metavar="YAML", help="Variables for dbt.")] = "",
    manifest: Annotated[
        Path | None,
        typer.Option("--manifest", metavar="FILE", help="Use this manifest of `dbt compile --full-refresh`."),
    ] = None,
    as_json: Json = False,
    project: ProjectDir = HERE,
    profile: ProfileName = None,
) -> None:
    """Compile a dbt project whose SQL is Spark's for `models`, and prove which models can follow changes."""
    from icefield.adapters.dbt.proof import declared_by, with_proofs  # noqa: PLC0415 - it imports what a run does

    if target and profiles is None and (directory / "profiles.yml").exists():
        profiles = directory
    options = ["--target", target] if target else []
    options += ["--profiles-dir", str(profiles.resolve())] if profiles else []
    options += ["--vars", variables] if variables else []
    if manifest is not None:
        compiled = read_manifest(directory, manifest)
    else:
        output.note(f"dbt compiles {directory} ...")
        compiled = compile_project(directory, dbt=dbt, options=options)
    with output.writing(directory):
        path = compiled.write(directory)
    if any(one.wanted and one.kind == "table" for one in compiled.taken.values()):
        opened = open_project(project, profile)
        if not declared_by(opened, compiled, directory):
            _report(compiled, as_json=as_json)
            output.note(
                f"written: {path}; nothing is proven, because no file of the project declares its models:"
                f' write models("{directory}") into one, and compile again'
            )
            return
        output.note("Spark proves which models can follow changes ...")
        compiled = with_proofs(compiled, directory, opened)
        with output.writing(directory):
            compiled.write(directory)
    _report(compiled, as_json=as_json)
    if not as_json:
        output.note(f"written: {path}; run it with: icefield run{same_project(project)}")


def check(directory: DbtDir, *, as_json: Json = False) -> int:
    """Show what icefield takes of a compiled dbt project, what it cannot, and why. Starts neither dbt nor Spark."""
    try:
        compiled = kept.read(directory / kept.FILE)
    except (OSError, ValueError) as problem:
        raise DbtNotCompiled(
            f"{directory / kept.FILE} cannot be read: {getattr(problem, 'strerror', None) or problem}",
            remedy=f"run: icefield dbt compile {directory}",
        ) from None
    _report(compiled, as_json=as_json)
    if changed := compiled.changed(directory):
        output.note(f"changed since it was compiled: {few(changed)}")
    return FAILED if compiled.left or changed else 0


def _report(compiled: Compiled, *, as_json: bool) -> None:
    if as_json:
        taken = [{**_row(one), "checks": list(one.checks), "file": one.file} for one in compiled.taken.values()]
        return output.json({"taken": taken, "not_taken": dict(compiled.left)})
    rows = [_row(one).values() for one in compiled.taken.values()]
    output.table(_COLUMNS, [[name, made, checks or "", "; ".join(notes)] for name, made, checks, notes in rows])
    if compiled.left:
        output.heading(f"Not taken: {plural(len(compiled.left), 'part')} of the dbt project")
        for name, reason in compiled.left.items():
            output.sentence(f"{name}: {reason}")
    return None


def _row(one: Taken) -> dict[str, Any]:
    name = one.name.partition(".")[0] if one.kind == "test" else one.name  # without dbt's hash of its arguments
    return {"dbt": name, "icefield": _becomes(one), "checks": len(one.checks), "notes": list(one.notes)}


def _becomes(one: Taken) -> str:
    match one.kind:
        case "seed":
            return f"{one.table}, from its file"
        case "view":
            return "a helper function of its readers"
        case "test":
            return "a table of the rows that fail"
    keys = ", ".join(one.refresh.get("by_key", ()))
    return f"{one.table}, " + (f"by_key({keys})" if keys else "append" if "append" in one.refresh else "full")
