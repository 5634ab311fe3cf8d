"""The shop's tables in Polars, written by PyIceberg to Iceberg tables with a SQLite catalog: no checks, no transaction.

    python bench/polars_pyiceberg.py LANDING OUT

Values that do not fit their type become NULL. Each frame is kept in memory for the tables that are made from it.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from pyiceberg.catalog.sql import SqlCatalog

if TYPE_CHECKING:
    from collections.abc import Mapping

TIME = pl.Datetime("us")
MONEY = pl.Decimal(18, 2)
FEEDS: dict[str, tuple[str, dict[str, pl.DataType | type[pl.DataType]]]] = {
    "customer_events": (
        "web",
        {
            "event_id": pl.Int64,
            "customer_id": pl.Int64,
            "session_id": pl.String,
            "event_type": pl.String,
            "product_id": pl.Int64,
            "event_timestamp": TIME,
            "device": pl.String,
            "referrer": pl.String,
            "page_url": pl.String,
        },
    ),
    "payment_transactions": (
        "payments",
        {
            "transaction_id": pl.Int64,
            "customer_id": pl.Int64,
            "product_id": pl.Int64,
            "amount": pl.Decimal(12, 2),
            "currency": pl.String,
            "payment_method": pl.String,
            "status": pl.String,
            "transaction_timestamp": TIME,
        },
    ),
    "inventory_snapshots": (
        "warehouse",
        {
            "snapshot_id": pl.Int64,
            "product_id": pl.Int64,
            "warehouse_id": pl.Int32,
            "stock_quantity": pl.Int32,
            "reorder_level": pl.Int32,
            "avg_daily_sales": pl.Float64,
            "snapshot_timestamp": TIME,
        },
    ),
    "support_tickets": (
        "support",
        {
            "ticket_id": pl.Int64,
            "customer_id": pl.Int64,
            "category": pl.String,
            "priority": pl.String,
            "created_at": TIME,
            "first_response_at": TIME,
            "resolved_at": TIME,
            "satisfaction_score": pl.Int32,
        },
    ),
}
SLA_HOURS = {"critical": (1, 4), "high": (4, 24), "medium": (8, 72), "low": (24, 168)}

STARTED = time.perf_counter()
c = pl.col


class Lake:
    def __init__(self, out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self.catalog = SqlCatalog("lake", uri=f"sqlite:///{out / 'catalog.db'}", warehouse=f"file://{out}")
        for layer in ("bronze", "silver", "gold"):
            self.catalog.create_namespace(layer)

    def write(self, table: str, rows: pl.LazyFrame) -> pl.LazyFrame:
        frame = rows.collect()
        arrow = frame.to_arrow()
        properties = {"format-version": "2", "write.parquet.compression-codec": "zstd"}
        self.catalog.create_table(table, arrow.schema, properties=properties).append(arrow)
        print(f"{time.perf_counter() - STARTED:6.1f} s  {table}", flush=True)
        return frame.lazy()


def landed(
    landing: Path, feed: str, system: str, schema: Mapping[str, pl.DataType | type[pl.DataType]], now: datetime
) -> pl.LazyFrame:
    rows = pl.scan_csv(
        landing / feed / "*.csv",
        schema=dict(schema),
        ignore_errors=True,
        truncate_ragged_lines=True,
        encoding="utf8-lossy",
        include_file_paths="source_file",
    )
    return rows.select(
        *[c(name).dt.replace_time_zone("UTC") if kind == TIME else c(name) for name, kind in schema.items()],
        pl.lit(now).alias("ingested_at"),
        pl.lit(system).alias("source_system"),
        (pl.lit(f"landing/{feed}/") + c("source_file").str.split("/").list.last()).alias("source_file"),
    )


def customer_sessions(events: pl.LazyFrame) -> pl.LazyFrame:
    visits = events.group_by("customer_id", "session_id").agg(
        c("event_timestamp").min().alias("session_start"),
        c("event_timestamp").max().alias("session_end"),
        (c("event_timestamp").max() - c("event_timestamp").min()).dt.total_seconds().alias("session_duration_seconds"),
        pl.len().cast(pl.Int64).alias("event_count"),
        *[count(c("event_type") == kind, f"{kind}_count") for kind in ("view", "click", "add_to_cart", "purchase")],
    )
    return visits.with_columns(
        is_converted=c("purchase_count") > 0,
        is_abandoned=(c("add_to_cart_count") > 0) & (c("purchase_count") == 0),
        is_bounce=c("event_count") == 1,
    )


def payment_analysis(payments: pl.LazyFrame) -> pl.LazyFrame:
    at = c("transaction_timestamp")
    timed = payments.with_columns(
        transaction_date=at.dt.date(),
        hour=at.dt.hour().cast(pl.Int32),
        day_of_week=at.dt.weekday().cast(pl.Int32),
        is_high_value=c("amount") > 500,
    )
    return timed.with_columns(
        is_off_hours=(c("hour") >= 23) | (c("hour") < 6), is_weekend=c("day_of_week") >= 6
    ).with_columns(is_suspicious=c("is_high_value") & c("is_off_hours"))


def inventory_health(snapshots: pl.LazyFrame) -> pl.LazyFrame:
    sales = pl.when(c("avg_daily_sales") != 0).then(c("avg_daily_sales"))
    return snapshots.with_columns(days_of_stock=c("stock_quantity") / sales).with_columns(
        is_low_stock=c("days_of_stock") < 7, needs_reorder=c("stock_quantity") <= c("reorder_level")
    )


def support_metrics(tickets: pl.LazyFrame) -> pl.LazyFrame:
    response = (c("first_response_at") - c("created_at")).dt.total_seconds()
    resolution = (c("resolved_at") - c("created_at")).dt.total_seconds()
    limits = [{priority: hours[which] * 3600 for priority, hours in SLA_HOURS.items()} for which in (0, 1)]
    return tickets.with_columns(
        response_time_hours=response / 3600.0,
        resolution_time_hours=resolution / 3600.0,
        meets_response_sla=response <= c("priority").replace_strict(limits[0], default=None, return_dtype=pl.Int64),
        meets_resolution_sla=resolution <= c("priority").replace_strict(limits[1], default=None, return_dtype=pl.Int64),
    )


def customer_summary(sessions: pl.LazyFrame, payments: pl.LazyFrame, tickets: pl.LazyFrame) -> pl.LazyFrame:
    completed = c("status") == "completed"
    parts = [
        sessions.select(
            "customer_id", sessions=1, converted=c("is_converted").cast(pl.Int32), active_at=c("session_end")
        ),
        payments.select(
            "customer_id",
            orders=completed.cast(pl.Int32),
            cents=pl.when(completed).then(cents("amount")),
            active_at=c("transaction_timestamp"),
        ),
        tickets.select("customer_id", tickets=1, active_at=c("created_at")),
    ]
    totals = (
        pl.concat(parts, how="diagonal")
        .group_by("customer_id")
        .agg(
            total("sessions", "total_sessions"),
            total("converted", "converted_sessions"),
            total("orders", "total_orders"),
            total("cents", "cents"),
            total("tickets", "support_tickets_count"),
            c("active_at").max().alias("last_activity_at"),
        )
    )
    vip = (c("cents") >= 100_000) & (c("total_orders") >= 3)
    at_risk = (c("total_orders") == 0) | (c("support_tickets_count") > c("total_orders"))
    return totals.select(
        "customer_id",
        "total_sessions",
        "converted_sessions",
        "total_orders",
        money(c("cents")).alias("total_ltv"),
        average().alias("avg_order_value"),
        ratio("converted_sessions", "total_sessions").alias("conversion_rate"),
        "support_tickets_count",
        "last_activity_at",
        pl.when(vip)
        .then(pl.lit("VIP"))
        .when(at_risk)
        .then(pl.lit("At-Risk"))
        .otherwise(pl.lit("Regular"))
        .alias("customer_segment"),
    )


def daily_metrics(payments: pl.LazyFrame) -> pl.LazyFrame:
    completed = c("status") == "completed"
    daily = payments.group_by("transaction_date").agg(
        cents("amount").filter(completed).sum().alias("cents"),
        count(completed, "total_orders"),
        c("customer_id").filter(completed).drop_nulls().n_unique().cast(pl.Int64).alias("total_customers"),
        count(c("is_suspicious"), "fraud_flag_count"),
    )
    return daily.select(
        "transaction_date",
        money(c("cents")).alias("total_revenue"),
        "total_orders",
        average().alias("avg_order_value"),
        "total_customers",
        "fraud_flag_count",
    )


def product_summary(events: pl.LazyFrame, payments: pl.LazyFrame, snapshots: pl.LazyFrame) -> pl.LazyFrame:
    kind = c("event_type")
    newest = c("stock_quantity").sort_by("snapshot_timestamp", "snapshot_id").last()
    parts = [
        events.select(
            "product_id", views=(kind == "view").cast(pl.Int32), purchases=(kind == "purchase").cast(pl.Int32)
        ),
        payments.select("product_id", cents=pl.when(c("status") == "completed").then(cents("amount"))),
        snapshots.group_by("product_id", "warehouse_id").agg(newest.alias("stock")).drop("warehouse_id"),
    ]
    totals = (
        pl.concat(parts, how="diagonal")
        .group_by("product_id")
        .agg(
            total("views", "product_views"),
            total("purchases", "product_purchases"),
            total("cents", "cents"),
            total("stock", "current_stock_level"),
        )
    )
    return totals.select(
        "product_id",
        "product_views",
        "product_purchases",
        ratio("product_purchases", "product_views").alias("conversion_rate"),
        money(c("cents")).alias("revenue_generated"),
        "current_stock_level",
    )


def count(condition: pl.Expr, name: str) -> pl.Expr:
    return condition.sum().cast(pl.Int64).alias(name)


def total(column: str, name: str) -> pl.Expr:
    return c(column).cast(pl.Int64).sum().alias(name)


def cents(column: str) -> pl.Expr:
    return (c(column) * 100).cast(pl.Int64)


def money(whole_cents: pl.Expr) -> pl.Expr:
    # Divided as floats, which is exact to the cent here, and rounded to two places by the cast.
    return (whole_cents / 100).round(2).cast(MONEY)


def average() -> pl.Expr:
    orders = pl.when(c("total_orders") > 0).then(c("total_orders"))
    return money((2 * c("cents") + orders) // (2 * orders))


def ratio(part: str, whole: str) -> pl.Expr:
    return c(part) / pl.when(c(whole) > 0).then(c(whole))


def main(landing: Path, out: Path) -> None:
    lake, now = Lake(out), datetime.now(UTC)
    bronze = {
        feed: lake.write(f"bronze.{feed}", landed(landing, feed, system, schema, now))
        for feed, (system, schema) in FEEDS.items()
    }
    sessions = lake.write("silver.customer_sessions", customer_sessions(bronze["customer_events"]))
    payments = lake.write("silver.payment_analysis", payment_analysis(bronze["payment_transactions"]))
    snapshots = lake.write("silver.inventory_health", inventory_health(bronze["inventory_snapshots"]))
    tickets = lake.write("silver.support_metrics", support_metrics(bronze["support_tickets"]))
    lake.write("gold.customer_summary", customer_summary(sessions, payments, tickets))
    lake.write("gold.daily_metrics", daily_metrics(payments))
    lake.write("gold.product_summary", product_summary(bronze["customer_events"], payments, snapshots))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]).absolute(), Path(sys.argv[2]).absolute())
