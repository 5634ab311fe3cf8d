"""dbt's manifest -> what icefield takes of a project and what not, with the reason. Pure: no dbt, no disk, no Spark."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from icefield.adapters.dbt.compiled import Compiled, Taken, name_of
from icefield.adapters.dbt.data_tests import as_check, owner_of, thresholds
from icefield.adapters.dbt.refusals import hooks_of, why_not
from icefield.adapters.dbt.relations import Parts, parts_of, placed
from icefield.adapters.dbt.seed_types import seed_schema
from icefield.declare.tables import NAME

Node = Mapping[str, Any]

_COLUMN = re.compile(r"[A-Za-z_]\w*")
#: What dbt calls views and tables; an ephemeral model is put into the SQL of its readers by dbt itself.
_MADE = ("view", "table", "incremental", "ephemeral")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What dbt's driver says besides the manifest: nodes that dbt could not compile, and types of seeds' columns."""

    errors: Mapping[str, str] = field(default_factory=dict)
    seeds: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def convert(manifest: Mapping[str, Any], answer: Answer) -> Compiled:
    """All that a manifest has, taken or refused; the digests of its files are left to the caller."""
    return _Conversion(manifest, answer).compiled()


def files_of(manifest: Mapping[str, Any]) -> Iterator[str]:
    """The files of the project itself that dbt compiled; not the rows of seeds, which are data."""
    project = manifest["metadata"]["project_name"]
    yield from ("dbt_project.yml", "packages.yml", "dependencies.yml", "package-lock.yml")
    for kind in ("nodes", "sources", "macros", "docs"):
        for node in manifest.get(kind, {}).values():
            if node["package_name"] == project:
                if node.get("resource_type") != "seed":
                    yield node["original_file_path"]
                if node.get("patch_path"):
                    yield node["patch_path"].partition("://")[2]


class _Conversion:
    def __init__(self, manifest: Mapping[str, Any], answer: Answer) -> None:
        self.manifest = manifest
        self.answer = answer
        self.nodes: Mapping[str, Node] = manifest["nodes"]
        self.relations = _relations([*self.nodes.values(), *manifest["sources"].values()])
        self.placeholders = _placeholders(self.relations)
        self.taken: dict[str, Taken] = {}
        self.left: dict[str, str] = {}

    def compiled(self) -> Compiled:
        for node in sorted(self.nodes.values(), key=_order):
            self._take(node)
        for function in self.manifest.get("functions", {}):
            self.left[name_of(function)] = "a function of dbt: write it in the SQL of its readers"
        self._add_tests()
        metadata = self.manifest["metadata"]
        return Compiled(
            project=metadata["project_name"],
            dbt=metadata["dbt_version"],
            adapter=metadata["adapter_type"],
            taken={one.id: one for one in self.taken.values()},
            sources={name: _table(source) for name, source in sorted(self.manifest["sources"].items())},
            left=self.left,
        )

    def _take(self, node: Node) -> None:
        kind = node["resource_type"]
        if kind in ("test", "analysis"):
            return
        reason = why_not(node, self.answer.errors)
        if not reason and kind in ("model", "seed") and not NAME.fullmatch(_table(node)):
            reason = f"its table would be {_table(node)}: give it a lower-case alias and schema"
        if reason:
            self.left[name_of(node["unique_id"])] = reason
            return
        for hook, told in hooks_of(node):
            self.left[f"{name_of(node['unique_id'])}.{hook}"] = told
        if kind == "seed":
            self._take_seed(node)
        else:
            self._take_model(node)

    def _take_seed(self, node: Node) -> None:
        columns = self.answer.seeds.get(node["unique_id"], node["config"].get("column_types") or {})
        schema, reason = seed_schema(columns, _described(node))
        if reason:
            self.left[name_of(node["unique_id"])] = reason
            return
        self._keep(node, "seed", schema=schema, separator=node["config"].get("delimiter") or ",")

    def _take_model(self, node: Node) -> None:
        found = placed(node["compiled_code"], self.placeholders)
        reads = {name: self.relations[parts] for name, parts in found.reads.items()}
        if node["unique_id"] in reads.values():
            self.left[name_of(node["unique_id"])] = (
                "it reads itself (`this`) in a full refresh too, so a rebuild would not give the same rows"
            )
        elif not reads:
            self.left[name_of(node["unique_id"])] = "it reads no table: make its rows a seed"
        else:
            wanted, notes = _wanted(node)
            self._keep(
                node,
                "view" if node["config"]["materialized"] in ("view", "ephemeral") else "table",
                query=found.query,
                reads=reads,
                wanted=wanted,
                notes=notes,
                partitioned_by=tuple(_names(node["config"].get("partition_by"))),
            )

    def _keep(self, node: Node, kind: Any, **more: Any) -> None:
        self.taken[node["unique_id"]] = Taken(
            id=node["unique_id"],
            kind=kind,
            table=_table(node),
            file=node["original_file_path"],
            description=(node.get("description") or "").strip(),
            columns=_described(node),
            tags=tuple(sorted(set(node.get("tags") or []))),
            **more,
        )

    def _add_tests(self) -> None:
        """Checks go to their tables, which makes a table of a view; what is no check is a table of its own."""
        tests = [node for _, node in sorted(self.nodes.items()) if node["resource_type"] == "test"]
        queries = []
        for test in tests:
            check = as_check(test)
            owner = self.taken.get(owner_of(test))
            if check is None or owner is None or "references" in check:
                queries.append(test)
            else:
                self.taken[owner.id] = replace(owner, kind=_tabled(owner), checks=(*owner.checks, check))
        self._make_tables_of_what_nobody_reads()
        for test in queries:
            self._add_test(test, as_check(test))

    def _add_test(self, test: Node, check: Mapping[str, Any] | None) -> None:
        owner = self.taken.get(owner_of(test))
        if check is not None and owner is not None and owner.kind != "view":
            to = self.taken.get(check["references"][1])
            if to is not None and to.kind != "view":
                self.taken[owner.id] = replace(owner, checks=(*owner.checks, check))
                return
        name = name_of(test["unique_id"])
        if reason := why_not(test, self.answer.errors):
            self.left[name] = reason
            return
        found = placed(test["compiled_code"], self.placeholders)
        reads = {key: self.relations[parts] for key, parts in found.reads.items()}
        if not reads:
            self.left[name] = "it reads no table"
        elif not NAME.fullmatch(_table(test)):
            self.left[name] = f"its table would be {_table(test)}: give it a lower-case alias and schema"
        else:
            self._keep(test, "test", query=found.query, reads=reads, checks=thresholds(test))

    def _make_tables_of_what_nobody_reads(self) -> None:
        """A view that no model reads is what the project is for."""
        read = {name for one in self.taken.values() for name in one.reads.values()}
        for one in list(self.taken.values()):
            if one.kind == "view" and one.id not in read and self._materialized(one) == "view":
                self.taken[one.id] = replace(one, kind="table", wanted={"append": []})

    def _materialized(self, one: Taken) -> str:
        return str(self.nodes[one.id]["config"].get("materialized"))


