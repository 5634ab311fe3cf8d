"""Relations in compiled SQL become `{names}`; whatever only looks like one stays."""

from __future__ import annotations

import pytest

from icefield.adapters.dbt.relations import parts_of, placed

KNOWN = {
    ("shop", "orders"): "orders",
    ("shop", "orders_daily"): "orders_daily",
    ("lake", "shop", "orders"): "lake_orders",
}


@pytest.mark.parametrize(
    ("sql", "wanted"),
    {
        "no alias": ("select * from shop.orders", "select * from {orders} AS `orders`"),
        "its alias": ("select * from shop.orders o", "select * from {orders} o"),
        "an alias by AS": ("select * from shop.orders as `o`", "select * from {orders} as `o`"),
        "a quoted alias": ("select * from shop.orders `o`", "select * from {orders} `o`"),
        "called by its last part": (
            "select orders.id from shop.orders join b on orders.id = b.id",
            "select orders.id from {orders} AS `orders` join b on orders.id = b.id",
        ),
        "a column by the whole name": (
            "select shop.orders.id from shop.orders where shop.orders.id > 1",
            "select `orders`.id from {orders} AS `orders` where `orders`.id > 1",
        ),
        "quoted": ("select * from `shop`.`orders`, x", "select * from {orders} AS `orders`, x"),
        "another case": ("select * from SHOP.Orders\nGROUP BY 1", "select * from {orders} AS `orders`\nGROUP BY 1"),
        "in brackets": (
            "select (select max(id) from shop.orders)",
            "select (select max(id) from {orders} AS `orders`)",
        ),
        "a longer name": ("select * from shop.orders_daily d", "select * from {orders_daily} d"),
        "with a catalog": ("select * from lake.shop.orders d", "select * from {lake_orders} d"),
        "of another catalog": ("select * from other.shop.orders d", "select * from other.shop.orders d"),
        "in a text": ("select 'from shop.orders' x from shop.orders o", "select 'from shop.orders' x from {orders} o"),
        "in an escaped text": (
            r"select 'a\'shop.orders' from shop.orders o",
            r"select 'a\'shop.orders' from {orders} o",
        ),
        "in comments": (
            "select 1 -- shop.orders\nfrom /* shop.orders */ shop.orders o",
            "select 1 -- shop.orders\nfrom /* shop.orders */ {orders} o",
        ),
        "braces": (
            "select '{x}' rlike '[0-9]{4}' from shop.orders o;",
            "select '{{x}}' rlike '[0-9]{{4}}' from {orders} o",
        ),
        "a comment before its alias": (
            "select * from shop.orders -- new ones\n o",
            "select * from {orders} -- new ones\n o",
        ),
    }.values(),
    ids=lambda case: case if isinstance(case, str) else None,
)
def test_relations_become_names(sql, wanted):
    assert placed(sql, KNOWN).query == wanted


def test_what_is_read_is_told():
    found = placed("select * from shop.orders o join shop.orders_daily on shop.orders_daily.id = o.id", KNOWN)
    assert found.reads == {"orders": ("shop", "orders"), "orders_daily": ("shop", "orders_daily")}


@pytest.mark.parametrize("relation", ["lake.Shop.orders", "`lake`.`shop`.`orders`", '"lake"."shop"."orders"'])
def test_a_relation_has_its_parts_however_it_is_quoted(relation):
    assert parts_of(relation) == ("lake", "shop", "orders")
