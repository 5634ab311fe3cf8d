"""A DAG for a project: the transaction, then a task for each table in the group of its layer."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import DAG, Asset, TaskGroup, TriggerRule, get_parsing_context

from icefield.adapters.airflow.operators import MONTH, IcefieldPublished, IcefieldRunOperator, IcefieldTableOperator
from icefield.adapters.calling import Command, find_root, read_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: What is declared of a table that no longer is, while Airflow is about to run its task, which says so.
_GONE: Mapping[str, Any] = {
    "source": None, "batch": None, "inputs": [], "checks": [], "tags": [], "refresh": "", "comment": "", "location": "",
}  # fmt: skip
_NOT_IN_IDS = re.compile(r"[^\w.-]+", re.ASCII)


def dag(
    project: str | Path,
    *,
    schedule: Any = None,
    dag_id: str | None = None,
    icefield: str | Path | None = None,
    profile: str | None = None,
    select: str = "",
    exclude: str = "",
    batch: str | None = None,
    arguments: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    **options: Any,
) -> DAG:
    """A DAG that runs a project, or the selected tables of it, in one transaction.

    project: its folder; a relative path starts at the folder of the file that calls this.
    icefield: the `icefield` command; by default the one beside Airflow's Python, or the first on the PATH.
    batch: a template for the batch that a DAG run takes in, of sources that are taken in by batches; by default the
      month of the logical date. Empty: all that are due.
    arguments: further options of `icefield run`, `["--keep-going"]` for instance.
    env: environment variables for the command, beside those of Airflow's own process.
    options: all others are those of Airflow's `DAG`: start_date, catchup, default_args, ...
    """
    caller = sys._getframe(1).f_code.co_filename
    root = find_root(Path(caller).parent / Path(project).expanduser())
    parsing = get_parsing_context()
    place = ["--profile", profile] if profile else []
    manifest = read_manifest(
        Command(icefield, dict(env or {})),
        root,
        options=[*place, *(["--exclude", exclude] if exclude else []), *select.split()],
        even_if_stale=parsing.task_id is not None,  # a task that is about to run tells better what is wrong
    )
    name = dag_id or _NOT_IN_IDS.sub("_", manifest["project"])
    tables = list(manifest["tables"])
    if parsing.dag_id == name and parsing.task_id in manifest["gone"]:
        tables.append({**_GONE, "table": parsing.task_id})
    layers = sorted({_layer(one) for one in tables})
    transaction, published = (_free(task, layers) for task in ("transaction", "published"))
    shared = {"project": str(root), "icefield": icefield, "profile": profile, "env": env}
    months = any(one["batch"] for one in tables)
    options = {"max_active_runs": 1, "doc_md": _about(manifest), **options}
    options["tags"] = sorted({"icefield", *options.get("tags", ())})
    with DAG(dag_id=name, schedule=schedule, **options) as found:
        found.fileloc = caller
        begin = IcefieldRunOperator(
            task_id=transaction,
            select=select,
            exclude=exclude,
            batch=(MONTH if months else "") if batch is None else batch,
            arguments=arguments,
            doc_md="Takes in what has arrived, refreshes and checks the tables, and publishes all of them or none.",
            **shared,
        )
        prefix = f"x-icefield://{quote(manifest['project'])}{f'/{quote(profile)}' if profile else ''}"
        groups = {layer: TaskGroup(group_id=layer) for layer in layers}
        tasks = {
            one["table"]: IcefieldTableOperator(
                task_id=one["table"].partition(".")[2],
                task_group=groups[_layer(one)],
                table=one["table"],
                transaction=transaction,
                trigger_rule=TriggerRule.ALL_DONE,  # it shows what became of the table, whatever that is
                outlets=[Asset(f"{prefix}/{one['table']}")],
                doc_md=_about_table(one),
                **shared,
            )
            for one in tables
        }
        for one in tables:
            above = [tasks[table] for table in sorted(one["inputs"]) if table in tasks]
            tasks[one["table"]].set_upstream([begin, *above])
        end = IcefieldPublished(task_id=published, trigger_rule=TriggerRule.NONE_FAILED)
        end.set_upstream([begin, *tasks.values()])
    return found


def _layer(one: Mapping[str, Any]) -> str:
    return str(one["table"].partition(".")[0])


def _free(name: str, layers: Sequence[str]) -> str:
    """A name for a task that no layer has."""
    return name if name not in layers else _free(f"{name}_", layers)


def _about(manifest: Mapping[str, Any]) -> str:
    return (
        f"The tables of the icefield project **{manifest['project']}**. `transaction` publishes all of its changes at"
        " once, or none; the other tasks show what became of each table."
    )


def _about_table(one: Mapping[str, Any]) -> str:
    """What is declared of a table. No line numbers: they would make a new version of the DAG of every edit above."""
    reads = [*([one["source"]] if one["source"] else []), *one["inputs"]]
    checks = [f"- {check['check']}, otherwise {check['otherwise']}" for check in one["checks"]]
    told = {
        "": one["comment"],
        "refresh: ": one["refresh"],
        "declared in ": one["location"].rpartition(":")[0],
        "reads: ": ", ".join(reads),
        "tags: ": ", ".join(one["tags"]),
        "checks:\n\n": "\n".join(checks),
    }
    return "\n\n".join(f"{head}{text}" for head, text in told.items() if text)
