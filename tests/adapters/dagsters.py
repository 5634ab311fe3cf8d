"""Dagster as its users run it: `dagster dev` with its web server and daemon, asked by GraphQL."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from projects import SOURCES, until

HOME = "telemetry:\n  enabled: false\n"
ENDED = ("SUCCESS", "FAILURE", "CANCELED")

LAUNCH = """mutation ($params: ExecutionParams!) { launchRun(executionParams: $params) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on Error { message } } }"""
BACKFILL = """mutation ($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on Error { message } } }"""
RUNS = """{ runsOrError { ... on Runs { results {
  runId status jobName tags { key value } startTime endTime } } } }"""
LOCATIONS = """{ workspaceOrError { ... on Workspace { locationEntries { name loadStatus
  locationOrLoadError { __typename ... on PythonError { message } } } } } }"""
ASSETS = """{ assetsOrError { ... on AssetConnection { nodes { key { path } assetMaterializations {
  runId partition metadataEntries { label ... on IntMetadataEntry { intValue } } } } } } }"""
LOGS = """query ($run: ID!) { logsForRun(runId: $run) { ... on EventConnection { events {
  __typename ... on MessageEvent { message } ... on ExecutionStepFailureEvent { error { message } } } } } }"""


class Server:
    """A running `dagster dev`."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/graphql"

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(self.url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            told = json.load(answer)
        assert "errors" not in told, told["errors"]
        return dict(told["data"])

    def launch(self, location: str, job: str, tags: Mapping[str, str] | None = None) -> str:
        selector = {"repositoryLocationName": location, "repositoryName": "__repository__", "jobName": job}
        told = [{"key": key, "value": value} for key, value in (tags or {}).items()]
        params = {"selector": selector, "runConfigData": "{}", "executionMetadata": {"tags": told}}
        done = self.ask(LAUNCH, params=params)["launchRun"]
        assert done["__typename"] == "LaunchRunSuccess", done
        return str(done["run"]["runId"])

    def backfill(self, location: str, job: str, partitions: list[str]) -> str:
        repository = {"repositoryLocationName": location, "repositoryName": "__repository__"}
        selector = {"partitionSetName": f"{job}_partition_set", "repositorySelector": repository}
        done = self.ask(BACKFILL, params={"selector": selector, "partitionNames": partitions})[
            "launchPartitionBackfill"
        ]
        assert done["__typename"] == "LaunchBackfillSuccess", done
        return str(done["backfillId"])

    def runs(self, job: str) -> list[dict[str, Any]]:
        """The runs of a job, the oldest first."""
        found = self.ask(RUNS)["runsOrError"]["results"]
        return [
            {**one, "tags": {tag["key"]: tag["value"] for tag in one["tags"]}}
            for one in found[::-1]
            if one["jobName"] == job
        ]

    def ended(self, job: str, count: int, seconds: float = 300) -> list[dict[str, Any]]:
        """So many runs of a job, once all of them have ended."""

        def all_of_them() -> list[dict[str, Any]]:
            found = self.runs(job)
            return found if len(found) >= count and all(one["status"] in ENDED for one in found) else []

        found: list[dict[str, Any]] = until(all_of_them, seconds, what=f"{count} runs of {job} have ended")
        bad = [one["runId"] for one in found if one["status"] != "SUCCESS"]
        assert not bad, "\n".join(map(self.log, bad))
        return found

    def log(self, run: str) -> str:
        events = self.ask(LOGS, run=run)["logsForRun"]["events"]
        return "\n".join((one.get("error") or one).get("message", "") for one in events)

    def materialized(self) -> dict[str, list[dict[str, Any]]]:
        """What was materialized of each asset, the newest first."""
        nodes = self.ask(ASSETS)["assetsOrError"]["nodes"]
        return {"/".join(one["key"]["path"]): one["assetMaterializations"] for one in nodes}


@contextmanager
def dagster_dev(
    python: Path, folder: Path, files: Mapping[str, Path], environment: Mapping[str, str]
) -> Iterator[Server]:
    """Starts it over some files of definitions, each a code location; everything ends with the block."""
    (home := folder / "dagster_home").mkdir(parents=True)
    (home / "dagster.yaml").write_text(HOME)
    entries = [
        f"  - python_file:\n      relative_path: {file}\n      location_name: {name}\n" for name, file in files.items()
    ]
    (folder / "workspace.yaml").write_text("load_from:\n" + "".join(entries))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        str(python),
        "-m",
        "dagster",
        "dev",
        "-h",
        "127.0.0.1",
        "-p",
        str(port),
        "-w",
        str(folder / "workspace.yaml"),
    ]
    paths = os.pathsep.join(filter(None, [str(SOURCES), os.environ.get("PYTHONPATH")]))
    given = {**os.environ, **environment, "DAGSTER_HOME": str(home), "PYTHONPATH": paths}
    log = folder / "dagster_dev.log"
    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=folder, env=given, stdout=out, stderr=out, start_new_session=True)
        try:
            server = Server(port)
            until(lambda: _is_up(server, process, log), 180, what="dagster dev answers")
            yield server
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


def _is_up(server: Server, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()[-3000:]
    try:
        entries = server.ask(LOCATIONS)["workspaceOrError"]["locationEntries"]
    except (urllib.error.URLError, ConnectionError):
        return False
    errors = [one["locationOrLoadError"] for one in entries if (one["locationOrLoadError"] or {}).get("message")]
    assert not errors, errors
    return bool(entries) and all(one["loadStatus"] == "LOADED" for one in entries)
