"""`icefield plan`: what a run would do, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from icefield.cli import output
from icefield.cli.guard import COULD_NOT_RUN, guarded
from icefield.cli.opening import accepted, lake_of
from icefield.cli.options import HERE, Accept, Exclude, FullRefresh, Json, ProfileName, ProjectDir, Select, words
from icefield.cli.output import Column
from icefield.graph.news import FilesNews, FramesNews, RelationNews, TopicsNews
from icefield.plan import Wishes
from icefield.project import open_project
from icefield.run.planning import plan_project, selected
from icefield.words import plural, size

if TYPE_CHECKING:
    from collections.abc import Mapping

    import typer

    from icefield.graph import Graph, Node
    from icefield.graph.state import TableState
    from icefield.plan import Plan, Step
    from icefield.plan.decide import Action


_COLUMNS = (
    "table",
    Column(name="refresh", optional=True),
    "action",
    Column(name="why", wraps=True),
    Column(name="reads", wraps=True, optional=True),
)


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
) -> int:
    """Show what a run would do and why, and what it would refuse. Does not start Spark or change anything."""
    opened = open_project(project, profile)
    lake = lake_of(opened)
    states = lake.states()
    found = plan_project(
        opened,
        lake,
        states,
        selection=selected(opened, words(select), words(exclude)),
        wishes=Wishes(full_refresh=full_refresh, accept=frozenset(accepted(opened, accept))),
        foresee=True,
    )
    if as_json:
        output.json(as_data(found, opened.graph, states))
    elif not found.work and not found.problems:
        output.sentence(nothing_new(found))
    else:
        graph = opened.graph
        rows = [
            (step.table, refresh_of(graph[step.table], states.get(step.table)), *_cells(step)) for step in found.steps
        ]
        output.table(_COLUMNS, rows)
        output.line(f"\n{plural(len(found.work), 'table')} of {len(found.steps)} to refresh")
    for problem in found.problems:
        output.failure(str(problem))
    return COULD_NOT_RUN if found.problems else 0


def nothing_new(found: Plan) -> str:
    """The sentence for a plan without work; tables that cannot be built yet are named."""
    if not found.steps:
        return "Nothing selected: no table matches the selection"
    waiting = [step for step in found.steps if step.reason.startswith("waiting")]
    told = f"Nothing new: {plural(len(found.steps) - len(waiting), 'table')} up to date"
    return told + "".join(f"; {step.table} is {step.reason}" for step in waiting)


def refresh_of(node: Node, state: TableState | None) -> str:
    """A table's refresh kind, and what is known of its promise."""
    promise = promise_of(node, state)
    return node.refresh.kind if promise in ("", "full") else f"{node.refresh.kind}, {promise}"


def promise_of(node: Node, state: TableState | None) -> str:
    """What is known of the promise of a table's refresh kind: nothing where its code changed since."""
    if node.refresh.kind == "full":
        return "full"
    known = state is not None and state.fingerprint == node.fingerprint
    return state.promise if state is not None and known else ""


def as_data(found: Plan, graph: Graph, states: Mapping[str, TableState]) -> dict[str, Any]:
    """A plan as JSON has it."""
    promises = {step.table: promise_of(graph[step.table], states.get(step.table)) for step in found.steps}
    return {
        "work": len(found.work),
        "steps": [{**_step(step), "promise": promises[step.table] or None} for step in found.steps],
        "undeclared": list(found.undeclared),
        "problems": [str(problem) for problem in found.problems],
    }


def _step(step: Step) -> dict[str, Any]:
    files = offsets = relation = None
    if isinstance(step.news, RelationNews):
        news = step.news
        rows = None if news.unsure else news.rows + news.late
        relation = {"rows": rows, "cursor": news.cursor.column, "after": news.cursor.value, "upto": news.upto}
    if isinstance(step.news, TopicsNews):
        offsets = [
            {"topic": one.topic, "partition": one.partition, "start": one.start, "end": one.end}
            for one in step.news.new
        ]
    if isinstance(step.news, FilesNews):
        new, gone = ([file.path for file in some] for some in (step.news.new, step.news.gone))
        files = {"new": new, "gone": gone, "bytes": step.news.new_bytes}
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
        "offsets": offsets,
        "relation": relation,
        "inputs": ranges,
        "changed": dict(step.changed),
    }


def _cells(step: Step) -> list[str]:
    why = step.reason if step.problem is None else f"{step.problem.code}, see below"
    return [step.action, why, _reads(step)]


def _reads(step: Step) -> str:
    if step.action in ("none", "refused"):
        return ""
    if not step.known:
        return "decided when run"
    if isinstance(step.news, FilesNews):
        whole = step.action in ("build", "rebuild", "refresh")
        files = step.news.landed if whole else (*step.news.new, *step.news.changed)
        return f"{plural(len(files), 'file')}, {size(sum(file.size for file in files))}"
    if isinstance(step.news, TopicsNews):
        more = f", {plural(step.news.lag, 'message')} left for later runs" if step.news.lag else ""
        taken = "" if step.action in ("append", "update", "build", "note") else " and all before"
        return f"{plural(step.news.new_messages, 'message')}{taken}{more}"
    if isinstance(step.news, RelationNews):
        return _relation(step.news, step.action)
    if isinstance(step.news, FramesNews):
        return plural(step.news.total - (step.news.known if step.action == "append" else 0), "row")
    if step.action in ("append", "update"):
        kind = "new" if step.action == "append" else "changed"
        return ", ".join(f"{count:,} {kind} rows of {name}" for name, count in step.changed.items())
    return ", ".join(f"all of {name}" for name in step.ranges)


def _relation(news: RelationNews, action: Action) -> str:
    if news.unsure:
        return "decided when run"
    taken = f" and {plural(news.cursor.count, 'row')} before" if action == "rebuild" and news.cursor.follows else ""
    return f"{plural(news.rows + news.late, 'row')}{taken}"
