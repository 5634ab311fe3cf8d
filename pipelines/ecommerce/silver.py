"""Silver: sessions, and the other feeds with what can be said of each row alone."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from icefield import accumulate, append, reconciles, references, setting, table, unique

HIGH_VALUE = setting("high_value", 500)
NIGHT_BEGINS, NIGHT_ENDS = 23, 6
SATURDAY = 6
LOW_STOCK_DAYS = 7
SECONDS_AN_HOUR = 3600
SLA_HOURS = {"critical": (1, 4), "high": (4, 24), "medium": (8, 72), "low": (24, 168)}

ARRIVAL = """ingested_at TIMESTAMP COMMENT 'start of the run that first took the file',
             source_system STRING COMMENT 'web, payments, warehouse or support',
             source_file STRING COMMENT 'the landed file, relative to the project'"""


def with_outcome(visits: DataFrame) -> DataFrame:
    """A session's columns, from what was counted in it."""
    return visits.select(
        "customer_id",
        "session_id",
        "session_start",
        "session_end",
        seconds_between("session_start", "session_end").alias("session_duration_seconds"),
        "event_count",
        "view_count",
        "click_count",
        "add_to_cart_count",
        "purchase_count",
        (F.col("purchase_count") > 0).alias("is_converted"),
        ((F.col("add_to_cart_count") > 0) & (F.col("purchase_count") == 0)).alias("is_abandoned"),
        (F.col("event_count") == 1).alias("is_bounce"),
    )


@table(
    "silver.customer_sessions",
    refresh=accumulate(
        "customer_id",
        "session_id",
        session_start="min",
        session_end="max",
        event_count="count",
        view_count="count",
        click_count="count",
        add_to_cart_count="count",
        purchase_count="count",
        finish=with_outcome,
    ),
    tags=["silver", "customers"],
    columns="""customer_id BIGINT, session_id STRING,
               session_start TIMESTAMP COMMENT 'first event', session_end TIMESTAMP COMMENT 'last event',
               session_duration_seconds BIGINT COMMENT 'whole seconds from first to last event',
               event_count BIGINT, view_count BIGINT, click_count BIGINT, add_to_cart_count BIGINT,
               purchase_count BIGINT,
               is_converted BOOLEAN COMMENT 'something was bought',
               is_abandoned BOOLEAN COMMENT 'something was put into the cart and nothing bought',
               is_bounce BOOLEAN COMMENT 'a single event'""",
    checks=[
        unique("customer_id", "session_id"),
        references("customer_id", to="bronze.payment_transactions", where="purchase_count > 0", otherwise="warn"),
        reconciles(
            "every event is in a session",
            {"silver.customer_sessions": "sum(event_count)", "bronze.customer_events": "count(*)"},
        ),
    ],
)
def customer_sessions(customer_events: DataFrame) -> DataFrame:
    """One row a visit: what a customer did in one session."""

    def events(kind: str) -> Column:
        return F.count_if(F.col("event_type") == kind).alias(f"{kind}_count")

    return customer_events.groupBy("customer_id", "session_id").agg(
        F.min("event_timestamp").alias("session_start"),
        F.max("event_timestamp").alias("session_end"),
        F.count("*").alias("event_count"),
        events("view"),
        events("click"),
        events("add_to_cart"),
        events("purchase"),
    )


@table(
    "silver.payment_analysis",
    refresh=append(),
    tags=["silver", "payments"],
    columns=f"""transaction_id BIGINT, customer_id BIGINT, product_id BIGINT, amount DECIMAL(12,2), currency STRING,
                payment_method STRING, status STRING, transaction_timestamp TIMESTAMP, {ARRIVAL},
                transaction_date DATE COMMENT 'the day of the payment, UTC', hour INT COMMENT '0 to 23, UTC',
                day_of_week INT COMMENT 'ISO: Monday is 1',
                is_high_value BOOLEAN COMMENT 'above the setting high_value',
                is_off_hours BOOLEAN COMMENT 'from 23:00 to 05:59', is_weekend BOOLEAN,
                is_suspicious BOOLEAN COMMENT 'of high value and off hours'""",
    checks=[references("product_id", to="bronze.inventory_snapshots", otherwise="warn")],
)
def payment_analysis(payment_transactions: DataFrame) -> DataFrame:
    """One row a payment, with when it was made and whether it looks suspicious."""
    timed = payment_transactions.withColumns(
        {
            "transaction_date": F.to_date("transaction_timestamp"),
            "hour": F.hour("transaction_timestamp"),
            "day_of_week": F.weekday("transaction_timestamp") + 1,
        }
    )
    flagged = timed.withColumns(
        {
            "is_high_value": F.col("amount") > HIGH_VALUE,
            "is_off_hours": (F.col("hour") >= NIGHT_BEGINS) | (F.col("hour") < NIGHT_ENDS),
            "is_weekend": F.col("day_of_week") >= SATURDAY,
        }
    )
    return flagged.withColumn("is_suspicious", F.col("is_high_value") & F.col("is_off_hours"))


