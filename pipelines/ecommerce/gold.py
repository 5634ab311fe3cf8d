"""Gold: what the shop asks every morning, by customer, by day, by product."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from icefield import accumulate, between, by_key, reconciles, references, sql, table, unique

COMPLETED = "status = 'completed'"
VIP_LTV, VIP_ORDERS = 1000, 3
SILVER_WITH_CUSTOMERS = ["silver.customer_sessions", "silver.payment_analysis", "silver.support_metrics"]


def with_segment(totals: DataFrame) -> DataFrame:
    """A customer's columns, from the totals."""
    return totals.select(
        "customer_id",
        "total_sessions",
        "converted_sessions",
        "total_orders",
        "total_ltv",
        F.round(F.try_divide("total_ltv", "total_orders"), 2).cast("DECIMAL(18,2)").alias("avg_order_value"),
        F.try_divide("converted_sessions", "total_sessions").alias("conversion_rate"),
        "support_tickets_count",
        "last_activity_at",
        segment().alias("customer_segment"),
    )


@table(
    "gold.customer_summary",
    refresh=accumulate(
        "customer_id",
        total_sessions="count",
        converted_sessions="count",
        total_orders="count",
        total_ltv="sum",
        support_tickets_count="count",
        last_activity_at="max",
        finish=with_segment,
    ),
    tags=["gold", "customers"],
    columns="""customer_id BIGINT, total_sessions BIGINT, converted_sessions BIGINT,
               total_orders BIGINT COMMENT 'completed payments', total_ltv DECIMAL(18,2) COMMENT 'their sum',
               avg_order_value DECIMAL(18,2) COMMENT 'rounded half up; empty without orders',
               conversion_rate DOUBLE COMMENT 'converted sessions / sessions; empty without sessions',
               support_tickets_count BIGINT,
               last_activity_at TIMESTAMP COMMENT 'latest end of a session, payment or opening of a ticket',
               customer_segment STRING COMMENT 'VIP, At-Risk or Regular'""",
    checks=[
        unique("customer_id"),
        between("conversion_rate", 0, 1),
        *[references("customer_id", to="gold.customer_summary", of=silver) for silver in SILVER_WITH_CUSTOMERS],
    ],
)
def customer_summary(
    customer_sessions: DataFrame, payment_analysis: DataFrame, support_metrics: DataFrame
) -> DataFrame:
    """One row for every customer of any silver table: sessions, orders, lifetime value, segment."""
    visits = customer_sessions.select(
        "customer_id",
        F.lit(1).alias("sessions"),
        F.col("is_converted").cast("INT").alias("converted"),
        F.col("session_end").alias("active_at"),
    )
    payments = payment_analysis.select(
        "customer_id",
        F.expr(f"int({COMPLETED})").alias("orders"),
        F.expr(f"IF({COMPLETED}, amount, 0)").alias("paid"),
        F.col("transaction_timestamp").alias("active_at"),
    )
    tickets = support_metrics.select("customer_id", F.lit(1).alias("tickets"), F.col("created_at").alias("active_at"))
    rows = visits.unionByName(payments, allowMissingColumns=True).unionByName(tickets, allowMissingColumns=True)
    return rows.groupBy("customer_id").agg(
        total("sessions").alias("total_sessions"),
        total("converted").alias("converted_sessions"),
        total("orders").alias("total_orders"),
        total("paid").cast("DECIMAL(18,2)").alias("total_ltv"),
        total("tickets").alias("support_tickets_count"),
        F.max("active_at").alias("last_activity_at"),
    )


daily_metrics = table(
    "gold.daily_metrics",
    refresh=by_key("transaction_date"),  # distinct customers do not merge, and a day's payments arrive together
    tags=["gold", "revenue"],
    columns="""transaction_date DATE, total_revenue DECIMAL(18,2) COMMENT 'completed payments',
               total_orders BIGINT COMMENT 'completed payments',
               avg_order_value DECIMAL(18,2) COMMENT 'rounded half up; empty without orders',
               total_customers BIGINT COMMENT 'distinct customers of completed payments, exactly',
               fraud_flag_count BIGINT COMMENT 'suspicious payments of any status'""",
    checks=[
        unique("transaction_date"),
        reconciles(
            "completed revenue",
            {
                "silver.payment_analysis": f"sum(amount) FILTER (WHERE {COMPLETED})",
                "gold.customer_summary": "sum(total_ltv)",
                "gold.daily_metrics": "sum(total_revenue)",
                "gold.product_summary": "sum(revenue_generated)",
            },
        ),
    ],
)(sql("daily_metrics.sql"))


def with_rate(totals: DataFrame) -> DataFrame:
    """A product's columns, from the totals."""
    return totals.select(
        "product_id",
        "product_views",
        "product_purchases",
        F.try_divide("product_purchases", "product_views").alias("conversion_rate"),
        "revenue_generated",
        "current_stock_level",
    )


@table(
    "gold.product_summary",
    refresh=accumulate(
        "product_id",
        product_views="count",
        product_purchases="count",
        revenue_generated="sum",
        current_stock_level="sum",
        finish=with_rate,
    ),
    tags=["gold", "revenue", "inventory"],
    columns="""product_id BIGINT, product_views BIGINT, product_purchases BIGINT COMMENT 'purchase events',
               conversion_rate DOUBLE COMMENT 'purchases / views; empty without views',
               revenue_generated DECIMAL(18,2) COMMENT 'completed payments',
               current_stock_level BIGINT COMMENT 'newest count of each warehouse, summed'""",
    checks=[unique("product_id"), between("conversion_rate", 0, 1, otherwise="warn")],
)
def product_summary(customer_events: DataFrame, payment_analysis: DataFrame, stock_levels: DataFrame) -> DataFrame:
    """One row for every product that was seen, paid for or counted."""
    seen = customer_events.select(
        "product_id",
        F.expr("int(event_type = 'view')").alias("views"),
        F.expr("int(event_type = 'purchase')").alias("purchases"),
    )
    paid = payment_analysis.select("product_id", F.expr(f"IF({COMPLETED}, amount, 0)").alias("revenue"))
    held = stock_levels.select("product_id", F.col("stock_quantity").alias("stock"))
    rows = seen.unionByName(paid, allowMissingColumns=True).unionByName(held, allowMissingColumns=True)
    return rows.groupBy("product_id").agg(
        total("views").alias("product_views"),
        total("purchases").alias("product_purchases"),
        total("revenue").cast("DECIMAL(18,2)").alias("revenue_generated"),
        total("stock").alias("current_stock_level"),
    )


def total(column: str) -> Column:
    """The sum, 0 where there is nothing to sum."""
    return F.coalesce(F.sum(column), F.lit(0))


def segment() -> Column:
    """VIP, At-Risk or Regular, from a customer's totals."""
    return F.expr(
        f"""CASE WHEN total_ltv >= {VIP_LTV} AND total_orders >= {VIP_ORDERS} THEN 'VIP'
                 WHEN total_orders = 0 OR support_tickets_count > total_orders THEN 'At-Risk'
                 ELSE 'Regular' END"""
    )
