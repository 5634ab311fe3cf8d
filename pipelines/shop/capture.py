"""Capture: the shop's database as Debezium sends it: raw events, typed events, the tables as they are, their history."""

from typing import NamedTuple

from pyspark.sql import DataFrame

from icefield import append, by_key, cdc, debezium, expect, lookup, not_null, table, unique


class Captured(NamedTuple):
    """A table of the database: its primary key and its columns."""

    keys: list[str]
    schema: str


SHOP = {
    "customers": Captured(["id"], "id BIGINT, email STRING, name STRING, city STRING, notes STRING"),
    "products": Captured(["id"], "id BIGINT, sku STRING, name STRING, price DECIMAL(12,2)"),
    "orders": Captured(["id"], "id BIGINT, customer_id BIGINT, status STRING, placed_at TIMESTAMP"),
    "order_lines": Captured(
        ["order_id", "line_no"],
        "order_id BIGINT, line_no INT, product_id BIGINT, quantity INT, unit_price DECIMAL(12,2)",
    ),
}


def captured(name: str, keys: list[str], schema: str) -> None:
    """Declare all tables of a captured one, from its events to its history."""
    raw, parsed, truncates = f"raw.{name}_events", f"parsed.{name}", f"parsed.{name}_truncates"
    key = cdc.key_of(schema, keys)
    columns = [column.split()[0] for column in schema.split(", ")]
    has_key = " AND ".join(f"{text} IS NOT NULL" for text in key.values())

    @table(
        raw,
        source=debezium(f"shop.public.{name}"),
        refresh=append(),
        checks=[not_null("op", "lsn"), expect("the event names its row", f"op = 't' OR ({has_key})")],
        otherwise="quarantine",
        tags=["raw", name],
    )
    def events(messages: DataFrame) -> DataFrame:
        """Every change of a row as Debezium sent it, once or more."""
        return messages

    @table(truncates, inputs={"events": raw}, refresh=append(), tags=["parsed", name])
    def truncated(events: DataFrame) -> DataFrame:
        """Every TRUNCATE: it has no key and concerns all rows, so `parsed` looks it up. Each one rebuilds `parsed`."""
        return events.where("op = 't'").select("op", "partition", "offset", "lsn", "tx_id", "source_ts")

    @table(
        parsed,
        inputs={"events": raw, "truncates": lookup(truncates)},
        refresh=by_key(**key),
        checks=[
            unique(*keys, "sequence"),
            expect("every value fits its column", "misfit IS NULL", otherwise="fail"),
            expect("every value is known", "unavailable IS NULL", otherwise="warn"),
            expect("every column is declared", "undeclared IS NULL", otherwise="warn"),
        ],
        tags=["parsed", name],
    )
    def typed(events: DataFrame, truncates: DataFrame) -> DataFrame:
        """One row an event, typed, in the order of its key."""
        return cdc.parse(events, schema, keys, truncates=truncates)

    @table(
        f"current.{name}",
        inputs={"events": parsed},
        refresh=by_key(*keys),
        checks=[unique(*keys)],
        tags=["current", name],
    )
    def current(events: DataFrame) -> DataFrame:
        """The rows of the database as they are now."""
        return cdc.latest(events, keys, sequence_by="sequence").select(*columns)

    @table(
        f"history.{name}",
        inputs={"events": parsed},
        refresh=by_key(*keys),
        checks=[unique(*keys, "sequence"), expect("ends after it begins", "valid_to >= valid_from")],
        tags=["history", name],
    )
    def history(events: DataFrame) -> DataFrame:
        """Every state that a row has had, with the time in which it was valid."""
        states = cdc.history(events, keys, sequence_by="sequence", valid_from="event_time")
        return states.select(*columns, "sequence", "valid_from", "valid_to", "is_current")


for name, table_of_shop in SHOP.items():
    captured(name, table_of_shop.keys, table_of_shop.schema)
