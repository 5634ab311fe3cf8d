"""`icefield plan`: what a run would do, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from icefield.cli import output
from icefield.cli.guard import guarded
from icefield.cli.opening import accepted, lake_of
from icefield.cli.options import HERE, Accept, Exclude, FullRefresh, Json, ProfileName, ProjectDir, Select, words
from icefield.cli.wording import plural, size
from icefield.plan import Wishes
from icefield.project import open_project
from icefield.run.planning import plan_project, selected

if TYPE_CHECKING:
    import typer

    from icefield.plan import Plan, Step


def register(app: typer.Typer) -> None:
    app.command("plan")(guarded(plan))


def plan(
    *,
    select: Select = None,
    exclude: Exclude = None,
    full_refresh: FullRefresh = False,
    accept: Accept = None,
    as_json: Json = False,
    project: ProjectDir = HERE,
    profile: ProfileName = None,
) -> None:
    """Show what a run would do now, and why. Nothing is started or changed."""
    opened = open_project(project, profile)
    lake = lake_of(opened)
    found = plan_project(
        opened,
        lake,
        lake.states(),
        selection=selected(opened, words(select), words(exclude)),
        wishes=Wishes(full_refresh=full_refresh, accept=frozenset(accepted(opened, accept))),
    )
    if as_json:
        output.json(as_data(found))
    elif not found.work:
        output.line(nothing_new(found))
    else:
        graph = opened.graph
        rows = [(step.table, graph[step.table].refresh.kind, *_cells(step)) for step in found.steps]
        output.table(("table", "refresh", "action", "why", "reads"), rows)
        output.line(f"\n{plural(len(found.work), 'table')} of {len(found.steps)} to refresh")


def nothing_new(found: Plan) -> str:
    """The sentence for a plan without work; tables that cannot be built yet are named."""
    if not found.steps:
        return "Nothing selected: no table is left of the selection"
    waiting = [step for step in found.steps if step.reason.startswith("waits")]
    told = f"Nothing new: {plural(len(found.steps) - len(waiting), 'table')} up to date"
    return told + "".join(f"; {step.table} {step.reason}" for step in waiting)


def as_data(found: Plan) -> dict[str, Any]:
    """A plan as JSON has it."""
    return {
        "work": len(found.work),
        "steps": [_step(step) for step in found.steps],
        "undeclared": list(found.undeclared),
    }


def _step(step: Step) -> dict[str, Any]:
    arrived = step.arrivals
    files = None
    if arrived is not None:
        new, gone = ([file.path for file in some] for some in (arrived.new, arrived.gone))
        files = {"new": new, "gone": gone, "bytes": arrived.new_bytes}
    ranges = {
        name: {"start": span.start, "end": span.end, "after": span.after, "until": span.until}
        for name, span in step.ranges.items()
    }
    return {
        "table": step.table,
        "action": step.action,
        "reason": step.reason,
        "decided": step.known,
        "files": files,
        "inputs": ranges,
        "changed": dict(step.changed),
    }


def _cells(step: Step) -> list[str]:
    return [step.action, step.reason, _reads(step)]


def _reads(step: Step) -> str:
    if step.action == "none":
        return ""
    if not step.known:
        return "decided at run"
    arrived = step.arrivals
    if arrived is not None:
        whole = step.action in ("build", "rebuild", "refresh")
        files = arrived.landed if whole else arrived.new
        return f"{plural(len(files), 'file')}, {size(sum(file.size for file in files))}"
    if step.action in ("append", "update"):
        kind = "new" if step.action == "append" else "changed"
        return ", ".join(f"{count:,} {kind} rows of {name}" for name, count in step.changed.items())
    return ", ".join(f"all of {name}" for name in step.ranges)
