"""The e-commerce tables as plain functions: a few rows in, values worked out by hand out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from icefield.declare import Column, parse_columns
from icefield.project import load_functions, open_project
from icefield.project.project import Functions

if TYPE_CHECKING:
    from icefield.graph import Graph

PROJECT = Path(__file__).parents[2] / "pipelines" / "ecommerce"
ARRIVED = "source_file STRING, source_line BIGINT, ingested_at TIMESTAMP"
pytestmark = pytest.mark.spark
NOON = datetime(2026, 8, 3, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    running = SparkSession.getActiveSession()
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.codegen.wholeStage", "false")  # a handful of rows is not worth compiling for
        .getOrCreate()
    )
    yield session
    if running is None:
        session.stop()


@pytest.fixture(scope="module")
def graph() -> Graph:
    return open_project(PROJECT).graph


@pytest.fixture(scope="module")
def functions() -> Functions:
    return load_functions(open_project(PROJECT))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def rows(frame: DataFrame, *columns: str) -> Counter[tuple[Any, ...]]:
    """The rows as a multiset; times come back as UTC whatever zone the machine is in."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in frame.select(*columns).collect():
        found[tuple(v.astimezone(UTC) if isinstance(v, datetime) else v for v in row)] += 1
    return found


def contract(frame: DataFrame) -> tuple[Column, ...]:
    return parse_columns(", ".join(f"{field.name} {field.dataType.simpleString()}" for field in frame.schema.fields))


def names_and_types(columns: tuple[Column, ...] | None) -> list[tuple[str, str]]:
    return [(column.name, column.type) for column in columns or ()]


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    schema = (
        "event_id BIGINT, customer_id BIGINT, session_id STRING, event_type STRING, product_id BIGINT, "
        "event_timestamp TIMESTAMP"
    )
    return spark.createDataFrame(
        [
            (1, 10, "a", "view", 7, at("2026-08-03 10:00:00")),
            (2, 10, "a", "add_to_cart", 7, at("2026-08-03 10:05:00")),
            (3, 10, "a", "purchase", 7, at("2026-08-03 10:06:40")),
            (4, 10, "b", "view", 8, at("2026-08-04 09:00:00")),
            (5, 11, "a", "add_to_cart", 8, at("2026-08-04 11:00:00")),
            (6, 11, "a", "click", 8, at("2026-08-04 10:59:58")),
            (7, 12, "z", "purchase", 9, at("2026-08-05 00:00:00")),
        ],
        schema,
    )


@pytest.fixture(scope="module")
def payments(spark: SparkSession) -> DataFrame:
    schema = (
        "transaction_id BIGINT, customer_id BIGINT, product_id BIGINT, amount DECIMAL(12,2), currency STRING, "
        "payment_method STRING, status STRING, transaction_timestamp TIMESTAMP, ingested_at TIMESTAMP, "
        "source_system STRING, source_file STRING"
    )
    data = [
        (1, 10, 7, "500.00", "completed", "2026-08-03 23:00:00"),  # Monday, exactly the limit, off hours
        (2, 10, 7, "500.01", "completed", "2026-08-08 05:59:59"),  # Saturday, above it, off hours
        (3, 10, 8, "100.00", "completed", "2026-08-09 06:00:00"),  # Sunday, not off hours any more
        (4, 13, 8, "0.01", "failed", "2026-08-09 22:59:59"),
        (5, 13, 6, "900.00", "refunded", "2026-08-10 00:00:00"),
        (6, 14, 8, "0.10", "completed", "2026-08-11 12:00:00"),
        (7, 14, 8, "0.05", "completed", "2026-08-11 12:00:00"),
    ]
    return spark.createDataFrame(
        [
            (i, c, p, Decimal(a), "EUR", "card", s, at(t), NOON, "payments", "landing/payment_transactions/x.csv")
            for i, c, p, a, s, t in data
        ],
        schema,
    )


