"""The shop's tables by hand: one PySpark script, one table after the other, no check, no quarantine, no transaction.

    python bench/handwritten_pyspark.py LANDING OUT JAR [JAR ...]

It is written to be fast, because icefield is measured against it: every CSV file is parsed once, timestamps by
Spark's quick default parser rather than by a pattern; gold aggregates unions instead of joining; the newest stock of
a warehouse is not written as a table of its own; there is no count and no collect. Malformed values come as NULL.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

FEEDS = {
    "customer_events": (
        "web",
        "event_id BIGINT, customer_id BIGINT, session_id STRING, event_type STRING, product_id BIGINT, "
        "event_timestamp TIMESTAMP, device STRING, referrer STRING, page_url STRING",
    ),
    "payment_transactions": (
        "payments",
        "transaction_id BIGINT, customer_id BIGINT, product_id BIGINT, amount DECIMAL(12,2), currency STRING, "
        "payment_method STRING, status STRING, transaction_timestamp TIMESTAMP",
    ),
    "inventory_snapshots": (
        "warehouse",
        "snapshot_id BIGINT, product_id BIGINT, warehouse_id INT, stock_quantity INT, reorder_level INT, "
        "avg_daily_sales DOUBLE, snapshot_timestamp TIMESTAMP",
    ),
    "support_tickets": (
        "support",
        "ticket_id BIGINT, customer_id BIGINT, category STRING, priority STRING, created_at TIMESTAMP, "
        "first_response_at TIMESTAMP, resolved_at TIMESTAMP, satisfaction_score INT",
    ),
}
SLA = "CASE priority WHEN 'critical' THEN {} WHEN 'high' THEN {} WHEN 'medium' THEN {} WHEN 'low' THEN {} END * 3600"
RESPONSE_SLA, RESOLUTION_SLA = SLA.format(1, 4, 8, 24), SLA.format(4, 24, 72, 168)
RESPONSE = "(unix_timestamp(first_response_at) - unix_timestamp(created_at))"
RESOLUTION = "(unix_timestamp(resolved_at) - unix_timestamp(created_at))"
PAID = "IF(status = 'completed', amount, 0)"

STARTED = time.perf_counter()


def session(out: Path, jars: list[str]) -> SparkSession:
    out.mkdir(parents=True, exist_ok=True)
    cores = os.cpu_count() or 1
    settings = {
        "spark.driver.memory": "3g",
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -Xms1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.jars": ",".join(jars),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "true",
        # Landed files are small: at Spark's 4 MB for opening one, 90 of them would be read in needlessly many tasks.
        "spark.sql.files.openCostInBytes": str(128 * 1024),
        "spark.sql.shuffle.partitions": str(max(4, 2 * cores)),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(out / "warehouse"),
        "spark.sql.defaultCatalog": "lake",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "jdbc",
        "spark.sql.catalog.lake.uri": f"jdbc:sqlite:{out / 'catalog.db'}?journal_mode=WAL&busy_timeout=30000",
        "spark.sql.catalog.lake.jdbc.schema-version": "V1",
        "spark.sql.catalog.lake.warehouse": str(out),
    }
    builder = SparkSession.Builder().master("local[*]").appName("hand-written")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def write(rows: DataFrame, table: str) -> None:
    writer = rows.writeTo(table).using("iceberg").tableProperty("format-version", "2")
    writer.tableProperty("write.parquet.compression-codec", "zstd").createOrReplace()
    print(f"{time.perf_counter() - STARTED:6.1f} s  {table}", flush=True)


def bronze(spark: SparkSession, landing: Path) -> None:
    now = F.lit(datetime.now(UTC))
    for feed, (system, schema) in FEEDS.items():
        rows = spark.read.csv(str(landing / feed), schema=schema, header=True, mode="PERMISSIVE")
        landed = rows.select(
            "*",
            now.alias("ingested_at"),
            F.lit(system).alias("source_system"),
            F.concat(F.lit(f"landing/{feed}/"), F.col("_metadata.file_name")).alias("source_file"),
        )
        write(landed, f"bronze.{feed}")


def customer_sessions(events: DataFrame) -> DataFrame:
    visits = events.groupBy("customer_id", "session_id").agg(
        F.min("event_timestamp").alias("session_start"),
        F.max("event_timestamp").alias("session_end"),
        F.count("*").alias("event_count"),
        *[
            F.count_if(F.col("event_type") == kind).alias(f"{kind}_count")
            for kind in ("view", "click", "add_to_cart", "purchase")
        ],
    )
    return visits.select(
        "customer_id",
        "session_id",
        "session_start",
        "session_end",
        (F.unix_timestamp("session_end") - F.unix_timestamp("session_start")).alias("session_duration_seconds"),
        "event_count",
        "view_count",
        "click_count",
        "add_to_cart_count",
        "purchase_count",
        (F.col("purchase_count") > 0).alias("is_converted"),
        ((F.col("add_to_cart_count") > 0) & (F.col("purchase_count") == 0)).alias("is_abandoned"),
        (F.col("event_count") == 1).alias("is_bounce"),
    )


def payment_analysis(payments: DataFrame) -> DataFrame:
    return (
        payments.withColumn("transaction_date", F.to_date("transaction_timestamp"))
        .withColumn("hour", F.hour("transaction_timestamp"))
        .withColumn("day_of_week", F.weekday("transaction_timestamp") + 1)
        .withColumn("is_high_value", F.col("amount") > 500)
        .withColumn("is_off_hours", (F.col("hour") >= 23) | (F.col("hour") < 6))
        .withColumn("is_weekend", F.col("day_of_week") >= 6)
        .withColumn("is_suspicious", F.col("is_high_value") & F.col("is_off_hours"))
    )


def inventory_health(snapshots: DataFrame) -> DataFrame:
    return (
        snapshots.withColumn("days_of_stock", F.try_divide("stock_quantity", "avg_daily_sales"))
        .withColumn("is_low_stock", F.col("days_of_stock") < 7)
        .withColumn("needs_reorder", F.col("stock_quantity") <= F.col("reorder_level"))
    )


def support_metrics(tickets: DataFrame) -> DataFrame:
    return tickets.selectExpr(
        "*",
        f"{RESPONSE} / 3600.0D AS response_time_hours",
        f"{RESOLUTION} / 3600.0D AS resolution_time_hours",
        f"{RESPONSE} <= {RESPONSE_SLA} AS meets_response_sla",
        f"{RESOLUTION} <= {RESOLUTION_SLA} AS meets_resolution_sla",
    )


def customer_summary(sessions: DataFrame, payments: DataFrame, tickets: DataFrame) -> DataFrame:
    visits = sessions.selectExpr(
        "customer_id", "1 AS sessions", "int(is_converted) AS converted", "session_end AS active_at"
    )
    paid = payments.selectExpr(
        "customer_id", "int(status = 'completed') AS orders", f"{PAID} AS paid", "transaction_timestamp AS active_at"
    )
    asked = tickets.selectExpr("customer_id", "1 AS tickets", "created_at AS active_at")
    rows = visits.unionByName(paid, allowMissingColumns=True).unionByName(asked, allowMissingColumns=True)
    totals = rows.groupBy("customer_id").agg(
        total("sessions").alias("total_sessions"),
        total("converted").alias("converted_sessions"),
        total("orders").alias("total_orders"),
        total("paid").cast("DECIMAL(18,2)").alias("total_ltv"),
        total("tickets").alias("support_tickets_count"),
        F.max("active_at").alias("last_activity_at"),
    )
    return totals.selectExpr(
        "customer_id",
        "total_sessions",
        "converted_sessions",
        "total_orders",
        "total_ltv",
        "CAST(round(try_divide(total_ltv, total_orders), 2) AS DECIMAL(18,2)) AS avg_order_value",
        "try_divide(converted_sessions, total_sessions) AS conversion_rate",
        "support_tickets_count",
        "last_activity_at",
        "CASE WHEN total_ltv >= 1000 AND total_orders >= 3 THEN 'VIP' "
        "WHEN total_orders = 0 OR support_tickets_count > total_orders THEN 'At-Risk' "
        "ELSE 'Regular' END AS customer_segment",
    )


def daily_metrics(payments: DataFrame) -> DataFrame:
    completed = F.col("status") == "completed"
    daily = payments.groupBy("transaction_date").agg(
        F.coalesce(F.sum(F.when(completed, F.col("amount"))), F.lit(0)).cast("DECIMAL(18,2)").alias("total_revenue"),
        F.count_if(completed).alias("total_orders"),
        F.count_distinct(F.when(completed, F.col("customer_id"))).alias("total_customers"),
        F.count_if("is_suspicious").alias("fraud_flag_count"),
    )
    return daily.selectExpr(
        "transaction_date",
        "total_revenue",
        "total_orders",
        "CAST(round(try_divide(total_revenue, total_orders), 2) AS DECIMAL(18,2)) AS avg_order_value",
        "total_customers",
        "fraud_flag_count",
    )


def product_summary(events: DataFrame, payments: DataFrame, snapshots: DataFrame) -> DataFrame:
    newest = F.max(F.struct("snapshot_timestamp", "snapshot_id", "stock_quantity")).alias("newest")
    held = snapshots.groupBy("product_id", "warehouse_id").agg(newest)
    seen = events.selectExpr(
        "product_id", "int(event_type = 'view') AS views", "int(event_type = 'purchase') AS purchases"
    )
    paid = payments.selectExpr("product_id", f"{PAID} AS revenue")
    stock = held.selectExpr("product_id", "newest.stock_quantity AS stock")
    rows = seen.unionByName(paid, allowMissingColumns=True).unionByName(stock, allowMissingColumns=True)
    totals = rows.groupBy("product_id").agg(
        total("views").alias("product_views"),
        total("purchases").alias("product_purchases"),
        total("revenue").cast("DECIMAL(18,2)").alias("revenue_generated"),
        total("stock").alias("current_stock_level"),
    )
    return totals.selectExpr(
        "product_id",
        "product_views",
        "product_purchases",
        "try_divide(product_purchases, product_views) AS conversion_rate",
        "revenue_generated",
        "current_stock_level",
    )


def total(column: str) -> Column:
    return F.coalesce(F.sum(column), F.lit(0))


def build(spark: SparkSession, landing: Path) -> None:
    for layer in ("bronze", "silver", "gold"):
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {layer}")
    bronze(spark, landing)
    events, payments = spark.table("bronze.customer_events"), spark.table("bronze.payment_transactions")
    write(customer_sessions(events), "silver.customer_sessions")
    write(payment_analysis(payments), "silver.payment_analysis")
    write(inventory_health(spark.table("bronze.inventory_snapshots")), "silver.inventory_health")
    write(support_metrics(spark.table("bronze.support_tickets")), "silver.support_metrics")
    sessions, analysed = spark.table("silver.customer_sessions"), spark.table("silver.payment_analysis")
    write(customer_summary(sessions, analysed, spark.table("silver.support_metrics")), "gold.customer_summary")
    write(daily_metrics(analysed), "gold.daily_metrics")
    write(product_summary(events, analysed, spark.table("silver.inventory_health")), "gold.product_summary")


def main(landing: Path, out: Path, jars: list[str]) -> None:
    spark = session(out, jars)
    print(f"{time.perf_counter() - STARTED:6.1f} s  Spark has started", flush=True)
    build(spark, landing)
    spark.stop()
    print(f"{time.perf_counter() - STARTED:6.1f} s  done", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(Path(sys.argv[1]).absolute(), Path(sys.argv[2]).absolute(), sys.argv[3:])
