"""The oracle is judged by hand: small landing files, and every expectation worked out on paper."""

from __future__ import annotations

import importlib.util
import sys
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import duckdb
import pytest


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


recompute = _load(Path(__file__).with_name("recompute.py")).recompute

HEADERS = {
    "customer_events": b"event_id,customer_id,session_id,event_type,product_id,event_timestamp,"
    b"device,referrer,page_url",
    "payment_transactions": b"transaction_id,customer_id,product_id,amount,currency,"
    b"payment_method,status,transaction_timestamp",
    "inventory_snapshots": b"snapshot_id,product_id,warehouse_id,stock_quantity,"
    b"reorder_level,avg_daily_sales,snapshot_timestamp",
    "support_tickets": b"ticket_id,customer_id,category,priority,created_at,first_response_at,"
    b"resolved_at,satisfaction_score",
}


def land(landing: Path, name: str, *lines: bytes, end: bytes = b"\n") -> str:
    """A file of a feed with its usual header; returns its name as batches have it."""
    path = landing / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(end.join([HEADERS[path.parent.name], *lines]) + end)
    return name


def event(number: int | str, *, at: str = "2026-08-01 10:00:00", **other: object) -> bytes:
    values = {"customer": 1, "session": "s1", "type": "view", "product": 7, "page": "/p"} | other
    line = f"{number},{values['customer']},{values['session']},{values['type']},{values['product']},{at},mobile,direct,"
    return line.encode() + str(values["page"]).encode()


def payment(number: int, amount: str, *, customer: int = 1, product: int = 7, **other: str) -> bytes:
    status, at = other.get("status", "completed"), other.get("at", "2026-08-01 10:00:00")
    return f"{number},{customer},{product},{amount},EUR,card,{status},{at}".encode()