@pytest.fixture(scope="module")
def inventory(spark: SparkSession) -> DataFrame:
    schema = (
        "snapshot_id BIGINT, product_id BIGINT, warehouse_id INT, stock_quantity INT, reorder_level INT, "
        "avg_daily_sales DOUBLE, snapshot_timestamp TIMESTAMP, ingested_at TIMESTAMP, source_system STRING, "
        "source_file STRING"
    )
    data = [
        (1, 7, 1, 70, 70, 10.0, "2026-08-01 00:00:00"),  # exactly 7 days: not low; at the level: reorder
        (2, 7, 1, 69, 10, 10.0, "2026-08-02 00:00:00"),  # newest of its warehouse
        (3, 7, 2, 5, 10, 0.0, "2026-08-02 00:00:00"),  # nothing sold: no answer
        (4, 7, 2, 6, 10, None, "2026-08-02 00:00:00"),  # same time, greater id: newest
        (5, 5, 1, 0, 0, 2.0, "2026-08-01 00:00:00"),
    ]
    return spark.createDataFrame(
        [(*row[:6], at(row[6]), NOON, "warehouse", "landing/inventory_snapshots/x.csv") for row in data], schema
    )


@pytest.fixture(scope="module")
def tickets(spark: SparkSession) -> DataFrame:
    schema = (
        "ticket_id BIGINT, customer_id BIGINT, category STRING, priority STRING, created_at TIMESTAMP, "
        "first_response_at TIMESTAMP, resolved_at TIMESTAMP, satisfaction_score INT, ingested_at TIMESTAMP, "
        "source_system STRING, source_file STRING"
    )
    data = [
        (1, 10, "critical", "2026-08-03 10:00:00", "2026-08-03 11:00:00", "2026-08-03 14:00:01"),
        (2, 14, "low", "2026-08-03 10:00:00", "2026-08-04 10:00:01", None),
        (3, 14, "medium", "2026-08-03 10:00:00", None, None),
        (4, 14, "high", "2026-08-12 10:00:00", "2026-08-12 11:30:00", "2026-08-13 10:00:00"),
        (5, 15, "high", "2026-08-12 10:00:00", None, None),
    ]
    return spark.createDataFrame(
        [
            (i, c, "other", p, at(t), a and at(a), r and at(r), None, NOON, "support", "landing/support_tickets/x.csv")
            for i, c, p, t, a, r in data
        ],
        schema,
    )


def finished(functions: Functions, name: str, *inputs: DataFrame) -> DataFrame:
    """What an accumulating table holds: the function's measures, finished."""
    found: DataFrame = functions.finishes[name](functions[name](*inputs))
    return found


@pytest.fixture(scope="module")
def built(
    functions: Functions, events: DataFrame, payments: DataFrame, inventory: DataFrame, tickets: DataFrame
) -> dict[str, DataFrame]:
    def built(name: str, *inputs: DataFrame) -> DataFrame:
        return finished(functions, name, *inputs)

    sessions = built("silver.customer_sessions", events)
    paid = functions["silver.payment_analysis"](payments)
    health = functions["silver.inventory_health"](inventory)
    support = functions["silver.support_metrics"](tickets)
    stock = built("silver.stock_levels", health)
    return {
        "silver.customer_sessions": sessions,
        "silver.payment_analysis": paid,
        "silver.inventory_health": health,
        "silver.support_metrics": support,
        "silver.stock_levels": stock,
        "gold.customer_summary": built("gold.customer_summary", sessions, paid, support),
        "gold.daily_metrics": functions["gold.daily_metrics"](paid),
        "gold.product_summary": built("gold.product_summary", events, paid, stock),
    }


def test_every_silver_and_gold_function_gives_exactly_its_contract(built: dict[str, DataFrame], graph: Graph) -> None:
    for name, frame in built.items():
        assert names_and_types(contract(frame)) == names_and_types(graph[name].columns), name


