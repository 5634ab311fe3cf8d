"""Which models of a dbt project can be kept up to date by their changes: proven with Spark, once, when compiled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icefield.declare import Append, ByKey, append, by_key
from icefield.run.proving import Verdict, prove_refresh

if TYPE_CHECKING:
    from icefield.adapters.dbt.compiled import Compiled, Taken
    from icefield.project import Project


def with_proofs(compiled: Compiled, folder: Path, project: Project) -> Compiled:
    """The compiled project, in which models are refreshed as dbt wants it where that is proven, else in full.

    `project` is the one that declares the models; those that it does not declare stay as they are.
    """
    asked = {
        name: one for name, one in declared_by(project, compiled, folder).items() if one.kind == "table" and one.wanted
    }
    verdicts = prove_refresh(project, {name: _refresh(one) for name, one in asked.items()})
    decided = {one.id: _decided(one, verdicts[name]) for name, one in asked.items()}
    return replace(compiled, taken={**compiled.taken, **decided})


def declared_by(project: Project, compiled: Compiled, folder: Path) -> dict[str, Taken]:
    """What a project declares of a dbt project, by the names of its tables."""
    tables = {(project.root / node.location.file).resolve(): name for name, node in project.graph.nodes.items()}
    return {
        name: one for one in compiled.taken.values() if (name := tables.get((folder / one.file).resolve())) is not None
    }


def _refresh(one: Taken) -> Any:
    return by_key(*one.wanted["by_key"]) if "by_key" in one.wanted else append()


def _decided(one: Taken, verdict: Verdict) -> Taken:
    match verdict.refresh:
        case Append():
            return replace(one, refresh={"append": []})
        case ByKey(keys=keys):
            edges = {edge.parameter: "lookup" if edge.lookup else dict(edge.key) for edge in verdict.edges}
            return replace(one, refresh={"by_key": list(keys), "inputs": edges})
        case _:
            kind = "by_key" if "by_key" in one.wanted else "append"
            return replace(one, notes=(*one.notes, f"full, because {kind} is not proven: {verdict.reason}"))
