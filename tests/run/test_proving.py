"""Which refresh kind a table could have: found by proof, with its inputs as that needs them, and built by nothing."""

from __future__ import annotations

import pytest

from icefield.declare import append, by_key
from icefield.project import open_project
from icefield.run.proving import prove_refresh
from projects import TinyProject

pytestmark = pytest.mark.spark

TABLES = """
from icefield import files, sql, table

def plain(rows):
    return rows.drop("source_file", "source_line", "ingested_at")

for name, schema in {
    "orders": "id BIGINT, customer BIGINT, at TIMESTAMP",
    "payments": "payment BIGINT, order_id BIGINT, amount DECIMAL(12,2)",
    "rates": "currency STRING, rate DECIMAL(12,2)",
}.items():
    table(f"raw.{name}", source=files(f"{name}.csv", schema=schema))(plain)

for name, query in {
    "renamed": "SELECT o.id AS order_id, sum(p.amount) AS paid FROM {orders} o"
               " LEFT JOIN {payments} p ON o.id = p.order_id GROUP BY o.id",
    "rated": "SELECT order_id, sum(amount) * max(rate) AS paid FROM {payments} CROSS JOIN {rates} GROUP BY order_id",
    "ranked": "SELECT order_id, row_number() OVER (ORDER BY order_id) AS place FROM {payments}",
    "keyless": "SELECT amount FROM {payments}",
    "rows": "SELECT id, date(at) AS day FROM {orders} WHERE customer > 1",
    "distinct": "SELECT DISTINCT customer FROM {orders}",
}.items():
    table(f"marts.{name}")(sql(query))
"""


def test_a_key_is_found_under_another_name_beside_lookups_or_not_at_all(tmp_path):
    project = TinyProject(tmp_path)
    project.declare(TABLES)
    keyed = {f"marts.{name}": by_key("order_id") for name in ("renamed", "rated", "ranked", "keyless")}
    rows = {f"marts.{name}": append() for name in ("rows", "distinct")}
    found = prove_refresh(open_project(tmp_path), {**keyed, **rows})

    proven = {name.partition(".")[2] for name, verdict in found.items() if verdict.refresh is not None}
    assert proven == {"renamed", "rated", "rows"}
    edges = {edge.parameter: edge for name in ("renamed", "rated") for edge in found[f"marts.{name}"].edges}
    assert edges["orders"].key == {"order_id": "id"}  # not `customer`, which has the same type
    assert edges["payments"].key == {}
    assert edges["rates"].lookup
    assert "window" in found["marts.ranked"].reason
    assert "order_id" in found["marts.keyless"].reason
    assert not project.lake.exists
