"""`icefield ls --manifest`: what a project declares, and the files that say so, for programs that cannot import it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from icefield.declare import Files
from icefield.project.cache import digests, listings
from icefield.project.config import FILE, read_config

if TYPE_CHECKING:
    from collections.abc import Collection

    from icefield.graph import Node
    from icefield.project import Project


def manifest(project: Project, chosen: Collection[str]) -> dict[str, Any]:
    """The chosen tables in the order of the graph. It is the same until a file or a listing of `made_from` changes."""
    config = read_config(project.root, project.profile.name)
    toml = project.root / FILE
    return {
        "project": project.name,
        "profile": project.profile.name,
        "made_from": {"files": {FILE: digests([toml])[toml], **project.files}, "listings": listings(config)},
        "tables": [_table(project.graph[name]) for name in project.graph.order if name in chosen],
    }


def _table(node: Node) -> dict[str, Any]:
    checks = (*node.row_checks, *node.table_checks)
    return {
        "table": node.name,
        "refresh": node.refresh.kind,
        "source": node.source.name if node.source is not None else None,
        "batch": node.source.batch if isinstance(node.source, Files) else None,
        "inputs": list(node.needs),
        "checks": [{"check": check.name, "otherwise": check.otherwise} for check in checks],
        "tags": list(node.tags),
        "comment": node.comment,
        "location": str(node.location),
    }
