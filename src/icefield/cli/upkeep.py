"""`icefield upkeep`: small files are written together, old versions go, and so do files that nothing names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from icefield.cli import output
from icefield.cli.guard import FAILED, guarded
from icefield.cli.options import HERE, Json, ProfileName, ProjectDir
from icefield.cli.output import Column, Count
from icefield.project import open_project
from icefield.run.upkeep import Upkeep
from icefield.words import plural, seconds, size

if TYPE_CHECKING:
    from icefield.run.upkeep import Upkept


def register(app: typer.Typer) -> None:
    app.command("upkeep")(guarded(upkeep))


def upkeep(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done and change nothing.")] = False,
    as_json: Json = False,
    project: ProjectDir = HERE,
    profile: ProfileName = None,
) -> int:
    """Compact small files, expire old versions and remove unused files. Does not start Spark."""
    done = Upkeep(open_project(project, profile)).carry_out(dry_run=dry_run)
    if as_json:
        output.json(upkept_as_data(done))
    else:
        _show(done, dry_run=dry_run)
    return FAILED if done.put_off else 0


def upkept_as_data(done: Upkept) -> dict[str, Any]:
    """What upkeep did, as JSON."""
    compacted = [
        {"table": one.table, "files": one.files, "bytes": one.size, "into": one.into} for one in done.compacted
    ]
    swept = {"files": done.swept.files, "bytes": done.swept.size, "run_folders": done.swept.run_folders}
    return {
        "compacted": compacted,
        "expired": dict(done.expired),
        "removed": swept,
        "put_off": done.put_off,
        "seconds": round(done.seconds, 3),
    }


def summary(done: Upkept) -> str:
    """What upkeep did, in one line."""
    parts = [f"put off: {done.put_off}"] if done.put_off else []
    if done.compacted:
        files, into = sum(one.files for one in done.compacted), sum(one.into for one in done.compacted)
        parts.append(f"{plural(files, 'file')} compacted into {into:,}")
    if done.expired:
        parts.append(f"{plural(sum(done.expired.values()), 'version')} expired")
    if done.swept.files:
        parts.append(f"{plural(done.swept.files, 'file')} removed ({size(done.swept.size)})")
    if done.swept.run_folders:
        parts.append(f"{plural(done.swept.run_folders, 'log')} removed")
    return ", ".join([*(parts or ["nothing to do"]), seconds(done.seconds)])


def _show(done: Upkept, *, dry_run: bool) -> None:
    files = {one.table: one for one in done.compacted}
    tables = sorted({*files, *done.expired})
    rows = [
        [
            table,
            Count(files[table].files) if table in files else "",
            size(files[table].size) if table in files else "",
            Count(done.expired[table]) if table in done.expired else "",
        ]
        for table in tables
    ]
    if rows:
        columns = [
            Column(name=name, right=name != "table")
            for name in ("table", "files compacted", "size", "versions expired")
        ]
        output.table(columns, rows)
        output.line()
    output.sentence(f"{'Would do: ' if dry_run else ''}{summary(done)}")