@table(
    "silver.inventory_health",
    refresh=append(),
    tags=["silver", "inventory"],
    columns=f"""snapshot_id BIGINT, product_id BIGINT, warehouse_id INT, stock_quantity INT, reorder_level INT,
                avg_daily_sales DOUBLE, snapshot_timestamp TIMESTAMP, {ARRIVAL},
                days_of_stock DOUBLE COMMENT 'how long the stock lasts; empty where nothing is sold',
                is_low_stock BOOLEAN COMMENT 'less than 7 days',
                needs_reorder BOOLEAN COMMENT 'at or below the reorder level'""",
)
def inventory_health(inventory_snapshots: DataFrame) -> DataFrame:
    """One row a count of a product in a warehouse, with how long the stock lasts."""
    lasting = inventory_snapshots.withColumn("days_of_stock", F.try_divide("stock_quantity", "avg_daily_sales"))
    return lasting.withColumns(
        {
            "is_low_stock": F.col("days_of_stock") < LOW_STOCK_DAYS,
            "needs_reorder": F.col("stock_quantity") <= F.col("reorder_level"),
        }
    )


@table(
    "silver.support_metrics",
    refresh=append(),
    tags=["silver", "customers"],
    columns=f"""ticket_id BIGINT, customer_id BIGINT, category STRING, priority STRING, created_at TIMESTAMP,
                first_response_at TIMESTAMP, resolved_at TIMESTAMP, satisfaction_score INT, {ARRIVAL},
                response_time_hours DOUBLE COMMENT 'from opening to the first answer; empty while there is none',
                resolution_time_hours DOUBLE COMMENT 'from opening to the solution; empty while it is open',
                meets_response_sla BOOLEAN COMMENT 'critical 1 h, high 4 h, medium 8 h, low 24 h; at the limit is met',
                meets_resolution_sla BOOLEAN COMMENT 'critical 4 h, high 24 h, medium 72 h, low 168 h'""",
)
def support_metrics(support_tickets: DataFrame) -> DataFrame:
    """One row a ticket, with how long the customer waited and whether that was promised."""
    response = seconds_between("created_at", "first_response_at")
    resolution = seconds_between("created_at", "resolved_at")
    return support_tickets.withColumns(
        {
            "response_time_hours": response / F.lit(float(SECONDS_AN_HOUR)),
            "resolution_time_hours": resolution / F.lit(float(SECONDS_AN_HOUR)),
            "meets_response_sla": response <= promised_seconds(0),
            "meets_resolution_sla": resolution <= promised_seconds(1),
        }
    )


def newest_count(counted: DataFrame) -> DataFrame:
    """The newest count's columns."""
    return counted.select("product_id", "warehouse_id", "newest.stock_quantity", "newest.snapshot_timestamp")


@table(
    "silver.stock_levels",
    refresh=accumulate("product_id", "warehouse_id", newest="last", finish=newest_count),
    tags=["silver", "inventory"],
    columns="""product_id BIGINT, warehouse_id INT, stock_quantity INT COMMENT 'as last counted',
               snapshot_timestamp TIMESTAMP COMMENT 'when it was last counted'""",
    checks=[unique("product_id", "warehouse_id")],
)
def stock_levels(inventory_health: DataFrame) -> DataFrame:
    """One row a product and warehouse: the newest count."""
    newest = F.max(F.struct("snapshot_timestamp", "snapshot_id", "stock_quantity")).alias("newest")
    return inventory_health.groupBy("product_id", "warehouse_id").agg(newest)


def seconds_between(start: str, end: str) -> Column:
    """Whole seconds from one time to another; NULL while one of them is missing."""
    return F.unix_timestamp(end) - F.unix_timestamp(start)


def promised_seconds(which: int) -> Column:
    """The limit for a ticket's priority, in seconds: 0 is the answer's, 1 the solution's."""
    cases = " ".join(f"WHEN '{name}' THEN {hours[which] * SECONDS_AN_HOUR}" for name, hours in SLA_HOURS.items())
    return F.expr(f"CASE priority {cases} END")