def rows(con: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    return con.execute(query).fetchall()


def quarantined(con: duckdb.DuckDBPyConnection, feed: str) -> dict[int, list[str]]:
    return dict(rows(con, f"SELECT line, reasons FROM quarantine.{feed}"))


def test_every_way_to_be_malformed(tmp_path: Path) -> None:
    good = event(1)
    cases = [
        good,  # line 2
        b"2,1,s1,view,7,2026-08-01 10:00:00,mobile,direct",  # 3: too few
        event(3) + b",more",  # 4: too many
        event("x4"),  # 5
        event("9223372036854775808"),  # 6: one more than a BIGINT holds
        event("5.0"),  # 7
        event(" 6"),  # 8
        event(7, at="2026-02-30 10:00:00"),  # 9
        event(8, at="2026-08-01"),  # 10
        event(9, at="2026-08-01 24:00:00"),  # 11
        event(10, at="2026-08-01 10:00:60"),  # 12
        event(11).replace(b"mobile", b"caf\xe9"),  # 13
        event(12, page='a "quote" inside'),  # 14
        event(13, page='"closed"early'),  # 15
        event(14, page='"never closed'),  # 16
        event("0015"),  # 17: leading zeros are fine
        event("9223372036854775807"),  # 18
        b",,,,,,,,",  # 19: nine empty fields are a row, of NULLs
        event(16, at="2028-02-29 23:59:59"),  # 20
    ]
    con = recompute(tmp_path, [[land(tmp_path, "customer_events/2026-08-01.csv", *cases)]])
    found = quarantined(con, "customer_events")
    assert {line for line, reasons in found.items() if reasons == ["malformed"]} == set(range(3, 17))
    assert found[19] == [
        "event_id is not null",
        "customer_id is not null",
        "session_id is not null",
        "product_id is not null",
        "event_timestamp is not null",
        "event_type is one of view, click, add_to_cart, purchase",
    ]
    ids = rows(con, "SELECT event_id FROM bronze.customer_events ORDER BY 1")
    assert ids == [(1,), (15,), (16,), (9223372036854775807,)]
    raw = dict(rows(con, "SELECT line, raw FROM quarantine.customer_events"))
    assert {line: raw[line] for line in found} == {line: cases[line - 2] for line in found}


def test_numbers_that_round_trip_and_numbers_that_do_not(tmp_path: Path) -> None:
    amounts = ["1.999", "1.990", "007.50", "5", "5.", ".5", "9999999999.99", "10000000000.00", "1e2", "0.004", "+3.10"]
    lines = [payment(number, amount) for number, amount in enumerate(amounts, 2)]
    stock = [
        b"1,7,1,2147483647,5,1.25,2026-08-01 05:00:00",
        b"2,7,1,2147483648,5,1.25,2026-08-01 05:00:00",
        b"3,7,1,4,5,1e2,2026-08-01 05:00:00",
        b"4,7,1,4,5,NaN,2026-08-01 05:00:00",
        b"5,7,1,4.5,5,1,2026-08-01 05:00:00",
        b"6,7,one,4,5,1,2026-08-01 05:00:00",
    ]
    names = [
        land(tmp_path, "payment_transactions/2026-08-01.csv", *lines),
        land(tmp_path, "inventory_snapshots/2026-08-01.csv", *stock),
    ]
    con = recompute(tmp_path, [names])
    assert quarantined(con, "payment_transactions") == {line: ["malformed"] for line in (2, 9, 10, 11)}
    assert rows(con, "SELECT transaction_id, amount FROM bronze.payment_transactions ORDER BY 1") == [
        (3, Decimal("1.99")),
        (4, Decimal("7.50")),
        (5, Decimal("5.00")),
        (6, Decimal("5.00")),
        (7, Decimal("0.50")),
        (8, Decimal("9999999999.99")),
        (12, Decimal("3.10")),
    ]
    assert quarantined(con, "inventory_snapshots") == {line: ["malformed"] for line in (3, 5, 6, 7)}


def test_quotes_blank_lines_line_ends_and_headers(tmp_path: Path) -> None:
    quoted = b'"1",1,s1,view,7,2026-08-01 10:00:00,"a, b","say ""hi""","two\r\nlines"'
    names = [
        land(tmp_path, "customer_events/2026-08-01.csv", b"", quoted, b"  ", event(2), b'3,"broken', b"", end=b"\r\n"),
        land(tmp_path, "customer_events/2026-08-02.csv"),
        "customer_events/2026-08-03.csv",
        "customer_events/2026-08-04.csv",
    ]
    (tmp_path / names[2]).write_bytes(b"")
    permuted = (
        b"\xef\xbb\xbfcustomer_id,event_id,session_id,event_type,product_id,event_timestamp,device,referrer,page_url"
    )
    (tmp_path / names[3]).write_bytes(permuted + b"\n50,4,s1,view,7,2026-08-01 10:00:00,mobile,,\xc3\xa9t\xc3\xa9")
    con = recompute(tmp_path, [[f"landing/{name}" for name in names]])
    first, last = "landing/customer_events/2026-08-01.csv", "landing/customer_events/2026-08-04.csv"
    assert rows(
        con,
        "SELECT event_id, customer_id, device, referrer, page_url, source_system, source_file "
        "FROM bronze.customer_events ORDER BY 1",
    ) == [
        (1, 1, "a, b", 'say "hi"', "two\r\nlines", "web", first),
        (2, 1, "mobile", "direct", "/p", "web", first),
        (4, 50, "mobile", None, "été", "web", last),
    ]
    # Lines: 1 header, 2 blank, 3 and 4 the quoted record, 5 blanks, 6 the second event, 7 the broken one.
    assert rows(con, "SELECT source_file, line, raw FROM quarantine.customer_events") == [(first, 7, b'3,"broken')]


def test_a_header_with_other_names_is_an_error(tmp_path: Path) -> None:
    name = land(tmp_path, "customer_events/2026-08-01.csv", event(1))
    (tmp_path / name).write_bytes(b"event_id,who\n1,2\n")
    with pytest.raises(ValueError, match=r"landing/customer_events/2026-08-01\.csv"):
        recompute(tmp_path, [[name]])


def test_row_checks_list_every_reason(tmp_path: Path) -> None:
    names = [
        land(
            tmp_path,
            "payment_transactions/2026-08-01.csv",
            payment(1, "-1.00", status="pending"),
            payment(2, ""),
            payment(3, "0.00"),
            payment(4, "0.01", status=""),
        ),
        land(
            tmp_path,
            "inventory_snapshots/2026-08-01.csv",
            b"1,,1,-1,5,1.0,",
            b"2,7,,0,,,2026-08-01 05:00:00",
        ),
        land(
            tmp_path,
            "support_tickets/2026-08-01.csv",
            b"1,1,x,urgent,2026-08-01 10:00:00,2026-08-01 09:59:59,2026-08-01 09:59:59,",
            b"2,1,x,low,2026-08-01 10:00:00,2026-08-01 10:00:00,2026-08-01 10:00:00,5",
            b"3,1,x,low,,2026-08-01 10:00:00,,",
        ),
    ]
    con = recompute(tmp_path, [names])
    status = "status is one of completed, failed, refunded"
    assert quarantined(con, "payment_transactions") == {
        2: [status, "amount is positive"],
        3: ["amount is not null"],
        4: ["amount is positive"],
        5: [status],
    }
    stock = ["product_id is not null", "snapshot_timestamp is not null", "stock is not negative"]
    assert quarantined(con, "inventory_snapshots") == {2: stock}
    assert quarantined(con, "support_tickets") == {
        2: [
            "priority is one of critical, high, medium, low",
            "answered after it was opened",
            "resolved after it was opened",
        ],
        4: ["created_at is not null"],
    }


def test_the_first_arrival_stays_run_before_path_before_line(tmp_path: Path) -> None:
    early = land(tmp_path, "customer_events/2026-08-01.csv", event(1, page="1/2"), event(2, page="1/3"))
    late = land(
        tmp_path,
        "customer_events/2026-08-02.csv",
        event(1, page="2/2", type="hover"),
        event(1, page="2/3"),
        event(1, page="2/4"),
        event(3, page="2/5"),
        event(3),
    )
    kept = "SELECT event_id, page_url FROM bronze.customer_events ORDER BY 1"
    again = "SELECT source_file[-6:-5], line, reasons, batch FROM quarantine.customer_events ORDER BY 1, 2"
    unique, unknown = ["event_id is unique"], ["event_type is one of view, click, add_to_cart, purchase"]

    together = recompute(tmp_path, [[late, early]])  # one run: the order in the list means nothing, the path decides
    assert rows(together, kept) == [(1, "1/2"), (2, "1/3"), (3, "2/5")]
    assert rows(together, again) == [
        ("02", 2, unknown, 0),
        ("02", 3, unique, 0),
        ("02", 4, unique, 0),
        ("02", 6, unique, 0),
    ]

    apart = recompute(tmp_path, [[late], [early]])  # the later day came first
    assert rows(apart, kept) == [(1, "2/3"), (2, "1/3"), (3, "2/5")]
    assert rows(apart, again) == [
        ("01", 2, unique, 1),
        ("02", 2, unknown, 0),
        ("02", 4, unique, 0),
        ("02", 6, unique, 0),
    ]


def test_sessions(tmp_path: Path) -> None:
    lines = [
        event(1, at="2026-08-01 23:59:50"),
        event(2, at="2026-08-02 00:00:05", type="click"),
        event(3, at="2026-08-02 00:01:00", type="add_to_cart"),
        event(4, at="2026-08-02 00:01:30", type="purchase"),
        event(5, customer=2, at="2026-08-02 08:00:00"),  # the same session id of another customer is another session
        event(6, session="s2", type="add_to_cart"),
        event(7, session="s2", at="2026-08-01 09:59:00"),
    ]
    con = recompute(tmp_path, [[land(tmp_path, "customer_events/2026-08-02.csv", *lines)]])
    columns = "CAST(session_start AS VARCHAR), CAST(session_end AS VARCHAR), * EXCLUDE (session_start, session_end)"
    assert rows(con, f"SELECT {columns} FROM silver.customer_sessions ORDER BY customer_id, session_id") == [
        ("2026-08-01 23:59:50+00", "2026-08-02 00:01:30+00", 1, "s1", 100, 4, 1, 1, 1, 1, True, False, False),
        ("2026-08-01 09:59:00+00", "2026-08-01 10:00:00+00", 1, "s2", 60, 2, 1, 0, 1, 0, False, True, False),
        ("2026-08-02 08:00:00+00", "2026-08-02 08:00:00+00", 2, "s1", 0, 1, 1, 0, 0, 0, False, False, True),
    ]


def test_payments_at_the_edges(tmp_path: Path) -> None:
    lines = [
        payment(1, "500.00", at="2026-08-01 23:00:00"),  # a Saturday
        payment(2, "500.01", at="2026-08-02 05:59:59"),
        payment(3, "500.01", at="2026-08-03 06:00:00", status="failed"),
        payment(4, "900.00", at="2026-08-03 22:59:59"),
    ]
    con = recompute(tmp_path, [[land(tmp_path, "payment_transactions/2026-08-03.csv", *lines)]])
    assert rows(
        con,
        "SELECT transaction_id, CAST(transaction_date AS VARCHAR), hour, day_of_week, is_high_value, "
        "is_off_hours, is_weekend, is_suspicious FROM silver.payment_analysis ORDER BY 1",
    ) == [
        (1, "2026-08-01", 23, 6, False, True, True, False),
        (2, "2026-08-02", 5, 7, True, True, True, True),
        (3, "2026-08-03", 6, 1, True, False, False, False),
        (4, "2026-08-03", 22, 1, True, False, False, False),
    ]


def test_inventory_and_tickets_at_the_edges(tmp_path: Path) -> None:
    stock = [
        b"1,7,1,70,70,10.0,2026-08-01 05:00:00",
        b"2,7,2,69,68,10.0,2026-08-01 05:00:00",
        b"3,7,3,5,,0.0,2026-08-01 05:00:00",
    ]
    tickets = [
        b"1,1,x,critical,2026-08-01 10:00:00,2026-08-01 11:00:00,2026-08-01 14:00:01,",
        b"2,1,x,high,2026-08-01 10:00:00,2026-08-01 14:00:01,2026-08-02 10:00:00,",
        b"3,1,x,medium,2026-08-01 10:00:00,2026-08-01 10:30:00,,",
        b"4,1,x,low,2026-08-01 10:00:00,,2026-08-08 10:00:00,",
    ]
    names = [
        land(tmp_path, "inventory_snapshots/2026-08-01.csv", *stock),
        land(tmp_path, "support_tickets/2026-08-01.csv", *tickets),
    ]
    con = recompute(tmp_path, [names])
    health = "SELECT snapshot_id, days_of_stock, is_low_stock, needs_reorder FROM silver.inventory_health ORDER BY 1"
    assert rows(con, health) == [(1, 7.0, False, True), (2, 6.9, True, False), (3, None, None, None)]
    assert rows(
        con,
        "SELECT ticket_id, response_time_hours, resolution_time_hours, meets_response_sla, meets_resolution_sla "
        "FROM silver.support_metrics ORDER BY 1",
    ) == [
        (1, 1.0, 14401 / 3600, True, False),
        (2, 14401 / 3600, 24.0, False, True),
        (3, 0.5, None, True, None),
        (4, None, 168.0, None, True),
    ]


def gold_landing(landing: Path) -> list[str]:
    """Customer 1 buys much, 2 only looks, 3 complains as often as it buys, 4 only complains, 5 more than it buys."""
    return [
        land(
            landing,
            "customer_events/2026-08-01.csv",
            event(1),
            event(2, type="purchase", at="2026-08-01 10:05:00"),
            event(3, session="s2", at="2026-08-03 10:00:00"),
            event(4, customer=2, product=8, session="s3"),
            event(5, customer=2, product=9, session="s3", type="purchase"),
        ),
        land(
            landing,
            "payment_transactions/2026-08-01.csv",
            payment(1, "333.33"),
            payment(2, "333.33"),
            payment(3, "333.34"),
            payment(4, "50.00", status="refunded"),
            payment(5, "0.01", customer=3, product=10, at="2026-08-02 09:00:00"),
            payment(6, "0.02", customer=3, product=10, at="2026-08-02 10:00:00"),
            payment(7, "700.00", customer=5, at="2026-08-04 02:00:00", status="failed"),
            payment(8, "5.00", customer=5, at="2026-08-05 02:00:00"),
        ),
        land(
            landing,
            "support_tickets/2026-08-01.csv",
            b"1,4,x,low,2026-08-01 10:00:00,,,",
            b"2,5,x,low,2026-08-01 10:00:00,,,",
            b"3,5,x,low,2026-08-09 10:00:00,,,",
            b"4,3,x,low,2026-08-01 10:00:00,,,",
            b"5,3,x,low,2026-08-01 10:00:00,,,",
        ),
        land(
            landing,
            "inventory_snapshots/2026-08-01.csv",
            b"1,7,1,100,5,1.0,2026-08-01 05:00:00",
            b"2,7,1,90,5,1.0,2026-08-02 05:00:00",
            b"3,7,1,80,5,1.0,2026-08-01 06:00:00",
            b"4,7,2,7,5,1.0,2026-08-01 05:00:00",
            b"5,7,2,6,5,1.0,2026-08-01 05:00:00",
            b"6,11,1,3,5,1.0,2026-08-01 05:00:00",
        ),
    ]


def test_gold_by_hand(tmp_path: Path) -> None:
    con = recompute(tmp_path, [gold_landing(tmp_path)])
    money = Decimal
    assert rows(
        con,
        "SELECT * REPLACE (CAST(last_activity_at AS VARCHAR)[:-4] AS last_activity_at) "
        "FROM gold.customer_summary ORDER BY 1",
    ) == [
        (1, 2, 1, 3, money("1000.00"), money("333.33"), 0.5, 0, "2026-08-03 10:00:00", "VIP"),
        (2, 1, 1, 0, money("0.00"), None, 1.0, 0, "2026-08-01 10:00:00", "At-Risk"),
        (3, 0, 0, 2, money("0.03"), money("0.02"), None, 2, "2026-08-02 10:00:00", "Regular"),  # 1.5 cents: half up
        (4, 0, 0, 0, money("0.00"), None, None, 1, "2026-08-01 10:00:00", "At-Risk"),
        (5, 0, 0, 1, money("5.00"), money("5.00"), None, 2, "2026-08-09 10:00:00", "At-Risk"),
    ]
    assert rows(
        con,
        "SELECT * REPLACE (CAST(transaction_date AS VARCHAR) AS transaction_date) FROM gold.daily_metrics ORDER BY 1",
    ) == [
        ("2026-08-01", money("1000.00"), 3, money("333.33"), 1, 0),
        ("2026-08-02", money("0.03"), 2, money("0.02"), 1, 0),
        ("2026-08-04", money("0.00"), 0, None, 0, 1),
        ("2026-08-05", money("5.00"), 1, money("5.00"), 1, 0),
    ]
    assert rows(con, "SELECT * FROM gold.product_summary ORDER BY 1") == [
        (7, 2, 1, 0.5, money("1005.00"), 96),  # warehouse 1: the later time; warehouse 2: the same time, the greater id
        (8, 1, 0, 0.0, money("0.00"), 0),
        (9, 0, 1, None, money("0.00"), 0),
        (10, 0, 0, None, money("0.03"), 0),
        (11, 0, 0, None, money("0.00"), 3),
    ]


def test_the_types_are_those_of_the_specification(tmp_path: Path) -> None:
    con = recompute(tmp_path, [gold_landing(tmp_path)])

    def types(table: str) -> dict[str, str]:
        return {name: kind for name, kind, *_ in rows(con, f"DESCRIBE {table}")}

    assert types("bronze.payment_transactions") == {
        "transaction_id": "BIGINT",
        "customer_id": "BIGINT",
        "product_id": "BIGINT",
        "amount": "DECIMAL(12,2)",
        "currency": "VARCHAR",
        "payment_method": "VARCHAR",
        "status": "VARCHAR",
        "transaction_timestamp": "TIMESTAMP WITH TIME ZONE",
        "source_system": "VARCHAR",
        "source_file": "VARCHAR",
    }
    assert types("silver.customer_sessions")["session_duration_seconds"] == "BIGINT"
    assert types("silver.payment_analysis")["hour"] == types("silver.payment_analysis")["day_of_week"] == "INTEGER"
    assert types("gold.customer_summary") == {
        "customer_id": "BIGINT",
        "total_sessions": "BIGINT",
        "converted_sessions": "BIGINT",
        "total_orders": "BIGINT",
        "total_ltv": "DECIMAL(18,2)",
        "avg_order_value": "DECIMAL(18,2)",
        "conversion_rate": "DOUBLE",
        "support_tickets_count": "BIGINT",
        "last_activity_at": "TIMESTAMP WITH TIME ZONE",
        "customer_segment": "VARCHAR",
    }
    assert types("gold.daily_metrics")["total_revenue"] == "DECIMAL(18,2)"
    assert types("gold.product_summary") == {
        "product_id": "BIGINT",
        "product_views": "BIGINT",
        "product_purchases": "BIGINT",
        "conversion_rate": "DOUBLE",
        "revenue_generated": "DECIMAL(18,2)",
        "current_stock_level": "BIGINT",
    }
