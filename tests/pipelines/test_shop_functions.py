"""The shop's tables as plain functions: a few events or rows in, values worked out by hand out."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame

from captured import EVENTS, event
from icefield.declare import Append, ByKey, Full
from icefield.engine.session.spark import start_session
from icefield.project import load_functions, open_project
from icefield.testing import assert_incremental
from projects import QUICK

if TYPE_CHECKING:
    from icefield.graph import Graph
    from icefield.project.project import Functions

PROJECT = Path(__file__).parents[2] / "pipelines" / "shop"
pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)
STAMP = "load_date TIMESTAMP, sequence BIGINT"
TABLES = ("customers", "products", "orders", "order_lines")


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Any:
    log = tmp_path_factory.mktemp("session") / "spark.log"
    return start_session(app="tests", conf=QUICK, log=log, effort="least")


@pytest.fixture(scope="module")
def graph() -> Graph:
    return open_project(PROJECT).graph


@pytest.fixture(scope="module")
def functions() -> Functions:
    return load_functions(open_project(PROJECT))


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def rows(frame: DataFrame, *columns: str) -> Counter[tuple[Any, ...]]:
    """The rows as a multiset; times as seconds."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in frame.select(*columns or frame.columns).collect():
        found[
            tuple((v.astimezone(UTC) - START) // timedelta(seconds=1) if isinstance(v, datetime) else v for v in row)
        ] += 1
    return found


def test_every_table_is_incremental_but_the_seeds(graph: Graph) -> None:
    kinds = {name: type(graph[name].refresh) for name in graph.order}
    assert [name for name, kind in kinds.items() if kind is Full] == ["seeds.ghosts"]
    assert {kind for name, kind in kinds.items() if name.startswith("raw.")} == {Append}
    assert all(
        kind is ByKey for name, kind in kinds.items() if name.startswith(("current", "history", "vault", "marts"))
    )
    assert not any(getattr(graph[name].refresh, "trusted", False) for name in graph.order)


def test_the_specified_tables_are_there(graph: Graph) -> None:
    captured = {
        f"{schema}.{name}"
        for name in TABLES
        for schema, name in [("raw", f"{name}_events"), ("parsed", name), ("current", name), ("history", name)]
    }
    vault = {
        "hub_customer", "hub_product", "hub_order", "link_order_customer", "link_order_product", "sat_customer",
        "sat_product", "sat_order", "sat_order_line", "sat_customer_status", "sat_product_status", "sat_order_status",
        "sat_order_line_status", "pit_customer",
    }  # fmt: skip
    marts = {"order_overview", "customer_lifetime", "product_sales", "customer_as_of"}
    wanted = captured | {f"vault.{name}" for name in vault} | {f"marts.{name}" for name in marts}
    assert wanted <= set(graph.order)


def test_capture_from_an_event_to_its_state_and_history(spark: Any, functions: Functions) -> None:
    key = {"order_id": 7, "line_no": 1}
    line = {"product_id": 3, "quantity": 2, "unit_price": "1.50"}
    events = spark.createDataFrame(
        [
            event("c", key, line, at=1),
            event("u", key, {**line, "quantity": 5}, at=2),
            event("u", key, {**line, "quantity": 5}, at=3),
            event("t", None, at=4),
            event("c", key, line, at=5),
        ],
        EVENTS,
    )
    truncates = functions["parsed.order_lines_truncates"](events)
    assert rows(truncates, "op", "offset") == Counter([("t", 4)])
    parsed = functions["parsed.order_lines"](events=events, truncates=truncates)
    now = functions["current.order_lines"](parsed)
    assert rows(now) == Counter([(7, 1, 3, 2, Decimal("1.50"))])
    states = functions["history.order_lines"](parsed)
    assert rows(states, "quantity", "sequence", "is_current") == Counter([(2, 1, False), (5, 3, False), (2, 5, True)])


def test_events_without_their_key_are_rejected(graph: Graph, spark: Any) -> None:
    named = event("c", {"id": 1}, {"name": "a"}, at=1)
    nameless = event("c", None, {"name": "a"}, at=2)
    truncate = event("t", None, at=3)
    check = next(c for c in graph["raw.customers_events"].row_checks if c.name == "the event names its row")
    frame = spark.createDataFrame([named, nameless, truncate], EVENTS)
    assert [row.offset for row in frame.where(f"NOT ({check.predicate})").collect()] == [2]


# -- marts


@pytest.fixture(scope="module")
def vault(spark: Any) -> dict[str, DataFrame]:
    """An order `o` of customer `c`: two lines, one of which has changed its product; an order that is `gone`."""

    def frame(schema: str, *values: tuple[Any, ...]) -> DataFrame:
        return spark.createDataFrame(list(values), schema)

    return {
        "hub_order": frame(f"order_hk STRING, order_id BIGINT, {STAMP}", ("o", 1, at(1), 1), ("gone", 2, at(1), 1)),
        "sat_order": frame(
            f"order_hk STRING, status STRING, placed_at TIMESTAMP, {STAMP}",
            ("o", "open", at(0), at(1), 1),
            ("o", "sent", at(0), at(1), 2),
        ),
        "sat_order_status": frame(
            f"order_hk STRING, is_active BOOLEAN, {STAMP}",
            ("o", True, at(1), 1),
            ("gone", True, at(1), 1),
            ("gone", False, at(2), 2),
        ),
        "link_order_customer": frame(
            f"order_hk STRING, customer_hk STRING, end_date TIMESTAMP, {STAMP}",
            ("o", "before", at(2), at(1), 1),
            ("o", "c", None, at(2), 2),
        ),
        "link_order_product": frame(
            f"order_hk STRING, order_product_hk STRING, end_date TIMESTAMP, {STAMP}",
            ("o", "o-p-1", at(3), at(1), 1),
            ("o", "o-q-1", None, at(3), 2),
            ("o", "o-p-2", None, at(1), 1),
        ),
        "sat_order_line": frame(
            f"order_hk STRING, order_product_hk STRING, quantity INT, unit_price DECIMAL(12,2), {STAMP}",
            ("o", "o-p-1", 100, Decimal("9.99"), at(1), 1),
            ("o", "o-q-1", 2, Decimal("1.50"), at(3), 2),
            ("o", "o-p-2", 1, Decimal("4.00"), at(1), 1),
            ("o", "o-p-2", 3, Decimal("4.00"), at(4), 2),
        ),
        "hub_customer": frame(
            f"customer_hk STRING, customer_id BIGINT, {STAMP}",
            ("c", 5, at(1), 1),
            ("n", 6, at(1), 1),
            ("0" * 32, None, at(-9), 0),
        ),
        "sat_customer": frame(
            f"customer_hk STRING, email STRING, name STRING, city STRING, {STAMP}",
            ("c", "e", "Ann", "Bern", at(1), 1),
            ("c", "e", "Ann", "Basel", at(2), 2),
        ),
    }


def test_an_order_has_its_lines_as_they_are_and_its_customer_as_known_today(
    functions: Functions, vault: dict[str, DataFrame]
) -> None:
    assert rows(functions["marts.order_overview"](**vault)) == Counter(
        [("o", 1, "c", 5, "Ann", "Basel", "sent", 0, 2, 5, Decimal("15.00"))]
    )
    assert_incremental(functions["marts.order_overview"], [vault, {n: f.limit(1) for n, f in vault.items()}])


def test_a_customer_without_orders_has_a_lifetime_too(
    spark: Any, functions: Functions, vault: dict[str, DataFrame]
) -> None:
    status = spark.createDataFrame(
        [("c", True, at(1), 1), ("c", False, at(2), 2)], f"customer_hk STRING, is_active BOOLEAN, {STAMP}"
    )
    orders = spark.createDataFrame(
        [("c", 2, Decimal("15.00"), at(7)), ("c", 3, Decimal("0.50"), at(4))],
        "customer_hk STRING, items BIGINT, amount DECIMAL(18,2), placed_at TIMESTAMP",
    )
    given = {"hub_customer": vault["hub_customer"], "sat_customer_status": status, "order_overview": orders}
    assert rows(functions["marts.customer_lifetime"](**given)) == Counter(
        [("c", 5, False, 2, 5, Decimal("15.50"), 4, 7), ("n", 6, None, 0, 0, Decimal("0.00"), None, None)]
    )


def test_products_are_counted_though_they_are_not_sold_or_gone(spark: Any, functions: Functions) -> None:
    lines = spark.createDataFrame(
        [(1, 1, 7, 2, Decimal("1.50")), (1, 2, 7, 1, Decimal("1.00")), (2, 1, 9, 4, Decimal("2.00"))],
        "order_id BIGINT, line_no INT, product_id BIGINT, quantity INT, unit_price DECIMAL(12,2)",
    )
    products = spark.createDataFrame(
        [(7, "a", "tea", Decimal("1.75")), (8, "b", "cup", Decimal("3.00"))],
        "id BIGINT, sku STRING, name STRING, price DECIMAL(12,2)",
    )
    assert rows(functions["marts.product_sales"](lines=lines, products=products)) == Counter(
        [
            (7, "a", "tea", Decimal("1.75"), 1, 3, Decimal("4.00")),
            (8, "b", "cup", Decimal("3.00"), 0, 0, Decimal("0.00")),
            (9, None, None, None, 1, 4, Decimal("8.00")),
        ]
    )


def test_a_customer_as_of_a_moment(spark: Any, functions: Functions, vault: dict[str, DataFrame]) -> None:
    status = spark.createDataFrame([("c", True, at(1), 1)], f"customer_hk STRING, is_active BOOLEAN, {STAMP}")
    pit = functions["vault.pit_customer"](
        hub=vault["hub_customer"], sat_customer=vault["sat_customer"], sat_customer_status=status
    )
    found = functions["marts.customer_as_of"](
        pit_customer=pit, sat_customer=vault["sat_customer"], sat_customer_status=status
    )
    assert rows(found.where("customer_hk = 'c'")) == Counter(
        [("c", 1, 2, True, "e", "Ann", "Bern"), ("c", 2, None, True, "e", "Ann", "Basel")]
    )
    assert rows(found.where("customer_hk = 'n'")) == Counter([("n", 1, None, None, None, None, None)])


def test_the_connector_sends_what_the_tables_need() -> None:
    settings = json.loads((PROJECT / "connector.json").read_text())["config"]
    assert settings["skipped.operations"] == "none", "or TRUNCATE is not sent"
    assert settings["decimal.handling.mode"] == "string", "or decimals come without their scale"
    assert settings["value.converter.replace.null.with.default"] == "false", "or NULLs come as defaults"
    assert settings["table.include.list"].split(",") == [f"public.{name}" for name in TABLES]
