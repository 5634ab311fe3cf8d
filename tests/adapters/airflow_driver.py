"""Parses and tests DAGs in Airflow's own environment: a command a line on stdin, an answer a line on stdout.

Everything else that Airflow prints goes to stdout as well; answers are behind a mark.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from airflow.dag_processing.dagbag import BundleDagBag
from airflow.models.asset import AssetDagRunQueue, AssetEvent
from airflow.models.xcom import XComModel
from airflow.sdk.definitions._internal.dag_parsing_context import _airflow_parsing_context_manager
from airflow.sdk.definitions.context import _AIRFLOW_PARSING_CONTEXT_DAG_ID, _AIRFLOW_PARSING_CONTEXT_TASK_ID
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.db import upgradedb
from airflow.utils.session import create_session

MARK = "@@answer "
DAGS = Path(sys.argv[1])


def read(dag: str = "", task: str = "", folder: Path = DAGS) -> BundleDagBag:
    """The DAGs as the DAG processor reads them, or as a task's process does that is about to run."""
    with _airflow_parsing_context_manager(dag_id=dag, task_id=task) if task else nullcontext():
        found = BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="dags")
    for name in (_AIRFLOW_PARSING_CONTEXT_DAG_ID, _AIRFLOW_PARSING_CONTEXT_TASK_ID):
        os.environ.pop(name, None)  # Airflow leaves them: a task's process reads its DAG once
    return found


def parse(folder: str = "") -> dict[str, Any]:
    """What all files of DAGs declare."""
    bag = read(folder=Path(folder) if folder else DAGS)
    serialised = {name: DagSerialization.serialize_dag(dag) for name, dag in sorted(bag.dags.items())}
    return {
        "errors": {str(file): told for file, told in bag.import_errors.items()},
        "digest": hashlib.sha256(json.dumps(serialised, default=str).encode()).hexdigest(),
        "seconds": {Path(one.file).name: one.duration.total_seconds() for one in bag.dagbag_stats},
        "upstream": {
            name: {task.task_id: sorted(task.upstream_task_ids) for task in dag.tasks} for name, dag in bag.dags.items()
        },
        "batches": {name: getattr(dag.task_dict.get("transaction"), "batch", "") for name, dag in bag.dags.items()},
        "docs": {name: {task.task_id: task.doc_md for task in dag.tasks} for name, dag in bag.dags.items()},
    }


def run_dag(dag: str, logical_date: str | None = "", task: str = "") -> dict[str, Any]:
    """One DAG run; `task` is one whose process the DAG is read in. A logical date of None is that of an asset event."""
    found = read(dag, task).dags[dag]
    date = {} if logical_date == "" else {"logical_date": logical_date and dt.datetime.fromisoformat(logical_date)}
    run = found.test(**date)
    tasks = run.get_task_instances()
    with create_session() as session:
        events = session.query(AssetEvent).filter_by(source_dag_id=dag, source_run_id=run.run_id).all()
        xcoms = session.query(XComModel).filter_by(dag_id=dag, run_id=run.run_id, key="return_value").all()
        return {
            "state": str(run.state),
            "run_id": run.run_id,
            "tasks": {ti.task_id: str(ti.state) for ti in tasks},
            "tries": {ti.task_id: ti.try_number for ti in tasks},
            "events": {event.asset.uri: event.extra for event in events},
            "xcoms": {xcom.task_id: _value(xcom.value) for xcom in xcoms},
            "queued": sorted(row.target_dag_id for row in session.query(AssetDagRunQueue).all()),
        }


def _value(stored: Any) -> Any:
    return json.loads(stored) if isinstance(stored, str) else stored


def main() -> None:
    """Answers until stdin ends."""
    upgradedb()
    print(MARK + "{}", flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = {"parse": parse, "run": run_dag}[command.pop("do")](**command)
        except Exception:
            answer = {"raised": traceback.format_exc()}
        print(MARK + json.dumps(answer, default=str), flush=True)


if __name__ == "__main__":
    main()
