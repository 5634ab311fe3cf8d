"""The shop's tables in DuckDB, as Parquet files: no catalog, no snapshots, no checks. What one machine can do at best.

    python bench/duckdb_script.py LANDING OUT

Malformed lines are dropped; times are UTC without saying so (`TIMESTAMP`, which DuckDB reads quicker than with a zone).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import duckdb

FEEDS = {
    "customer_events": (
        "web",
        "event_id BIGINT, customer_id BIGINT, session_id VARCHAR, event_type VARCHAR, product_id BIGINT, "
        "event_timestamp TIMESTAMP, device VARCHAR, referrer VARCHAR, page_url VARCHAR",
    ),
    "payment_transactions": (
        "payments",
        "transaction_id BIGINT, customer_id BIGINT, product_id BIGINT, amount DECIMAL(12;2), currency VARCHAR, "
        "payment_method VARCHAR, status VARCHAR, transaction_timestamp TIMESTAMP",
    ),
    "inventory_snapshots": (
        "warehouse",
        "snapshot_id BIGINT, product_id BIGINT, warehouse_id INTEGER, stock_quantity INTEGER, reorder_level INTEGER, "
        "avg_daily_sales DOUBLE, snapshot_timestamp TIMESTAMP",
    ),
    "support_tickets": (
        "support",
        "ticket_id BIGINT, customer_id BIGINT, category VARCHAR, priority VARCHAR, created_at TIMESTAMP, "
        "first_response_at TIMESTAMP, resolved_at TIMESTAMP, satisfaction_score INTEGER",
    ),
}

SILVER = {
    "customer_sessions": """
        SELECT customer_id, session_id, min(event_timestamp) AS session_start, max(event_timestamp) AS session_end,
               date_diff('second', min(event_timestamp), max(event_timestamp)) AS session_duration_seconds,
               count(*) AS event_count,
               count(*) FILTER (event_type = 'view') AS view_count,
               count(*) FILTER (event_type = 'click') AS click_count,
               count(*) FILTER (event_type = 'add_to_cart') AS add_to_cart_count,
               count(*) FILTER (event_type = 'purchase') AS purchase_count,
               purchase_count > 0 AS is_converted,
               add_to_cart_count > 0 AND purchase_count = 0 AS is_abandoned,
               event_count = 1 AS is_bounce
        FROM bronze.customer_events GROUP BY customer_id, session_id""",
    "payment_analysis": """
        SELECT *, transaction_timestamp::DATE AS transaction_date, hour(transaction_timestamp)::INTEGER AS hour,
               isodow(transaction_timestamp)::INTEGER AS day_of_week, amount > 500 AS is_high_value,
               hour(transaction_timestamp) >= 23 OR hour(transaction_timestamp) < 6 AS is_off_hours,
               isodow(transaction_timestamp) >= 6 AS is_weekend, is_high_value AND is_off_hours AS is_suspicious
        FROM bronze.payment_transactions""",
    "inventory_health": """
        SELECT *, stock_quantity / nullif(avg_daily_sales, 0) AS days_of_stock, days_of_stock < 7 AS is_low_stock,
               stock_quantity <= reorder_level AS needs_reorder
        FROM bronze.inventory_snapshots""",
    "support_metrics": """
        SELECT tickets.*, date_diff('second', created_at, first_response_at) / 3600.0::DOUBLE AS response_time_hours,
               date_diff('second', created_at, resolved_at) / 3600.0::DOUBLE AS resolution_time_hours,
               date_diff('second', created_at, first_response_at) <= 3600 * response_hours AS meets_response_sla,
               date_diff('second', created_at, resolved_at) <= 3600 * resolution_hours AS meets_resolution_sla
        FROM bronze.support_tickets AS tickets
        LEFT JOIN (VALUES ('critical', 1, 4), ('high', 4, 24), ('medium', 8, 72), ('low', 24, 168))
               AS sla (priority, response_hours, resolution_hours) ON tickets.priority = sla.priority""",
}

# Averages of money by whole cents, rounded half up: a division of decimals would go through floating point.
GOLD = {
    "customer_summary": """
        SELECT customer_id, coalesce(sum(sessions), 0)::BIGINT AS total_sessions,
               coalesce(sum(converted), 0)::BIGINT AS converted_sessions,
               coalesce(sum(orders), 0)::BIGINT AS total_orders,
               coalesce(sum(paid), 0)::DECIMAL(18, 2) AS total_ltv,
               (((200 * total_ltv)::BIGINT + total_orders) // nullif(2 * total_orders, 0) / 100)::DECIMAL(18, 2)
                   AS avg_order_value,
               converted_sessions / nullif(total_sessions, 0) AS conversion_rate,
               coalesce(sum(tickets), 0)::BIGINT AS support_tickets_count,
               max(active_at) AS last_activity_at,
               CASE WHEN total_ltv >= 1000 AND total_orders >= 3 THEN 'VIP'
                    WHEN total_orders = 0 OR support_tickets_count > total_orders THEN 'At-Risk'
                    ELSE 'Regular' END AS customer_segment
        FROM (SELECT customer_id, 1 AS sessions, is_converted::INTEGER AS converted, session_end AS active_at
              FROM silver.customer_sessions
              UNION ALL BY NAME
              SELECT customer_id, (status = 'completed')::INTEGER AS orders,
                     CASE WHEN status = 'completed' THEN amount END AS paid, transaction_timestamp AS active_at
              FROM silver.payment_analysis
              UNION ALL BY NAME
              SELECT customer_id, 1 AS tickets, created_at AS active_at FROM silver.support_metrics)
        GROUP BY customer_id""",
    "daily_metrics": """
        SELECT transaction_date,
               coalesce(sum(amount) FILTER (status = 'completed'), 0)::DECIMAL(18, 2) AS total_revenue,
               count(*) FILTER (status = 'completed') AS total_orders,
               (((200 * total_revenue)::BIGINT + total_orders) // nullif(2 * total_orders, 0) / 100)::DECIMAL(18, 2)
                   AS avg_order_value,
               count(DISTINCT customer_id) FILTER (status = 'completed') AS total_customers,
               count(*) FILTER (is_suspicious) AS fraud_flag_count
        FROM silver.payment_analysis GROUP BY transaction_date""",
    "product_summary": """
        SELECT product_id, coalesce(sum(views), 0)::BIGINT AS product_views,
               coalesce(sum(purchases), 0)::BIGINT AS product_purchases,
               product_purchases / nullif(product_views, 0) AS conversion_rate,
               coalesce(sum(revenue), 0)::DECIMAL(18, 2) AS revenue_generated,
               coalesce(sum(stock), 0)::BIGINT AS current_stock_level
        FROM (SELECT product_id, (event_type = 'view')::INTEGER AS views,
                     (event_type = 'purchase')::INTEGER AS purchases
              FROM bronze.customer_events
              UNION ALL BY NAME
              SELECT product_id, CASE WHEN status = 'completed' THEN amount END AS revenue FROM silver.payment_analysis
              UNION ALL BY NAME
              SELECT product_id, arg_max(stock_quantity, (snapshot_timestamp, snapshot_id)) AS stock
              FROM silver.inventory_health GROUP BY product_id, warehouse_id)
        GROUP BY product_id""",
}

STARTED = time.perf_counter()


def landed(landing: Path, feed: str, system: str, columns: str) -> str:
    pairs = [column.split() for column in columns.split(", ")]
    types = ", ".join(f"{name}: '{kind.replace(';', ', ')}'" for name, kind in pairs)
    return f"""
        SELECT * EXCLUDE (filename), now() AS ingested_at, '{system}' AS source_system,
               'landing/{feed}/' || parse_filename(filename) AS source_file
        FROM read_csv('{landing / feed}/*.csv', columns = {{{types}}}, header = true, delim = ',', quote = '"',
                      filename = true, ignore_errors = true)"""


def write(db: duckdb.DuckDBPyConnection, out: Path, layer: str, name: str, query: str) -> None:
    file = out / layer / f"{name}.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    db.execute(f"COPY ({query}) TO '{file}' (FORMAT parquet, COMPRESSION zstd)")
    db.execute(f"CREATE VIEW {layer}.{name} AS FROM read_parquet('{file}')")
    print(f"{time.perf_counter() - STARTED:6.1f} s  {layer}.{name}", flush=True)


def main(landing: Path, out: Path) -> None:
    db = duckdb.connect(config={"preserve_insertion_order": False})
    for layer in ("bronze", "silver", "gold"):
        db.execute(f"CREATE SCHEMA {layer}")
    for feed, (system, columns) in FEEDS.items():
        write(db, out, "bronze", feed, landed(landing, feed, system, columns))
    for name, query in SILVER.items():
        write(db, out, "silver", name, query)
    for name, query in GOLD.items():
        write(db, out, "gold", name, query)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]).absolute(), Path(sys.argv[2]).absolute())