def test_every_silver_and_gold_column_set_is_declared(graph: Graph) -> None:
    assert [name for name in graph.order if graph[name].schema != "bronze" and graph[name].columns is None] == []


@pytest.mark.parametrize(
    ("feed", "system"),
    [
        ("customer_events", "web"),
        ("payment_transactions", "payments"),
        ("inventory_snapshots", "warehouse"),
        ("support_tickets", "support"),
    ],
)
def test_bronze_is_the_feed_with_when_and_where(
    spark: SparkSession, functions: Functions, graph: Graph, feed: str, system: str
) -> None:
    source = graph[f"bronze.{feed}"].source
    assert source is not None
    schema = ", ".join(f"{column.name} {column.type}" for column in source.columns)
    landed = functions[f"bronze.{feed}"](spark.createDataFrame([(None,) * len(source.columns)], schema))
    declared = [column.name for column in source.columns][:-3]
    assert landed.columns == [*declared, "ingested_at", "source_system", "source_file"]
    assert landed.first()["source_system"] == system


def test_sessions_count_events_and_know_how_they_ended(built: dict[str, DataFrame]) -> None:
    columns = ("customer_id", "session_id", "session_start", "session_end", "session_duration_seconds", "event_count")
    counts = ("view_count", "click_count", "add_to_cart_count", "purchase_count")
    flags = ("is_converted", "is_abandoned", "is_bounce")
    assert rows(built["silver.customer_sessions"], *columns, *counts, *flags) == Counter(
        [
            (10, "a", at("2026-08-03 10:00:00"), at("2026-08-03 10:06:40"), 400, 3, 1, 0, 1, 1, True, False, False),
            (10, "b", at("2026-08-04 09:00:00"), at("2026-08-04 09:00:00"), 0, 1, 1, 0, 0, 0, False, False, True),
            (11, "a", at("2026-08-04 10:59:58"), at("2026-08-04 11:00:00"), 2, 2, 0, 1, 1, 0, False, True, False),
            (12, "z", at("2026-08-05 00:00:00"), at("2026-08-05 00:00:00"), 0, 1, 0, 0, 0, 1, True, False, True),
        ]
    )


def test_payments_know_their_day_and_what_is_suspicious(built: dict[str, DataFrame]) -> None:
    columns = ("transaction_id", "transaction_date", "hour", "day_of_week")
    flags = ("is_high_value", "is_off_hours", "is_weekend", "is_suspicious")
    assert rows(built["silver.payment_analysis"], *columns, *flags) == Counter(
        [
            (1, date(2026, 8, 3), 23, 1, False, True, False, False),
            (2, date(2026, 8, 8), 5, 6, True, True, True, True),
            (3, date(2026, 8, 9), 6, 7, False, False, True, False),
            (4, date(2026, 8, 9), 22, 7, False, False, True, False),
            (5, date(2026, 8, 10), 0, 1, True, True, False, True),
            (6, date(2026, 8, 11), 12, 2, False, False, False, False),
            (7, date(2026, 8, 11), 12, 2, False, False, False, False),
        ]
    )


def test_stock_without_sales_has_no_days_and_no_flag(built: dict[str, DataFrame]) -> None:
    columns = ("snapshot_id", "days_of_stock", "is_low_stock", "needs_reorder")
    assert rows(built["silver.inventory_health"], *columns) == Counter(
        [
            (1, 7.0, False, True),
            (2, 6.9, True, False),
            (3, None, None, True),
            (4, None, None, True),
            (5, 0.0, True, True),
        ]
    )


def test_stock_levels_take_the_newest_count_then_the_greatest_id(built: dict[str, DataFrame]) -> None:
    columns = ("product_id", "warehouse_id", "stock_quantity", "snapshot_timestamp")
    assert rows(built["silver.stock_levels"], *columns) == Counter(
        [
            (7, 1, 69, at("2026-08-02 00:00:00")),
            (7, 2, 6, at("2026-08-02 00:00:00")),
            (5, 1, 0, at("2026-08-01 00:00:00")),
        ]
    )


