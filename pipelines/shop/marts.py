"""Marts: what is asked about the shop."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from icefield import by_key, lookup, ref, table, unique

MONEY = "DECIMAL(18,2)"
MARTS = ["marts"]


def newest(rows: DataFrame, *keys: str) -> DataFrame:
    """The last row of each key."""
    order = Window.partitionBy(*keys).orderBy(F.col("load_date").desc(), F.col("sequence").desc())
    return rows.withColumn("_nth", F.row_number().over(order)).where("_nth = 1").drop("_nth")


def total(column: str) -> Column:
    """The sum, 0 where there is nothing to sum."""
    return F.coalesce(F.sum(column), F.lit(0))


@table(
    "marts.order_overview",
    inputs={
        "hub_customer": lookup("vault.hub_customer", on="customer_hk"),
        "sat_customer": lookup("vault.sat_customer", on="customer_hk"),
    },
    refresh=by_key("order_hk"),
    columns=f"""order_hk STRING, order_id BIGINT, customer_hk STRING, customer_id BIGINT, customer_name STRING,
                customer_city STRING, status STRING, placed_at TIMESTAMP, lines BIGINT, items BIGINT,
                amount {MONEY} COMMENT 'quantity times unit price of all lines'""",
    checks=[unique("order_hk")],
    tags=MARTS,
)
def order_overview(
    hub_order: DataFrame,
    sat_order: DataFrame,
    sat_order_status: DataFrame,
    link_order_customer: DataFrame,
    link_order_product: DataFrame,
    sat_order_line: DataFrame,
    hub_customer: DataFrame,
    sat_customer: DataFrame,
) -> DataFrame:
    """One row an order that exists: its customer as known today, what it holds, what it is worth."""
    there = newest(sat_order_status, "order_hk").where("is_active").select("order_hk")
    orders = hub_order.select("order_hk", "order_id").join(there, "order_hk")
    details = newest(sat_order, "order_hk").select("order_hk", "status", "placed_at")
    links = link_order_customer.where("end_date IS NULL").select("order_hk", "customer_hk")
    known = hub_customer.select("customer_hk", "customer_id")
    names = newest(sat_customer, "customer_hk").select(
        "customer_hk", F.col("name").alias("customer_name"), F.col("city").alias("customer_city")
    )
    now = link_order_product.where("end_date IS NULL").select("order_hk", "order_product_hk")
    held = newest(sat_order_line, "order_hk", "order_product_hk").select(
        "order_hk", "order_product_hk", "quantity", (F.col("quantity") * F.col("unit_price")).alias("worth")
    )
    lines = now.join(held, ["order_hk", "order_product_hk"]).groupBy("order_hk")
    sums = lines.agg(F.count("*").alias("lines"), total("quantity").alias("items"), total("worth").alias("amount"))
    placed = orders.join(links, "order_hk", "left").join(details, "order_hk", "left").join(sums, "order_hk", "left")
    whole = placed.join(known, "customer_hk", "left").join(names, "customer_hk", "left")
    return whole.select(
        "order_hk",
        "order_id",
        "customer_hk",
        "customer_id",
        "customer_name",
        "customer_city",
        "status",
        "placed_at",
        F.coalesce("lines", F.lit(0)).cast("BIGINT").alias("lines"),
        F.coalesce("items", F.lit(0)).cast("BIGINT").alias("items"),
        F.coalesce("amount", F.lit(0)).cast(MONEY).alias("amount"),
    )


@table(
    "marts.customer_lifetime",
    refresh=by_key("customer_hk"),
    columns=f"""customer_hk STRING, customer_id BIGINT, is_active BOOLEAN COMMENT 'NULL: only seen in orders',
                orders BIGINT, items BIGINT, amount {MONEY}, first_order TIMESTAMP, last_order TIMESTAMP""",
    checks=[unique("customer_hk")],
    tags=MARTS,
)
def customer_lifetime(hub_customer: DataFrame, sat_customer_status: DataFrame, order_overview: DataFrame) -> DataFrame:
    """One row a customer, even one that is gone: orders, items and amount so far."""
    status = newest(sat_customer_status, "customer_hk").select("customer_hk", "is_active")
    sums = order_overview.groupBy("customer_hk").agg(
        F.count("*").alias("orders"),
        total("items").alias("items"),
        total("amount").alias("amount"),
        F.min("placed_at").alias("first_order"),
        F.max("placed_at").alias("last_order"),
    )
    customers = hub_customer.where("customer_id IS NOT NULL").select("customer_hk", "customer_id")
    whole = customers.join(status, "customer_hk", "left").join(sums, "customer_hk", "left")
    return whole.select(
        "customer_hk",
        "customer_id",
        "is_active",
        F.coalesce("orders", F.lit(0)).cast("BIGINT").alias("orders"),
        F.coalesce("items", F.lit(0)).cast("BIGINT").alias("items"),
        F.coalesce("amount", F.lit(0)).cast(MONEY).alias("amount"),
        "first_order",
        "last_order",
    )


@table(
    "marts.product_sales",
    inputs={"lines": "current.order_lines", "products": ref("current.products", product_id="id")},
    refresh=by_key("product_id"),
    columns=f"""product_id BIGINT, sku STRING COMMENT 'NULL: the product is gone', name STRING, price DECIMAL(12,2),
                orders BIGINT, sold BIGINT, amount {MONEY}""",
    checks=[unique("product_id")],
    tags=MARTS,
)
def product_sales(lines: DataFrame, products: DataFrame) -> DataFrame:
    """One row a product: how often and for how much it is in orders that exist."""
    sums = lines.groupBy("product_id").agg(
        F.count_distinct("order_id").alias("orders"),
        total("quantity").alias("sold"),
        F.coalesce(F.sum(F.col("quantity") * F.col("unit_price")), F.lit(0)).alias("amount"),
    )
    known = products.withColumnRenamed("id", "product_id")
    return known.join(sums, "product_id", "full").select(
        "product_id",
        "sku",
        "name",
        "price",
        F.coalesce("orders", F.lit(0)).cast("BIGINT").alias("orders"),
        F.coalesce("sold", F.lit(0)).cast("BIGINT").alias("sold"),
        F.coalesce("amount", F.lit(0)).cast(MONEY).alias("amount"),
    )


@table(
    "marts.customer_as_of",
    refresh=by_key("customer_hk"),
    columns="""customer_hk STRING, as_of TIMESTAMP COMMENT 'from here on', until TIMESTAMP COMMENT 'exclusive; NULL: now',
               is_active BOOLEAN, email STRING, name STRING, city STRING""",
    checks=[unique("customer_hk", "as_of")],
    tags=MARTS,
)
def customer_as_of(pit_customer: DataFrame, sat_customer: DataFrame, sat_customer_status: DataFrame) -> DataFrame:
    """Every customer as of any moment: `WHERE as_of <= :moment AND (until > :moment OR until IS NULL)`."""
    details = sat_customer.select(
        "customer_hk",
        F.col("load_date").alias("sat_customer_load_date"),
        F.col("sequence").alias("sat_customer_sequence"),
        "email",
        "name",
        "city",
    )
    status = sat_customer_status.select(
        "customer_hk",
        F.col("load_date").alias("sat_customer_status_load_date"),
        F.col("sequence").alias("sat_customer_status_sequence"),
        "is_active",
    )
    on = ["customer_hk", "sat_customer_load_date", "sat_customer_sequence"]
    on_status = ["customer_hk", "sat_customer_status_load_date", "sat_customer_status_sequence"]
    whole = pit_customer.join(details, on, "left").join(status, on_status, "left")
    return whole.select("customer_hk", "as_of", "until", "is_active", "email", "name", "city")
