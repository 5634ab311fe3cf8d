"""Airflow's operators for a project: one carries out the transaction, one shows what became of a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, TaskInstanceState
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from icefield.adapters.calling import Command, read_manifest, table_result
from icefield.errors import IcefieldError
from icefield.words import plural, seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from icefield.adapters.calling import TableResult

#: The month of a DAG run, in the DAG's time zone; empty for runs without a logical date, which take in what is due.
MONTH = "{{ logical_date.in_timezone(dag.timezone).strftime('%Y-%m') if logical_date is defined else '' }}"


class _Icefield(BaseOperator):
    """What the operators have in common: a project, and the command that knows it."""

    def __init__(
        self,
        *,
        project: str | Path,
        icefield: str | Path | None = None,
        profile: str | None = None,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.project = str(project)
        self.icefield = None if icefield is None else str(icefield)
        self.profile = profile
        self.env = dict(env or {})
        self._command: Command | None = None

    def on_kill(self) -> None:
        """The task was cleared, marked or ran out of time: the run is abandoned."""
        if self._command is not None:
            self._command.stop()

    def _called(self) -> Command:
        self._command = Command(self.icefield, self.env)
        return self._command

    @property
    def _place(self) -> list[str]:
        return ["--project", self.project, *(["--profile", self.profile] if self.profile else [])]


class IcefieldRunOperator(_Icefield):
    """Carries out one transaction: `icefield run`. Trying it again is safe: what was published is not done twice.

    `batch` is a template for the value of `--batch`; empty: all batches that are due. `arguments` are further options
    of `icefield run`.
    """

    template_fields: Sequence[str] = ("batch",)
    ui_color = "#d6eaf8"

    def __init__(
        self,
        *,
        select: str = "",
        exclude: str = "",
        batch: str = "",
        arguments: Sequence[str] = (),
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.select = select
        self.exclude = exclude
        self.batch = batch
        self.arguments = list(arguments)

    def execute(self, context: Context) -> dict[str, Any]:
        """Runs to the end; a failure is told in icefield's own words."""
        try:
            done = self._called().call(self._run(label_of(context, self.task_id)), tell=self.log.info)
        except IcefieldError as error:
            raise AirflowException(str(error)) from None
        if done.code:
            raise AirflowException(done.error)
        result = json.loads(done.out)
        changed = [table for table in result["tables"] if table["rows_added"] or table["rows_removed"]]
        runs = f" by {plural(len(result['runs']), 'run')}" if len(result["runs"]) > 1 else ""
        self.log.info(
            "%s%s: %s changed, %s", result["status"], runs, plural(len(changed), "table"), seconds(result["seconds"])
        )
        return {"status": result["status"], "runs": result["runs"], "seconds": result["seconds"]}

    def _run(self, label: str) -> list[str]:
        chosen = {"--select": self.select, "--exclude": self.exclude, "--batch": self.batch.strip()}
        options = [part for option, value in chosen.items() if value for part in (option, value)]
        return ["run", "--json", "--label", label, *options, *self._place, *self.arguments]


class IcefieldTableOperator(_Icefield):
    """Shows what a transaction did to one table: rows, checks and time, read from the lake.

    It succeeds, and its assets are updated, where the table's rows changed; it is skipped where they did not, and fails
    where the table did. `transaction` is the id of the task with the run.
    """

    ui_color = "#e8f8f5"

    def __init__(self, *, table: str, transaction: str = "transaction", **options: Any) -> None:
        super().__init__(**options)
        self.table = table
        self.transaction = transaction

    def execute(self, context: Context) -> dict[str, Any]:
        """Reads what is recorded of the runs of this DAG run: they are known by their label, not by what tasks said."""
        succeeded = _state_of(context, self.transaction) == TaskInstanceState.SUCCESS
        try:
            found = self._result(label_of(context, self.transaction), succeeded=succeeded)
        except IcefieldError as error:
            raise AirflowException(str(error)) from None
        if found is None:
            raise AirflowSkipException(
                f"nothing new for {self.table}"
                if succeeded
                else f"nothing is recorded of {self.table}: see the log of the task `{self.transaction}`"
            )
        for line in found.lines:
            self.log.info("%s", line)
        if found.status == "failed":
            raise AirflowFailException(found.told)
        if found.status == "not published":
            raise AirflowSkipException(found.told)
        self.log.info("%s", found.told)
        extra = {name: value for name, value in found.facts.items() if name != "checks"}
        for outlet in self.outlets:
            context["outlet_events"][outlet].extra = extra
        return dict(found.facts)

    def _result(self, label: str, *, succeeded: bool) -> TableResult | None:
        runs = self._called().json(["runs", "--json", "--label", label, *self._place])
        found = table_result(runs, self.table, succeeded=succeeded)
        if found is None and succeeded:
            self._require_declared()
        return found

    def _require_declared(self) -> None:
        """A table that is no longer declared has not been refreshed, which is no success."""
        profile = ["--profile", self.profile] if self.profile else []
        declared = read_manifest(self._called(), Path(self.project), options=profile)
        if all(one["table"] != self.table for one in declared["tables"]):
            raise AirflowFailException(
                f"{self.table} is no longer declared in {self.project}, so this run has not refreshed it;"
                " its task disappears when Airflow parses the DAG again, and its rows stay in the lake"
            )


class IcefieldPublished(BaseOperator):
    """Succeeds where the transaction and all tables did or had nothing to do: what comes after is not skipped.

    It also is the last task, by which Airflow decides whether a DAG run has failed. No process is started for it.
    """

    inherits_from_empty_operator = True
    ui_color = "#ffffff"

    def execute(self, context: Context) -> None:
        """Nothing is left to do."""


def _state_of(context: Context, task_id: str) -> str | None:
    """The state of another task of the same DAG run."""
    ti: Any = context["ti"]
    states = ti.get_task_states(dag_id=ti.dag_id, task_ids=[task_id], run_ids=[ti.run_id])
    state: str | None = states.get(ti.run_id, {}).get(task_id)
    return state


def label_of(context: Context, transaction: str) -> str:
    """The label of the runs of a DAG run; every try of the transaction has the same."""
    ti: Any = context["ti"]
    return f"airflow/{ti.dag_id}/{ti.run_id}/{transaction}"