def test_support_promises_are_met_at_the_limit_and_unknown_while_open(built: dict[str, DataFrame]) -> None:
    columns = (
        "ticket_id",
        "response_time_hours",
        "resolution_time_hours",
        "meets_response_sla",
        "meets_resolution_sla",
    )
    assert rows(built["silver.support_metrics"], *columns) == Counter(
        [
            (1, 1.0, 14401 / 3600.0, True, False),
            (2, 86401 / 3600.0, None, False, None),
            (3, None, None, None, None),
            (4, 1.5, 24.0, True, True),
            (5, None, None, None, None),
        ]
    )


def test_customers_of_any_silver_table_are_summed_up(built: dict[str, DataFrame]) -> None:
    columns = ("customer_id", "total_sessions", "converted_sessions", "total_orders", "total_ltv", "avg_order_value")
    more = ("conversion_rate", "support_tickets_count", "last_activity_at", "customer_segment")
    zero = Decimal("0.00")
    assert rows(built["gold.customer_summary"], *columns, *more) == Counter(
        [
            (10, 2, 1, 3, Decimal("1100.01"), Decimal("366.67"), 0.5, 1, at("2026-08-09 06:00:00"), "VIP"),
            (11, 1, 0, 0, zero, None, 0.0, 0, at("2026-08-04 11:00:00"), "At-Risk"),
            (12, 1, 1, 0, zero, None, 1.0, 0, at("2026-08-05 00:00:00"), "At-Risk"),
            (13, 0, 0, 0, zero, None, None, 0, at("2026-08-10 00:00:00"), "At-Risk"),
            # 0.15 / 2 = 0.075: half up to 0.08; three tickets against two orders
            (14, 0, 0, 2, Decimal("0.15"), Decimal("0.08"), None, 3, at("2026-08-12 10:00:00"), "At-Risk"),
            (15, 0, 0, 0, zero, None, None, 1, at("2026-08-12 10:00:00"), "At-Risk"),
        ]
    )


def test_a_customer_with_orders_and_few_tickets_is_regular(functions: Functions, built: dict[str, DataFrame]) -> None:
    summary = finished(
        functions,
        "gold.customer_summary",
        built["silver.customer_sessions"],
        built["silver.payment_analysis"],
        built["silver.support_metrics"].where("ticket_id < 4"),
    )
    assert rows(summary.where("customer_id = 14"), "support_tickets_count", "customer_segment") == Counter(
        [(2, "Regular")]
    )


def test_every_day_with_a_payment_has_its_metrics(built: dict[str, DataFrame]) -> None:
    columns = (
        "transaction_date",
        "total_revenue",
        "total_orders",
        "avg_order_value",
        "total_customers",
        "fraud_flag_count",
    )
    assert rows(built["gold.daily_metrics"], *columns) == Counter(
        [
            (date(2026, 8, 3), Decimal("500.00"), 1, Decimal("500.00"), 1, 0),
            (date(2026, 8, 8), Decimal("500.01"), 1, Decimal("500.01"), 1, 1),
            (date(2026, 8, 9), Decimal("100.00"), 1, Decimal("100.00"), 1, 0),
            (date(2026, 8, 10), Decimal("0.00"), 0, None, 0, 1),
            (date(2026, 8, 11), Decimal("0.15"), 2, Decimal("0.08"), 1, 0),
        ]
    )


def test_products_of_any_input_are_summed_up(built: dict[str, DataFrame]) -> None:
    columns = ("product_id", "product_views", "product_purchases", "conversion_rate", "revenue_generated")
    assert rows(built["gold.product_summary"], *columns, "current_stock_level") == Counter(
        [
            (5, 0, 0, None, Decimal("0.00"), 0),
            (6, 0, 0, None, Decimal("0.00"), 0),
            (7, 1, 1, 1.0, Decimal("1000.01"), 75),
            (8, 1, 0, 0.0, Decimal("100.15"), 0),
            (9, 0, 1, None, Decimal("0.00"), 0),
        ]
    )


