"""Where the driver's own work ends and Spark's begins; tests pass other values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of what the driver reads and holds."""

    #: Landed bytes that threads of the driver read while Spark starts; more are read by Spark's tasks.
    driver_bytes: int = 1 << 30
    #: How much of a file a worker reads at a time.
    split_bytes: int = 32 << 20
    #: Messages of topics that the driver reads, and how many bytes these may have; more are read by Spark's tasks.
    driver_messages: int = 200_000
    driver_message_bytes: int = 256 << 20
    #: How many messages a worker reads at a time.
    split_messages: int = 200_000
    #: So many rows, of so many bytes in all, travel to Spark inside of a query; more by a file.
    local_rows: int = 50_000
    local_bytes: int = 32 << 20
    #: Bytes of rows that the driver holds, and what a query may read so that it is collected; more goes to files.
    held_bytes: int = 32 << 20
    #: What a query may read so that all of its result comes to the driver on its way to a table: some 100,000 rows.
    appended_bytes: int = 4 << 20
    #: Rows of the driver enter Spark as one partition for each so many bytes.
    one_partition_bytes: int = 4 << 20
    #: Bytes of key columns, and of delete files, that the driver reads to find the rows of some keys in a large table,
    #: and how many of them it takes out; where there are more, Spark merges.
    key_bytes: int = 64 << 20
    deleted_rows: int = 100_000
    #: Rejected rows that the driver gathers; more are decided about and gathered by Spark's tasks.
    driver_rejects: int = 100_000
    #: Rows of which the driver reads single columns for checks; of more, Spark compares them.
    compared_rows: int = 20_000_000
    #: The same on a cluster, whose driver is to hold no more where there are more rows.
    compared_on_cluster: int = 100_000


LIMITS = Limits()


def is_local(master: str) -> bool:
    """Whether Spark works in the driver's own process."""
    return master.startswith("local")


def compared_rows() -> int:
    """Rows of which the driver reads single columns."""
    from pyspark import SparkContext  # noqa: PLC0415 - limits are read while Spark starts

    context = SparkContext._active_spark_context
    local = context is None or is_local(str(context.master))
    return LIMITS.compared_rows if local else LIMITS.compared_on_cluster
