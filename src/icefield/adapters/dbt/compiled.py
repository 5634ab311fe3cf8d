"""A dbt project as icefield takes it: what `icefield dbt compile` writes beside it and `models` reads.

The file is made from dbt's manifest of a full refresh. It holds no times and no paths of a machine, so it can be
committed with the project, and loading it needs no dbt.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

FILE = "icefield_models.json"
VERSION = 1

#: What a node becomes. A view is a helper function of those that read it, a test a table of the rows that fail it.
Kind = Literal["seed", "table", "view", "test"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A node of the dbt project that icefield takes."""

    #: dbt's id: model.store.orders.
    id: str
    kind: Kind
    #: dbt's name for it in the database: store_marts.orders.
    table: str
    #: Where dbt has it, relative to the dbt project.
    file: str
    #: Its SQL; the `{names}` in it are the keys of `reads`, which has dbt's ids.
    query: str = ""
    reads: Mapping[str, str] = field(default_factory=dict)
    description: str = ""
    #: Descriptions of columns.
    columns: Mapping[str, str] = field(default_factory=dict)
    #: Each check as the function that declares it, with its arguments: {"unique": ["order_id"], "otherwise": "fail"}.
    checks: tuple[Mapping[str, Any], ...] = ()
    tags: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    #: How dbt is told to keep it up to date, of which icefield proves what it can: {"append": []}, {"by_key": [...]}.
    wanted: Mapping[str, Any] = field(default_factory=dict)
    #: How icefield keeps it up to date: {"full": []}, or what was proven, with {"inputs": ...} for a key.
    refresh: Mapping[str, Any] = field(default_factory=lambda: {"full": []})
    #: The columns of a seed, as DDL, and what separates them.
    schema: str = ""
    separator: str = ","
    #: What is different from dbt.
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name by which people know it."""
        return name_of(self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What icefield takes of a dbt project, and what not; `left` is {name: reason}."""

    project: str
    dbt: str
    adapter: str
    taken: Mapping[str, Taken]
    #: Sources of the project, by dbt's id: the table that each stands for.
    sources: Mapping[str, str] = field(default_factory=dict)
    left: Mapping[str, str] = field(default_factory=dict)
    #: What was compiled: files relative to the dbt project, with their digests.
    files: Mapping[str, str] = field(default_factory=dict)

    def changed(self, folder: Path) -> list[str]:
        """The files that are not as they were when they were compiled."""
        now = digests(folder, self.files)
        return [name for name, digest in self.files.items() if now.get(name) != digest]

    def write(self, folder: Path) -> Path:
        """Writes the file beside dbt_project.yml."""
        content = {"version": VERSION, **asdict(self), "taken": [_plain(one) for one in self.taken.values()]}
        path = folder / FILE
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return path


def read(path: Path) -> Compiled:
    """What `write` wrote; anything else is a ValueError."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or content.pop("version", None) != VERSION:
        raise ValueError("it was written by another version of icefield")
    try:
        taken = [Taken(**{**one, **_tuples(one)}) for one in content.pop("taken")]
        return Compiled(**content, taken={one.id: one for one in taken})
    except (TypeError, KeyError) as problem:
        raise ValueError(str(problem)) from None


def name_of(unique_id: str) -> str:
    """model.store.orders -> orders, source.store.raw.orders -> raw.orders, model.store.orders.v2 -> orders.v2."""
    return ".".join(unique_id.split(".")[2:])


def digests(folder: Path, files: Iterable[str]) -> dict[str, str]:
    """The content of files, each as a digest; those that are not there are left out."""
    found = {}
    for file in sorted(set(files)):
        try:
            found[file] = hashlib.sha256((folder / file).read_bytes()).hexdigest()[:32]
        except OSError:
            continue
    return found


_DEFAULTS = asdict(Taken(id="", kind="table", table="", file=""))


def _plain(taken: Taken) -> dict[str, Any]:
    """Only what is not as usual, so that the file is easy to read."""
    always = ("id", "kind", "table", "file")
    found = {name: value for name, value in asdict(taken).items() if name in always or value != _DEFAULTS[name]}
    return {**found, "query": taken.query.splitlines()} if taken.query else found


def _tuples(one: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has lists where the value has tuples, and a query in lines, so that a change of one can be read."""
    names = [known.name for known in fields(Taken) if isinstance(_DEFAULTS[known.name], tuple)]
    return {name: tuple(one[name]) for name in names if name in one} | {"query": "\n".join(one.get("query", ()))}
