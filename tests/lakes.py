"""Commits to a lake without Spark: PyIceberg appends on a branch are enough to make tables, history and races.

python tests/lakes.py publish ROOT RUN TABLE=VALUE...    # one publish, for the sake of being killed or paused in it
python tests/lakes.py soak ROOT NAME                     # publishes from a line on stdin until stdin ends
"""

from __future__ import annotations

import select
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from icefield.lake.branch import Branch, new_branch_name
from icefield.lake.embedded import EmbeddedLake, new_run_id, now_ms
from icefield.lake.ops import Journal, at

if TYPE_CHECKING:
    import pyarrow as pa


def new_lake(root: Path) -> EmbeddedLake:
    lake = EmbeddedLake(root)
    lake.create()
    return lake


def open_branch(lake: EmbeddedLake, run: str = "") -> Branch:
    return Branch(lake, new_branch_name(), run or new_run_id())


def write(branch: Branch, table: str, *values: int) -> None:
    """Appends rows to a table of the branch, and makes it if it is new."""
    import pyarrow as pa
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField

    catalog = branch.pyiceberg()
    branch.lake.catalog.add_namespace(branch.name, table.split(".")[0])
    branch.prepare(table)
    if branch.base.get(table):
        found = catalog.load_table(table)
    else:
        schema = Schema(NestedField(1, "value", LongType(), required=False))
        folder, properties = str(branch.lake.table_folder(table)), branch.own_properties(table)
        found = catalog.create_table(table, schema=schema, location=folder, properties=properties)
    found.append(pa.table({"value": pa.array(values, pa.int64())}), snapshot_properties={"icefield.run": branch.run})
    catalog.close()


def told(run: str, status: str = "published") -> Journal:
    """The history of a run that has nothing else to tell."""
    return Journal(runs=[{"run": run, "status": status, "started_at": at(now_ms()), "finished_at": at(now_ms())}])


def publish(lake: EmbeddedLake, tables: dict[str, list[int]], run: str = "", batch: str = "") -> Branch:
    """Opens a branch, appends to tables, and publishes them."""
    branch = open_branch(lake, run)
    for table, values in tables.items():
        write(branch, table, *values)
    return finish(branch, tables, batch)


def finish(branch: Branch, tables: Iterable[str], batch: str = "") -> Branch:
    """Publishes what was written to tables of a branch."""
    summary = {"icefield.batch": batch} if batch else {}
    properties = {table: {"icefield.run": branch.run} for table in tables}
    branch.publish(properties, told(branch.run), summaries=dict.fromkeys(properties, summary))
    return branch


def change(branch: Branch, table: str, rows: pa.Table, *, replacing: str = "", partitioned_by: str = "") -> None:
    """Appends rows of any columns to a table of the branch, in place of those that a condition meets if one is given.

    `partitioned_by` is a transform and a column, `identity(day)`, for a table that is new.
    """
    catalog = branch.pyiceberg()
    branch.lake.catalog.add_namespace(branch.name, table.split(".")[0])
    branch.prepare(table)
    told = {"icefield.run": branch.run}
    if branch.base.get(table):
        found = catalog.load_table(table)
    else:
        folder, properties = str(branch.lake.table_folder(table)), branch.own_properties(table)
        found = catalog.create_table(table, schema=rows.schema, location=folder, properties=properties)
        if partitioned_by:
            transform, column = partitioned_by.rstrip(")").split("(")
            with found.update_spec() as spec:
                spec.add_field(column, transform, f"{column}_{transform}")
    if replacing:
        found.overwrite(rows, replacing, snapshot_properties=told)
    else:
        found.append(rows, snapshot_properties=told)
    catalog.close()


def _soak(lake: EmbeddedLake, name: str) -> None:
    """Publishes one table of its own and the common history, over and over; tells how often at the end."""
    import pyiceberg.catalog.sql  # noqa: F401 - slow to import, and the race is to begin at once

    print("ready", flush=True)
    sys.stdin.readline()
    count = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        publish(lake, {f"soak.{name}": [count]}, f"{name}-{count}")
        count += 1
    print(count, flush=True)


def main(what: str, root: str, *rest: str) -> None:
    lake = EmbeddedLake(Path(root))
    if what == "soak":
        _soak(lake, rest[0])
    else:
        run, *wanted = rest
        publish(lake, {table: [int(value)] for table, value in (one.split("=") for one in wanted)}, run)


if __name__ == "__main__":
    main(*sys.argv[1:])