def _tabled(owner: Taken) -> Any:
    return "table" if owner.kind == "view" else owner.kind


def _wanted(node: Node) -> tuple[dict[str, Any], tuple[str, ...]]:
    """How dbt is told to keep a model up to date, as the refresh kinds that icefield may prove; and what differs."""
    config = node["config"]
    if config["materialized"] in ("view", "ephemeral"):
        return {"append": []}, ()
    if config["materialized"] == "table":
        return {}, ()
    notes = []
    if config.get("on_schema_change") not in (None, "ignore"):
        notes.append(f"on_schema_change: {config['on_schema_change']} - a model that changed is built again")
    if config.get("full_refresh") is False:
        notes.append("full_refresh: false - a model that changed is built again all the same")
    strategy = config.get("incremental_strategy") or ""
    if strategy == "insert_overwrite" and config.get("partition_by"):
        return _keyed(_names(config["partition_by"]), notes)
    if unique := _names(config.get("unique_key")):
        notes.append("unique_key: rows whose inputs are gone leave the table, and NULL is a key like any other")
        return _keyed(unique, notes)
    return ({} if strategy == "microbatch" else {"append": []}), tuple(notes)


def _keyed(keys: Sequence[str], notes: list[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    if all(_COLUMN.fullmatch(key) for key in keys):
        return {"by_key": list(keys)}, tuple(notes)
    return {}, (*notes, f"unique_key {', '.join(keys)} is an expression: give the model a column of it")


def _names(given: object) -> list[str]:
    return [given] if isinstance(given, str) else [str(one) for one in given] if isinstance(given, list) else []


def _described(node: Node) -> dict[str, str]:
    found = {name: (column.get("description") or "").strip() for name, column in (node.get("columns") or {}).items()}
    return {name: text for name, text in found.items() if text}


def _relations(nodes: Sequence[Node]) -> dict[Parts, str]:
    """Every relation that compiled SQL may name, with the node behind it."""
    found = {}
    for node in nodes:
        if node.get("relation_name"):
            found[parts_of(node["relation_name"])] = str(node["unique_id"])
    return found


def _placeholders(relations: Mapping[Parts, str]) -> dict[Parts, str]:
    """A short name for each relation, the same in every query: its last part, with its schema where that is not one."""
    plain = {parts: re.sub(r"\W", "_", parts[-1]) for parts in relations}
    times = Counter(plain.values())
    named = {parts: name if times[name] == 1 else re.sub(r"\W", "_", "_".join(parts)) for parts, name in plain.items()}
    return {parts: name if name[0].isalpha() else f"t_{name}" for parts, name in named.items()}


def _table(node: Node) -> str:
    return f"{node['schema']}.{node.get('alias') or node.get('identifier')}".lower()


def _order(node: Node) -> tuple[int, str]:
    return (0 if node["resource_type"] == "seed" else 1), str(node["unique_id"])
