"""History as ordinary Iceberg tables under `ops.*`, appended by PyIceberg on the run's branch and published with it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from icefield.failpoint import failpoint
from icefield.lake import metadata as meta

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyiceberg.catalog import Catalog

    from icefield.lake.branch import Branch

Row = dict[str, Any]

#: Columns of each table: name -> (type, what it says).
TABLES: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "ops.runs": {
        "run": ("string", "the run's id"),
        "project": ("string", "the project"),
        "status": ("string", "published, failed or died"),
        "started_at": ("timestamp", "when it started"),
        "finished_at": ("timestamp", "when it was published, failed or was found dead"),
        "selection": ("string", "the tables that were selected; empty: all"),
        "tables_changed": ("long", "tables whose rows this run changed"),
        "rows_added": ("long", "rows added, summed over all declared tables"),
        "rows_quarantined": ("long", "rows sent to quarantine"),
        "error": ("string", "why it failed"),
        "version": ("string", "the version of icefield"),
        "batch": ("string", "the batch that it was to take in; empty: none"),
        "label": ("string", "the label given with `--label`; empty: none"),
    },
    "ops.table_runs": {
        "run": ("string", "the run's id"),
        "table": ("string", "the table"),
        "action": ("string", "what was done: build, append, update, refresh, rebuild, note or none"),
        "reason": ("string", "why"),
        "status": ("string", "published, unchanged, failed, skipped, or abandoned with a failed run"),
        "rows_added": ("long", "rows this run wrote"),
        "rows_removed": ("long", "rows this run removed"),
        "rows_quarantined": ("long", "rows this run sent to quarantine"),
        "rows_dropped": ("long", 'rows dropped by a check with `otherwise="drop"`, or discarded by a user'),
        "rows_total": ("long", "rows in the table afterwards"),
        "seconds": ("double", "time spent on the table"),
        "epoch": ("long", "how many times all of its rows were replaced"),
        "number": ("long", "how many publishes have changed its rows so far"),
        "snapshot": ("long", "the Iceberg snapshot"),
        "fingerprint": ("string", "fingerprint of the code that built it"),
        "promise": (
            "string",
            "its refresh kind's promise: proven, trusted, untried (trusted, too little data) or full",
        ),
        "error": ("string", "why it failed"),
    },
    "ops.checks": {
        "run": ("string", "the run's id"),
        "table": ("string", "the table the check belongs to"),
        "check": ("string", "the check's name"),
        "kind": ("string", "row, unique, references, table, fresh, reconciles or rejected (`max_rejected`)"),
        "otherwise": ("string", "what happens if it fails"),
        "status": (
            "string",
            "passed, warned, dropped, quarantined, failed, error or deferred (a table is not built)",
        ),
        "failed_rows": ("long", "rows that failed it"),
        "detail": ("string", "observed values, for checks on whole tables"),
        "seconds": ("double", "time the check took, if measured separately"),
    },
    "ops.files": {
        "table": ("string", "the table that ingested the file"),
        "path": ("string", "the file, relative to the project"),
        "run": ("string", "the run that recorded it"),
        "status": ("string", "taken, touched, replaced, or withdrawn with its rows"),
        "size": ("long", "bytes"),
        "modified_ns": ("long", "time of last change, nanoseconds since 1970"),
        "sha256": ("string", "digest of the content"),
        "rows": ("long", "rows read from it, malformed ones included"),
        "taken_at": ("timestamp", "start of the run that first ingested it"),
        "arrival": ("long", "position in the order of arrival"),
        "sequence": ("long", "increases each time the table records files: the highest is current"),
    },
    "ops.offsets": {
        "table": ("string", "the table that ingested the messages"),
        "topic": ("string", "the topic"),
        "topic_id": ("string", "Kafka's id of the topic: another one of the same name has another id"),
        "partition": ("long", "the partition"),
        "start_offset": ("long", "the first offset of the range"),
        "end_offset": ("long", "the offset after the last one"),
        "run": ("string", "the run that recorded it"),
        "status": ("string", "taken, or lost (accepted by a user)"),
        "messages": ("long", "messages read, malformed ones included; transactions and compaction leave holes"),
        "taken_at": ("timestamp", "start of the run that ingested it"),
        "arrival": ("long", "position in the order of arrival"),
        "detail": ("string", "what was lost"),
    },
    "ops.reads": {
        "table": ("string", "the table that ingested the rows"),
        "relation": ("string", "the table or view in the database"),
        "cursor": ("string", "the cursor column; empty: the relation was read whole"),
        "after": ("string", "the cursor's value above which rows were read; empty: from the beginning"),
        "upto": ("string", "the cursor's value up to which rows were read"),
        "rows": ("long", "rows read, malformed ones included"),
        "digest": ("string", "sum of the digests of these rows"),
        "late": ("string", "digests of rows that came with the value `after` itself, once it had been read"),
        "ties": ("string", "digests of all rows that were read with the value `upto`"),
        "run": ("string", "the run that read them"),
        "taken_at": ("timestamp", "start of that run"),
        "arrival": ("long", "position in the order of arrival; 0 where the relation was read whole"),
    },
    "ops.repairs": {
        "table": ("string", "the table whose quarantine it applies to"),
        "number": ("long", "position in the order of decisions for this table"),
        "run": ("string", "the run that applied it first"),
        "kind": ("string", "replay or discard"),
        "condition": ("string", "which quarantined rows, in Spark SQL"),
        "assign": ("string", "columns to set, as JSON pairs of name and Spark SQL"),
        "reason": ("string", "the reason given by the user"),
        "decided_at": ("timestamp", "when"),
    },
    "ops.repaired": {
        "table": ("string", "the table whose quarantine it applies to"),
        "number": ("long", "the decision's number in `ops.repairs`"),
        "arrival": ("long", "the row's file, range of offsets or read: its position in the order of arrival"),
        "line": ("long", "the row's line in that file, its offset, or its digest"),
        "sha256": (
            "string",
            "digest of the file's content, or id of the topic: the decision does not apply to a corrected file",
        ),
    },
}


@dataclass(slots=True)
class Journal:
    """What one run writes into `ops.*`; kept in memory so that a lost race can write it again."""

    runs: list[Row] = field(default_factory=list)
    table_runs: list[Row] = field(default_factory=list)
    checks: list[Row] = field(default_factory=list)
    files: list[Row] = field(default_factory=list)
    offsets: list[Row] = field(default_factory=list)
    reads: list[Row] = field(default_factory=list)
    repairs: list[Row] = field(default_factory=list)
    #: As many as rows waited, which may be a great many.
    repaired: pa.Table | None = None

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables this journal has rows for; `ops.runs` always, since it is the proof of publishing."""
        return tuple(name for name in TABLES if name == "ops.runs" or self._rows(name))

    def append(self, branch: Branch) -> None:
        """Writes the rows on a branch."""
        failpoint("ops.before")
        catalog = branch.pyiceberg()
        branch.lake.catalog.add_namespace(branch.name, "ops")
        for name in self.tables:
            branch.prepare(name)
            table = _table(catalog, branch, name)
            table.append(self._arrow(name), snapshot_properties={meta.RUN: branch.run})
        failpoint("ops.appended")

    def _rows(self, name: str) -> list[Row] | pa.Table | None:
        rows: list[Row] | pa.Table | None = getattr(self, name.removeprefix("ops."))
        return rows

    def _arrow(self, name: str) -> pa.Table:
        import pyarrow as pa

        rows, schema = self._rows(name), _arrow_schema(name)
        if isinstance(rows, pa.Table):
            return rows.select(schema.names).cast(schema)
        return pa.Table.from_pylist(rows or [], schema=schema)


