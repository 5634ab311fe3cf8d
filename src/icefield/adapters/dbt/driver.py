"""Compiles a dbt project as a full refresh, without a server: run by the Python of dbt's environment, as a script.

    python - PROJECT OUTPUT [OPTION OF dbt compile]... < driver.py

It imports dbt and nothing of icefield. What it leaves in the folder OUTPUT is dbt's own `manifest.json`, and
`answer.json`: what could not be compiled and why, and the types that dbt infers for the columns of seeds.

dbt asks the database which tables there are, even when it only compiles: `is_incremental()` does. The answer of a full
refresh into an empty database is known, none, so dbt's cache is told that, and no connection is opened. A macro that
runs any other query cannot be compiled without a database; the model that calls it is named, the others go on.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

from dbt.adapters.factory import get_adapter
from dbt.adapters.sql import SQLConnectionManager
from dbt.cli.main import dbtRunner
from dbt.task.compile import CompileTask
from dbt_common.clients import agate_helper
from dbt_common.exceptions import DbtRuntimeError

QUERY = "it runs a query while it is compiled"


def main(project: str, output: str, *options: str) -> int:
    """Compiles; the exit code is not 0 where there is no manifest to go on with."""
    CompileTask.populate_adapter_cache = _nothing_is_built
    CompileTask.raise_on_first_error = lambda self: False
    CompileTask.after_run = _remember_the_task
    SQLConnectionManager.add_query = _refused
    command = ["--quiet", "--no-use-colors", "--no-send-anonymous-usage-stats", "compile", "--full-refresh"]
    places = ["--project-dir", project, "--target-path", output, "--log-path", output, "--no-partial-parse"]
    profile = [] if "--target" in options else _profile(project, output)
    done = dbtRunner().invoke([*command, *places, *profile, *options])
    if not _tasks or done.result is None:
        sys.stderr.write(str(done.exception or "dbt compile ended without a result"))
        return 1
    answer = {
        "adapter": _tasks[0].config.credentials.type,
        "errors": {one.node.unique_id: str(one.message) for one in done.result.results if one.status != "success"},
        "seeds": _seeds(_tasks[0]),
    }
    Path(output, "answer.json").write_text(json.dumps(answer), encoding="utf-8")
    return 0


def _profile(project: str, output: str) -> list[str]:
    """A profile of dbt-spark, to nowhere; its schema has the name of the project."""
    text = Path(project, "dbt_project.yml").read_text(encoding="utf-8")
    found = re.search(r"^name:\s*['\"]?(\w+)", text, re.MULTILINE)
    spark = {
        "type": "spark",
        "method": "session" if importlib.util.find_spec("pyspark") else "thrift",
        "host": "none",
        "user": "none",
        "schema": found[1] if found else "dbt",
        "threads": 1,
    }
    content = {"icefield": {"target": "icefield", "outputs": {"icefield": spark}}}
    Path(output, "profiles.yml").write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML
    return ["--profiles-dir", output, "--profile", "icefield"]


_tasks: list[Any] = []


def _remember_the_task(self: Any, _adapter: Any, _results: Any) -> None:
    _tasks.append(self)


def _nothing_is_built(self: Any, adapter: Any, required_schemas: Any = None) -> None:
    """In place of asking the database: every schema that the project writes to is known, and has no table."""
    schemas = set()
    for node in [*self.manifest.nodes.values(), *self.manifest.sources.values()]:
        relation = adapter.Relation.create_from(self.config, node)
        schemas |= {(relation.database, relation.schema), (None, relation.schema)}
    adapter.cache.update_schemas(schemas)


def _refused(*_arguments: Any, **_options: Any) -> Any:
    raise DbtRuntimeError(QUERY)


def _seeds(task: Any) -> dict[str, dict[str, str]]:
    """The columns of each seed with the types that dbt gives them, as `dbt seed` does."""
    adapter, found = get_adapter(task.config), {}
    for node in task.manifest.nodes.values():
        if node.resource_type == "seed":
            types = node.config.column_types
            table = agate_helper.from_csv(
                Path(node.root_path or task.config.project_root, node.original_file_path),
                text_columns=list(types),
                delimiter=node.config.delimiter,
            )
            inferred = {name: adapter.convert_type(table, place) for place, name in enumerate(table.column_names)}
            found[node.unique_id] = {**inferred, **{name: types[name] for name in inferred if name in types}}
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
