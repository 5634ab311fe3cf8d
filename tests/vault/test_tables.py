"""Hubs, links, satellites and point-in-time tables: what each makes of events, in any order of their arrival."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from icefield.declare import Ref, collecting
from icefield.declare.tables import declarations_of
from icefield.errors import InvalidVault
from icefield.testing import assert_incremental
from icefield.vault import UNKNOWN, hash_key, hub, link, pit, satellite, status_satellite

pytestmark = pytest.mark.spark

EVENTS = (
    "id BIGINT, customer_id BIGINT, line_no INT, city STRING, event_time TIMESTAMP, sequence BIGINT, is_deleted BOOLEAN"
)
DAY = dt.datetime(2026, 1, 1)
SOURCE = "shop"


def at(second: int) -> dt.datetime:
    return DAY + dt.timedelta(seconds=second)


def event(
    id: int | None,
    second: int,
    sequence: int,
    customer: int | None = None,
    city: str | None = None,
    *,
    line: int | None = None,
    gone: bool = False,
) -> tuple[Any, ...]:
    return (id, customer, line, city, at(second), sequence, gone)


@pytest.fixture(scope="module")
def hk(spark: Any) -> Any:
    """The hash key of some values."""

    def of(*values: Any) -> str:
        texts = ["NULL" if value is None else f"'{value}'" for value in values]
        row = spark.sql("SELECT " + ", ".join(f"CAST({text} AS STRING) AS c{n}" for n, text in enumerate(texts)))
        return row.selectExpr(hash_key(*row.columns)).collect()[0][0]

    return of


def frame(spark: Any, *rows: tuple[Any, ...]) -> Any:
    return spark.createDataFrame(list(rows), EVENTS)


def made(rows: Any, *columns: str) -> list[tuple[Any, ...]]:
    """Rows by time; times as seconds of the day."""
    found = [
        tuple(int((v - DAY).total_seconds()) if isinstance(v, dt.datetime) else v for v in row)
        for row in rows.select(*columns).collect()
    ]
    return sorted(found, key=str)


def ghosts(spark: Any) -> Any:
    schema = "hash_key STRING, load_date TIMESTAMP, record_source STRING"
    return spark.createDataFrame([(UNKNOWN, at(-1), "SYSTEM")], schema)


def incremental(function: Any, rows: Any, **other: Any) -> None:
    """The promise of the declared table is proven, and kept in two batches, in another order, and with repeats."""
    (declared,) = declarations_of(function)
    first, second = rows.where("sequence <= 2"), rows.where("sequence > 2")
    names = [name for name in declared.parameters if name not in other]
    batches = [{**dict.fromkeys(names, part), **other} for part in (first, second)]
    empty = {name: given.limit(0) for name, given in other.items()}
    assert_incremental(function, [batches[0], {**batches[1], **empty}])


# -- hub


def test_a_hub_has_each_key_once_from_where_it_was_seen_first(spark: Any, hk: Any) -> None:
    made_hub = hub(
        "vault.hub_customer",
        hk="customer_hk",
        key=["customer_id"],
        seen_in={"parsed.customers": ["id"], "parsed.orders": ["customer_id"]},
        record_source={"parsed.customers": "c", "parsed.orders": "o"},
        ghosts="seeds.ghosts",
    )
    customers = frame(spark, event(1, 50, 1), event(1, 60, 2), event(2, 10, 1))
    orders = frame(spark, event(7, 20, 1, 1), event(8, 30, 1, 3), event(9, 5, 1, None))
    rows = made_hub(parsed_customers=customers, parsed_orders=orders, ghosts=ghosts(spark))
    assert made(rows, "customer_id", "customer_hk", "load_date", "sequence", "record_source") == sorted(
        [
            (1, hk(1), 20, 1, "o"),
            (2, hk(2), 10, 1, "c"),
            (3, hk(3), 30, 1, "o"),
            (None, UNKNOWN, -1, 0, "SYSTEM"),
        ],
        key=str,
    )
    seed = ghosts(spark)
    batch = {"parsed_customers": customers, "parsed_orders": orders, "ghosts": seed}
    assert_incremental(made_hub, [batch, {**batch, "ghosts": seed.limit(0)}])


# -- link


def lines(spark: Any) -> tuple[Any, Any]:
    declared = link(
        "vault.link_order_product",
        "parsed.lines",
        hk="order_product_hk",
        hubs={"order_hk": ["id"], "product_hk": ["customer_id"]},
        also=["line_no"],
        by=["order_hk", "line_no"],
        record_source=SOURCE,
    )
    rows = frame(
        spark,
        event(1, 10, 1, 5, line=1),
        event(1, 20, 2, 6, line=1),
        event(1, 30, 3, 6, "x", line=1),
        event(1, 40, 4, 5, line=1),
        event(1, 50, 5, 5, line=1, gone=True),
        event(1, 15, 1, 5, line=2),
        event(2, 15, 1, None, line=1),
    )
    return declared, rows


def test_a_link_ends_when_its_driving_key_moves_or_is_gone(spark: Any, hk: Any) -> None:
    declared, rows = lines(spark)
    found = made(declared(rows=rows), "order_hk", "product_hk", "line_no", "load_date", "end_date")
    assert found == sorted(
        [
            (hk(1), hk(5), 1, 10, 20),
            (hk(1), hk(6), 1, 20, 40),
            (hk(1), hk(5), 1, 40, 50),
            (hk(1), hk(5), 2, 15, None),
            (hk(2), UNKNOWN, 1, 15, None),
        ],
        key=str,
    )
    keys = made(declared(rows=rows), "order_product_hk")
    assert set(keys) == {(hk(1, 5, 1),), (hk(1, 6, 1),), (hk(1, 5, 2),), (hk(2, None, 1),)}
    incremental(declared, rows)


# -- satellites


def customers(spark: Any) -> Any:
    return frame(
        spark,
        event(1, 10, 1, city="Bern"),
        event(1, 20, 2, city="Bern"),
        event(1, 20, 3, city="Basel"),
        event(1, 20, 4, city="Bern"),
        event(1, 30, 5, city="Bern", gone=True),
        event(1, 40, 6, city="Bern"),
        event(1, 50, 7, city=None),
        event(2, 5, 1, city="bern"),
        event(2, 6, 2, city="Bern"),
    )


def test_only_real_changes_make_rows_of_a_satellite(spark: Any, hk: Any) -> None:
    declared = satellite(
        "vault.sat_customer",
        "parsed.customers",
        hk="customer_hk",
        key=["id"],
        payload=["city"],
        record_source=SOURCE,
        ghosts="seeds.ghosts",
    )
    rows = declared(rows=customers(spark), ghosts=ghosts(spark))
    assert made(rows, "customer_hk", "city", "load_date", "sequence", "record_source") == sorted(
        [
            (hk(1), "Bern", 10, 1, SOURCE),
            (hk(1), "Basel", 20, 3, SOURCE),
            (hk(1), "Bern", 20, 4, SOURCE),
            (hk(1), None, 50, 7, SOURCE),
            (hk(2), "bern", 5, 1, SOURCE),
            (hk(2), "Bern", 6, 2, SOURCE),
            (UNKNOWN, None, -1, 0, "SYSTEM"),
        ],
        key=str,
    )
    incremental(declared, customers(spark), ghosts=ghosts(spark))


def test_a_status_satellite_tells_when_a_key_came_and_went(spark: Any, hk: Any) -> None:
    declared = status_satellite(
        "vault.sat_status", "parsed.customers", hk="customer_hk", key=["id"], record_source=SOURCE
    )
    rows = declared(rows=customers(spark))
    assert made(rows, "customer_hk", "is_active", "load_date", "sequence") == sorted(
        [(hk(1), True, 10, 1), (hk(1), False, 30, 5), (hk(1), True, 40, 6), (hk(2), True, 5, 1)], key=str
    )
    incremental(declared, customers(spark))


def test_a_driving_key_that_moves_leaves_the_key_before_inactive(spark: Any, hk: Any) -> None:
    declared = status_satellite(
        "vault.sat_line_status",
        "parsed.lines",
        hk="order_product_hk",
        key=["id", "customer_id", "line_no"],
        by=["id", "line_no"],
        record_source=SOURCE,
    )
    _, rows = lines(spark)
    found = made(declared(rows=rows), "order_product_hk", "id", "line_no", "is_active", "load_date")
    a, b = hk(1, 5, 1), hk(1, 6, 1)
    assert found == sorted(
        [
            (a, 1, 1, True, 10),
            (a, 1, 1, False, 20),
            (b, 1, 1, True, 20),
            (b, 1, 1, False, 40),
            (a, 1, 1, True, 40),
            (a, 1, 1, False, 50),
            (hk(1, 5, 2), 1, 2, True, 15),
            (hk(2, None, 1), 2, 1, True, 15),
        ],
        key=str,
    )
    incremental(declared, rows)


# -- point in time


def test_a_point_in_time_table_tells_which_rows_were_valid(spark: Any, hk: Any) -> None:
    declared = pit(
        "vault.pit", "vault.hub", hk="customer_hk", satellites={"details": "vault.sat", "status": "vault.sat_status"}
    )
    stamped = "customer_hk STRING, load_date TIMESTAMP, sequence BIGINT"
    one, two = "1" * 32, "2" * 32
    known = spark.createDataFrame([(one, at(5), 1), (two, at(7), 1)], stamped)
    details = spark.createDataFrame([(one, at(10), 1), (one, at(20), 3), (one, at(20), 4)], stamped)
    status = spark.createDataFrame([(one, at(10), 1), (one, at(30), 5)], stamped)
    rows = declared(hub=known, details=details, status=status)
    old = int((dt.datetime(1900, 1, 1) - DAY).total_seconds())
    assert made(rows, *rows.columns) == sorted(
        [
            (one, 5, 10, UNKNOWN, old, 0, UNKNOWN, old, 0),
            (one, 10, 20, one, 10, 1, one, 10, 1),
            (one, 20, 30, one, 20, 4, one, 10, 1),
            (one, 30, None, one, 20, 4, one, 30, 5),
            (two, 7, None, UNKNOWN, old, 0, UNKNOWN, old, 0),
        ],
        key=str,
    )
    parts = [{"hub": known, "details": details.limit(1), "status": status}]
    assert_incremental(declared, [*parts, {"hub": known.limit(0), "details": details, "status": status.limit(0)}])


# -- declarations


def test_a_declaration_knows_the_authors_line_and_is_wired_by_hash_keys() -> None:
    with collecting() as registry:
        hub("vault.h", hk="hk", key=["k"], seen_in={"p.a": ["x"]}, record_source=SOURCE)
    (declared,) = registry.tables
    assert declared.location.file == "test_tables.py"
    assert declared.parameters == ("p_a",)
    assert declared.inputs == {"p_a": Ref(table="p.a", key={"hk": hash_key("x")})}
    assert declared.refresh.kind == "by_key"
    assert declared.comment.startswith("Hub: every k")


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: hub("v.h", hk="h", key=["k"], seen_in={"p.a": ["x", "y"]}, record_source="s"), "takes x, y from p.a"),
        (lambda: hub("v.h", hk="h", key=["k"], seen_in=["p.a"], record_source="s"), "does not map hash keys"),
        (
            lambda: link("v.l", "p.a", hk="h", hubs={"a_hk": ["a"]}, by="b_hk", record_source="s"),
            "driven by b_hk, which is neither in hubs= nor in also=",
        ),
        (lambda: satellite("v.s", "p.a", hk="h", key=["k"], payload=[], record_source="s"), "does not name columns"),
        (
            lambda: status_satellite("v.s", "p.a", hk="h", key=["k"], by=["h"], record_source="s"),
            "driven by h, which is a hash key",
        ),
        (lambda: pit("v.p", "v.h", hk="h", satellites={}), "does not map names to satellites"),
    ],
)
def test_parts_that_do_not_fit_are_refused_at_the_authors_line(declare: Any, message: str) -> None:
    with pytest.raises(InvalidVault, match=message) as error:
        declare()
    assert error.value.where.startswith("test_tables.py:")
