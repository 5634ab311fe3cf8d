"""Bronze: the four feeds as they arrive, typed and checked; what fails a check waits in quarantine with its reasons."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from icefield import Check, append, expect, expect_table, files, not_null, one_of, table, unique

PROVENANCE = ["source_file", "source_line", "ingested_at"]
#: The day that a file's name tells; NULL for a name that tells none.
FILE_DAY = "try_cast(substring(right(source_file, 14), 1, 10) AS DATE)"


def feed(name: str, system: str, schema: str, *checks: Check) -> None:
    """One feed is one bronze table; its first column is its key."""
    key = schema.split(maxsplit=1)[0]

    @table(
        f"bronze.{name}",
        source=files(f"landing/{name}/*.csv", schema=schema),
        refresh=append(),
        checks=[unique(key), *checks],
        otherwise="quarantine",
        tags=["bronze", system],
    )
    def landed(rows: DataFrame) -> DataFrame:
        """The rows of one feed as they arrived, with where and when."""
        columns = [column for column in rows.columns if column not in PROVENANCE]
        return rows.select(*columns, "ingested_at", F.lit(system).alias("source_system"), "source_file")


feed(
    "customer_events",
    "web",
    """event_id BIGINT COMMENT 'the event; the first arrival of an id stays',
       customer_id BIGINT, session_id STRING COMMENT 'unique within a customer',
       event_type STRING COMMENT 'view, click, add_to_cart or purchase',
       product_id BIGINT, event_timestamp TIMESTAMP COMMENT 'UTC',
       device STRING, referrer STRING, page_url STRING""",
    not_null("event_id", "customer_id", "session_id", "product_id", "event_timestamp"),
    one_of("event_type", "view", "click", "add_to_cart", "purchase"),
    expect_table(
        "events reach the newest file's day",
        f"max(event_timestamp) >= max({FILE_DAY}) - INTERVAL 2 DAYS",
        otherwise="warn",
    ),
)

feed(
    "payment_transactions",
    "payments",
    """transaction_id BIGINT COMMENT 'the payment; the first arrival of an id stays',
       customer_id BIGINT, product_id BIGINT, amount DECIMAL(12,2), currency STRING, payment_method STRING,
       status STRING COMMENT 'completed, failed or refunded', transaction_timestamp TIMESTAMP COMMENT 'UTC'""",
    not_null("transaction_id", "customer_id", "product_id", "amount", "transaction_timestamp"),
    one_of("status", "completed", "failed", "refunded"),
    expect("amount is positive", "amount > 0"),
)

feed(
    "inventory_snapshots",
    "warehouse",
    """snapshot_id BIGINT COMMENT 'the count; the first arrival of an id stays',
       product_id BIGINT, warehouse_id INT, stock_quantity INT COMMENT 'pieces on the shelf',
       reorder_level INT COMMENT 'at or below it the product is ordered again',
       avg_daily_sales DOUBLE, snapshot_timestamp TIMESTAMP COMMENT 'UTC'""",
    not_null("snapshot_id", "product_id", "stock_quantity", "snapshot_timestamp"),
    expect("stock is not negative", "stock_quantity >= 0"),
)

feed(
    "support_tickets",
    "support",
    """ticket_id BIGINT COMMENT 'the ticket; the first arrival of an id stays',
       customer_id BIGINT, category STRING, priority STRING COMMENT 'critical, high, medium or low',
       created_at TIMESTAMP COMMENT 'UTC', first_response_at TIMESTAMP COMMENT 'empty while nobody answered',
       resolved_at TIMESTAMP COMMENT 'empty while it is open', satisfaction_score INT COMMENT 'empty if not given'""",
    not_null("ticket_id", "customer_id", "created_at"),
    one_of("priority", "critical", "high", "medium", "low"),
    expect("answered after it was opened", "first_response_at >= created_at"),
    expect("resolved after it was opened", "resolved_at >= created_at"),
)
