"""Names: of assets, of sources, of checks. Dagster takes letters, digits and underscores where icefield takes more."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from icefield.declare import Files, Frames, Topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from icefield.declare import Source
    from icefield.graph import Graph, Node

#: Parts of a path that stand for others.
_PATTERN = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[*?]+")
_LONGEST = 100


def path_of(table: str, prefix: Sequence[str] = ()) -> tuple[str, ...]:
    """A table's asset key: its schema and its name, below a prefix if there is one."""
    return (*prefix, *table.split("."))


def source_path(source: Source, table: str) -> tuple[str, ...] | None:
    """A source's key, without a prefix: its folder and what is fixed of its files' names, its topic; None: no place."""
    if isinstance(source, Frames):
        return None
    if isinstance(source, Topics):
        return ("kafka", word(source.topic))
    if isinstance(source, Files):
        *folders, last = source.path.split("/")
        stem = last.rpartition(".")[0] or last  # the suffix tells the format, or is a pattern itself
        parts = (word(_PATTERN.sub("", part)) for part in (*folders, stem))
        return tuple(filter(None, parts))
    return ("sources", *table.split("."))


def word(text: str) -> str:
    """A text as letters, digits and underscores."""
    return re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")


def check_names(graph: Graph) -> dict[str, dict[str, str]]:
    """For each table, its checks by icefield's names, with the names that Dagster takes; no two are the same.

    Dagster makes one name of an asset and its check, so `a.b` with `c_d` and `a.b_c` with `d` must differ as well.
    """
    taken: set[str] = set()
    return {
        name: {check: _check_name(graph[name], check, taken) for check in graph[name].outcomes} for name in graph.order
    }


def _check_name(node: Node, check: str, taken: set[str]) -> str:
    short = word(check).lower() or "check"
    if len(short) > _LONGEST:
        short = f"{short[:_LONGEST]}_{hashlib.sha256(check.encode()).hexdigest()[:6]}"
    table = node.name.replace(".", "__")
    found, number = short, 1
    while f"{table}_{found}" in taken:
        number += 1
        found = f"{short}_{number}"
    taken.add(f"{table}_{found}")
    return found


def tag_names(tags: Iterable[str]) -> dict[str, str]:
    """Tags as Dagster's: keys without a value."""
    return {found: "" for tag in tags if (found := re.sub(r"[^\w.-]+", "_", tag, flags=re.ASCII)[:63])}
