"""The tables of a dbt project, run by icefield; from what dbt compiled, without dbt."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from icefield.api import Lake

pytestmark = pytest.mark.spark

STORE = Path(__file__).parent / "store"
LEFT = shutil.ignore_patterns("lake", ".icefield", "__pycache__", "target", "logs")


def test_the_store_runs_fails_its_tests_and_sets_rows_aside(tmp_path):
    root = Path(shutil.copytree(STORE, tmp_path / "store", ignore=LEFT))
    orders, payments = root / "dbt/seeds/raw_orders.csv", root / "dbt/seeds/raw_payments.csv"
    lake = Lake(root)
    assert lake.run().ok
    assert lake.sql("SELECT count(*), sum(orders) FROM store_marts.customers").rows() == [(8, 16)]
    (columns,) = lake.sql("SELECT columns FROM ops.tables WHERE \"table\" = 'store_marts.orders'").rows()[0]
    comments = {column["name"]: column["comment"] for column in columns}
    assert comments["amount"] == "In euros, all ways of payment together."
    assert lake.table("store_dbt_test__audit.assert_customers_spend_what_orders_cost").count() == 0

    good = orders.read_text()
    orders.write_text(good + "17,99,2026-02-01,placed,2026-02-01 08:00:00\n")  # of a customer who is not there
    result = lake.run()
    assert not result.ok
    assert "relationships_orders_customer_id" in result.error
    assert lake.table("store_marts.orders").count() == 16

    orders.write_text(good + "17,1,2026-02-01,lost,2026-02-01 08:00:00\n18,1,2026-02-01,,2026-02-01 08:00:00\n")
    payments.write_text(payments.read_text() + "99,17,card,100\n")
    assert not lake.run().ok
    (root / "tables.py").write_text('from icefield.adapters.dbt import models\nmodels("dbt", otherwise="quarantine")\n')
    result = lake.run()
    assert result.ok, result.error
    waiting = lake.sql("SELECT order_id, reasons FROM store_staging.stg_orders__quarantine").rows()
    assert waiting == [(17, ["status is one of placed, shipped, completed, returned"])]  # NULL passes, as in dbt
    assert lake.table("store_marts.orders").count() == 17
    assert all(verdict.status == "exact" for verdict in lake.verify("store_marts.*"))