def test_revenue_agrees_in_every_table(built: dict[str, DataFrame], graph: Graph) -> None:
    amounts = next(
        check for check in graph["gold.daily_metrics"].table_checks if check.name == "completed revenue"
    ).amounts
    totals = {name: built[name].selectExpr(f"{text} AS amount").first()["amount"] for name, text in amounts.items()}
    assert set(totals.values()) == {Decimal("1100.16")}


def test_row_checks_are_sql_that_spark_understands(
    built: dict[str, DataFrame],
    events: DataFrame,
    payments: DataFrame,
    inventory: DataFrame,
    tickets: DataFrame,
    graph: Graph,
) -> None:
    frames = {
        **built,
        "bronze.customer_events": events,
        "bronze.payment_transactions": payments,
        "bronze.inventory_snapshots": inventory,
        "bronze.support_tickets": tickets,
    }
    for name, frame in frames.items():
        for check in graph[name].row_checks:
            failed = frame.where(f"NOT coalesce({check.predicate}, true)").count()
            assert failed == 0, (name, check.name)


@pytest.mark.parametrize(
    ("feed", "names"),
    [
        (
            "customer_events",
            {
                "event_id is not null",
                "customer_id is not null",
                "session_id is not null",
                "product_id is not null",
                "event_timestamp is not null",
                "event_type is one of view, click, add_to_cart, purchase",
            },
        ),
        (
            "payment_transactions",
            {
                "transaction_id is not null",
                "customer_id is not null",
                "product_id is not null",
                "amount is not null",
                "transaction_timestamp is not null",
                "status is one of completed, failed, refunded",
                "amount is positive",
            },
        ),
        (
            "inventory_snapshots",
            {
                "snapshot_id is not null",
                "product_id is not null",
                "stock_quantity is not null",
                "snapshot_timestamp is not null",
                "stock is not negative",
            },
        ),
        (
            "support_tickets",
            {
                "ticket_id is not null",
                "customer_id is not null",
                "created_at is not null",
                "priority is one of critical, high, medium, low",
                "answered after it was opened",
                "resolved after it was opened",
            },
        ),
    ],
)
def test_bronze_checks_are_those_of_the_contract_and_set_aside(graph: Graph, feed: str, names: set[str]) -> None:
    node = graph[f"bronze.{feed}"]
    assert {check.name for check in node.row_checks} == names
    assert {check.otherwise for check in node.row_checks} == {"quarantine"}
    unique = [check for check in node.table_checks if check.name.endswith("is unique")]
    assert [(check.name, check.otherwise) for check in unique] == [(f"{feed_key(node.name)} is unique", "quarantine")]


def feed_key(name: str) -> str:
    return {"bronze.customer_events": "event_id", "bronze.payment_transactions": "transaction_id"}.get(
        name, {"bronze.inventory_snapshots": "snapshot_id", "bronze.support_tickets": "ticket_id"}.get(name, "")
    )


def test_the_newest_event_is_compared_with_the_newest_files_day(spark: SparkSession, graph: Graph) -> None:
    check = graph["bronze.customer_events"].table_checks[-1]
    frame = spark.createDataFrame(
        [(at("2026-08-03 00:00:00"), "landing/customer_events/2026-08-05.csv"), (at("2026-08-01 00:00:00"), "odd.csv")],
        "event_timestamp TIMESTAMP, source_file STRING",
    )
    assert frame.selectExpr(f"{check.aggregate} AS ok").first()["ok"] is True
    late = frame.withColumn("source_file", frame.source_file.substr(1, 0)).unionByName(
        spark.createDataFrame([(None, "landing/customer_events/2026-08-06.csv")], frame.schema)
    )
    assert late.selectExpr(f"{check.aggregate} AS ok").first()["ok"] is False
