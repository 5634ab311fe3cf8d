"""`models`: the tables of a dbt project, declared as icefield's."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icefield.adapters.dbt.compiled import FILE, Compiled, Taken, name_of, read
from icefield.declare import (
    Location,
    Query,
    Ref,
    append,
    by_key,
    expect,
    expect_table,
    files,
    full,
    not_null,
    ref,
    references,
    sql,
    table,
    unique,
)
from icefield.declare import lookup as lookup_of
from icefield.declare.options import Otherwise, must_be_one_of
from icefield.declare.registry import caller, caller_folder, current, located
from icefield.declare.suggest import did_you_mean
from icefield.errors import DbtNotCompiled, DbtNotTaken, few

#: Texts that dbt reads as NULL in seeds, besides the empty one.
NULLS = ("null", "NULL", "Null")
PROVENANCE = ("source_file", "source_line", "ingested_at")


def models(
    path: str,
    *,
    schemas: Mapping[str, str] | None = None,
    inputs: Mapping[str, str] | None = None,
    leave_out: Collection[str] = (),
    otherwise: Otherwise = "fail",
) -> dict[str, Callable[..., Any]]:
    """Declare the tables of a dbt project whose SQL is Spark's: `models("dbt")`; returns their functions by name.

    `path` is the folder of the dbt project, relative to this file, after `icefield dbt compile`. `schemas` gives dbt's
    schemas other names: {"store_marts": "marts"}. `inputs` says which table stands for a source, or for a node that is
    left out: {"raw.orders": "bronze.orders"}. `leave_out` names what the project goes on without: what icefield cannot
    take, or should not. `otherwise="quarantine"` sets rows aside that fail a test, where dbt would stop.
    """
    must_be_one_of("otherwise", otherwise)
    folder = Path(os.path.normpath(Path(caller_folder(), path)))
    compiled = _read(folder, path)
    declaring = _Declaring(compiled, folder, dict(schemas or {}), dict(inputs or {}), tuple(leave_out), otherwise)
    declaring.require_known()
    declaring.require_taken(path)
    return declaring.declare()


def _read(folder: Path, path: str) -> Compiled:
    """The compiled project, if it is there and of the files as they are."""
    remedy, where = f"run: icefield dbt compile {path}", str(caller())
    try:
        compiled = read(folder / FILE)
    except FileNotFoundError:
        raise DbtNotCompiled(
            f"the dbt project {path} is not compiled: it has no {FILE}", where=where, remedy=remedy
        ) from None
    except (OSError, ValueError) as problem:
        raise DbtNotCompiled(f"{path}/{FILE} cannot be used: {problem}", where=where, remedy=remedy) from None
    registry = current()
    if registry is not None:
        registry.files.update(str(folder / name) for name in (FILE, *compiled.files))
    if changed := compiled.changed(folder):
        raise DbtNotCompiled(
            f"the dbt project {path} changed since it was compiled: {few(changed)}", where=where, remedy=remedy
        )
    return compiled


@dataclass(frozen=True, slots=True)
class _Declaring:
    compiled: Compiled
    folder: Path
    schemas: Mapping[str, str]
    inputs: Mapping[str, str]
    leave_out: Collection[str]
    otherwise: Otherwise

    def require_known(self) -> None:
        """Refuses names that the project does not have, so that a slip or something long gone is noticed."""
        known = {*self.compiled.left, *(one.name for one in self.compiled.taken.values()), *self._sources()}
        for name in (*self.leave_out, *self.inputs):
            if name not in known:
                raise DbtNotTaken(
                    f"the dbt project has no {name}",
                    where=str(caller()),
                    remedy=did_you_mean(name, known, all_of_them="names"),
                )

    def require_taken(self, path: str) -> None:
        """Refuses to go on without something that the author did not give up."""
        missing = {name: reason for name, reason in self._missing().items() if name not in self.leave_out}
        if missing:
            told = "\n".join(f"  - {name}: {reason}" for name, reason in missing.items())
            listed = ", ".join(f'"{name}"' for name in (*self.leave_out, *missing))
            raise DbtNotTaken(
                f"icefield cannot take {len(missing)} of the dbt project {path}:\n{told}",
                where=str(caller()),
                remedy=f'change them, or go on without: models("{path}", leave_out=[{listed}])',
            )

    def declare(self) -> dict[str, Callable[..., Any]]:
        """Declares every table whose inputs are all there."""
        gone = self._missing()
        found = {}
        for one in self.compiled.taken.values():
            if one.kind != "view" and one.name not in gone and self._is_there(one, gone):
                with located(Location(self._shown(one.file), 1)):
                    found[one.name] = self._declare_seed(one) if one.kind == "seed" else self._declare_table(one)
        return found

    # -- what is not there

    def _missing(self) -> dict[str, str]:
        """What is not taken, and the models that read it; tests of them are simply not there."""
        given_up = dict.fromkeys(self.leave_out, "it is left out")
        found = {name: told for name, told in {**given_up, **self.compiled.left}.items() if name not in self.inputs}
        waiting = [one for one in self.compiled.taken.values() if one.kind != "test"]
        while more := {one.name: gone for one in waiting if one.name not in found and (gone := self._gone(one, found))}:
            found |= {name: f"it reads {gone}, which is not taken" for name, gone in more.items()}
        return {name: reason for name, reason in found.items() if name not in self.inputs}

    def _gone(self, one: Taken, missing: Collection[str]) -> str:
        names = (name_of(node) for node in one.reads.values())
        return next((name for name in names if name in missing), "")

    def _is_there(self, one: Taken, missing: Collection[str]) -> bool:
        return not self._gone(one, missing) and one.name not in self.inputs

    def _sources(self) -> list[str]:
        return [name_of(source) for source in self.compiled.sources]

    # -- what is

    def _table(self, node: str) -> str:
        """The name of the table that stands for a node or a source."""
        if (given := self.inputs.get(name_of(node))) is not None:
            return given
        if node in self.compiled.sources:
            return self.compiled.sources[node]
        return self._renamed(self.compiled.taken[node].table)

    def _renamed(self, name: str) -> str:
        schema, _, last = name.partition(".")
        return f"{self.schemas.get(schema, schema)}.{last}"

    def _declare_seed(self, one: Taken) -> Callable[..., Any]:
        path = os.path.relpath(self.folder / one.file, ((registry := current()) and registry.root) or Path.cwd())
        source = files(
            path.replace("{", "{{").replace("}", "}}"),
            schema=one.schema,
            format="csv",
            changed="replace",
            null_values=NULLS,
            sep=one.separator,
        )

        def seed(rows: Any) -> Any:
            return rows.drop(*PROVENANCE)

        seed.__doc__ = one.description
        made = table(
            self._renamed(one.table),
            source=source,
            refresh=full(),  # it is small, and what differs in a changed file is told downstream
            checks=self._checks(one),
            tags=one.tags,
            comments=one.columns,
        )
        return made(seed)

    def _declare_table(self, one: Taken) -> Callable[..., Any]:
        steps = self._steps(one)
        function = _function(one, steps)
        refresh = (
            by_key(*keys) if (keys := one.refresh.get("by_key")) else append() if "append" in one.refresh else full()
        )
        edges = one.refresh.get("inputs", {})
        parameters = _parameters(steps)
        made = table(
            self._renamed(one.table),
            inputs={name: self._input(node, edges.get(name)) for name, node in parameters.items()},
            refresh=refresh,
            checks=self._checks(one),
            partitioned_by=one.partitioned_by,
            tags=one.tags,
            comments=one.columns,
        )
        return made(function)

    def _input(self, node: str, edge: Any) -> str | Ref:
        name = self._table(node)
        if edge == "lookup":
            return lookup_of(name)
        return ref(name, **edge) if edge else name

    def _steps(self, one: Taken) -> tuple[_Step, ...]:
        """The query of a table, after those of the views that it reads."""
        found: dict[str, _Step] = {}

        def add(node: Taken, name: str) -> None:
            for read_as, id_read in node.reads.items():
                view = self.compiled.taken.get(id_read)
                if view is not None and view.kind == "view" and view.name not in self.inputs and read_as not in found:
                    add(view, read_as)
            with located(Location(self._shown(node.file), 1)):
                query = sql(node.query)
            assert isinstance(query, Query)
            found[name] = _Step(name, query, node.reads)

        add(one, "")
        return tuple(found.values())

    def _checks(self, one: Taken) -> Sequence[Any]:
        return [self._check(one, dict(check)) for check in one.checks]

    def _check(self, one: Taken, told: dict[str, Any]) -> Any:
        outcome = told.pop("otherwise")
        (kind, arguments), *_ = told.items()
        if outcome == "fail" and (kind in ("expect", "not_null") or (kind == "unique" and one.kind == "seed")):
            outcome = self.otherwise
        if kind == "references":
            return references(arguments[0], to=self._table(arguments[1]), otherwise=outcome)
        return _CHECKS[kind](*arguments, otherwise=outcome)

    def _shown(self, file: str) -> str:
        registry = current()
        path = str(self.folder / file)
        return registry.relative(path) if registry else path


_CHECKS: Mapping[str, Callable[..., Any]] = {
    "expect": expect,
    "expect_table": expect_table,
    "not_null": not_null,
    "unique": unique,
}


@dataclass(frozen=True, slots=True)
class _Step:
    """A query and the name of what it gives; empty for the result."""

    name: str
    query: Query
    reads: Mapping[str, str]


def _parameters(steps: Sequence[_Step]) -> dict[str, str]:
    """What the queries read that none of them gives, with dbt's ids."""
    made = {step.name for step in steps}
    return {name: node for step in steps for name, node in step.reads.items() if name not in made}


def _function(one: Taken, steps: tuple[_Step, ...]) -> Callable[..., Any]:
    """The queries as one function of the tables that they read."""
    queries = tuple((step.name, step.query) for step in steps)
    inputs = tuple(_parameters(steps))

    def model(*frames: Any, **named: Any) -> Any:
        known = {**dict(zip(inputs, frames, strict=False)), **named}
        for name, query in queries:
            known[name] = query(**{parameter: known[parameter] for parameter in query.parameters})
        return known[""]

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    vars(model)["__signature__"] = inspect.Signature([inspect.Parameter(name, kind) for name in inputs])
    model.__name__ = model.__qualname__ = one.table.partition(".")[2]
    model.__doc__ = one.description
    return model
