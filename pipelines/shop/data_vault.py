"""The Data Vault of the shop: hubs, links, satellites, and a point-in-time table."""

from pyspark.sql import DataFrame

from icefield import files, full, table, unique
from icefield.vault import hub, link, pit, satellite, status_satellite

SOURCE = "shop.public"
GHOSTS = "seeds.ghosts"
VAULT = ["vault"]


@table(
    GHOSTS,
    source=files(
        "seeds/ghosts.csv", schema="hash_key STRING, load_date TIMESTAMP, record_source STRING", changed="replace"
    ),
    refresh=full(),
    checks=[unique("hash_key")],
    tags=VAULT,
)
def ghosts(rows: DataFrame) -> DataFrame:
    """The rows that stand for what is not known: one for the unknown key."""
    return rows.select("hash_key", "load_date", "record_source")


hub(
    "vault.hub_customer",
    hk="customer_hk",
    key=["customer_id"],
    seen_in={"parsed.customers": ["id"], "parsed.orders": ["customer_id"]},
    record_source=SOURCE,
    ghosts=GHOSTS,
    tags=VAULT,
)
hub(
    "vault.hub_product",
    hk="product_hk",
    key=["product_id"],
    seen_in={"parsed.products": ["id"], "parsed.order_lines": ["product_id"]},
    record_source=SOURCE,
    ghosts=GHOSTS,
    tags=VAULT,
)
hub(
    "vault.hub_order",
    hk="order_hk",
    key=["order_id"],
    seen_in={"parsed.orders": ["id"], "parsed.order_lines": ["order_id"]},
    record_source=SOURCE,
    ghosts=GHOSTS,
    tags=VAULT,
)

link(
    "vault.link_order_customer",
    "parsed.orders",
    hk="order_customer_hk",
    hubs={"order_hk": ["id"], "customer_hk": ["customer_id"]},
    by="order_hk",
    record_source=SOURCE,
    tags=VAULT,
)
link(
    "vault.link_order_product",
    "parsed.order_lines",
    hk="order_product_hk",
    hubs={"order_hk": ["order_id"], "product_hk": ["product_id"]},
    also=["line_no"],
    by=["order_hk", "line_no"],
    record_source=SOURCE,
    tags=VAULT,
)

satellite(
    "vault.sat_customer",
    "parsed.customers",
    hk="customer_hk",
    key=["id"],
    payload=["email", "name", "city", "notes"],
    record_source=SOURCE,
    ghosts=GHOSTS,
    tags=VAULT,
)
satellite(
    "vault.sat_product",
    "parsed.products",
    hk="product_hk",
    key=["id"],
    payload=["sku", "name", "price"],
    record_source=SOURCE,
    ghosts=GHOSTS,
    tags=VAULT,
)
satellite(
    "vault.sat_order",
    "parsed.orders",
    hk="order_hk",
    key=["id"],
    payload=["status", "placed_at"],
    record_source=SOURCE,
    ghosts=GHOSTS,
    tags=VAULT,
)
satellite(
    "vault.sat_order_line",
    "parsed.order_lines",
    hk="order_product_hk",
    key=["order_id", "product_id", "line_no"],
    hubs={"order_hk": ["order_id"]},
    payload=["quantity", "unit_price"],
    record_source=SOURCE,
    ghosts=GHOSTS,
    tags=VAULT,
)

for entity in ("customer", "product", "order"):
    status_satellite(
        f"vault.sat_{entity}_status",
        f"parsed.{entity}s",
        hk=f"{entity}_hk",
        key=["id"],
        record_source=SOURCE,
        tags=VAULT,
    )
status_satellite(
    "vault.sat_order_line_status",
    "parsed.order_lines",
    hk="order_product_hk",
    key=["order_id", "product_id", "line_no"],
    by=["order_id", "line_no"],
    record_source=SOURCE,
    tags=VAULT,
)

pit(
    "vault.pit_customer",
    "vault.hub_customer",
    hk="customer_hk",
    satellites={"sat_customer": "vault.sat_customer", "sat_customer_status": "vault.sat_customer_status"},
    tags=VAULT,
)