def _table(catalog: Catalog, branch: Branch, name: str) -> Any:
    if branch.base.get(name):
        return _with_every_column(catalog.load_table(name), name)
    properties = {"format-version": "2", "write.parquet.compression-codec": "zstd", **meta.MERGING}
    properties |= branch.own_properties(name)
    return catalog.create_table(
        name, schema=_schema(name), location=str(branch.lake.table_folder(name)), properties=properties
    )


def _with_every_column(table: Any, name: str) -> Any:
    """The table, with columns that versions since the one that made it write as well."""
    wanted = _schema(name)
    missing = [field for field in wanted.fields if field.name not in table.schema().column_names]
    if missing:
        with table.update_schema() as update:
            for field in missing:
                update.add_column(field.name, field.field_type, doc=field.doc)
    return table


def _schema(name: str) -> Any:
    from pyiceberg.schema import Schema
    from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestamptzType

    types = {"string": StringType(), "long": LongType(), "double": DoubleType(), "timestamp": TimestamptzType()}
    return Schema(
        *(
            NestedField(index, column, types[kind], required=False, doc=doc)
            for index, (column, (kind, doc)) in enumerate(TABLES[name].items(), 1)
        )
    )


def _arrow_schema(name: str) -> pa.Schema:
    import pyarrow as pa

    types = {"string": pa.string(), "long": pa.int64(), "double": pa.float64(), "timestamp": pa.timestamp("us", "UTC")}
    return pa.schema([(column, types[kind]) for column, (kind, _) in TABLES[name].items()])


def at(ms: int) -> dt.datetime:
    """A time in milliseconds as the tables store it."""
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC)
