-- The shop's database. Replica identities are Postgres' default: a delete tells the primary key and nothing else.
CREATE TABLE IF NOT EXISTS customers (
    id BIGINT PRIMARY KEY,
    email TEXT NOT NULL,
    name TEXT,
    city TEXT,
    notes TEXT                       -- large ones are stored apart, and left out of updates that do not touch them
);
CREATE TABLE IF NOT EXISTS products (
    id BIGINT PRIMARY KEY,
    sku TEXT NOT NULL,
    name TEXT NOT NULL,
    price NUMERIC(12, 2) NOT NULL
);
CREATE TABLE IF NOT EXISTS orders (
    id BIGINT PRIMARY KEY,
    customer_id BIGINT,
    status TEXT NOT NULL,
    placed_at TIMESTAMPTZ NOT NULL
);
CREATE TABLE IF NOT EXISTS order_lines (
    order_id BIGINT NOT NULL,
    line_no INTEGER NOT NULL,
    product_id BIGINT NOT NULL,
    quantity INTEGER NOT NULL,
    unit_price NUMERIC(12, 2) NOT NULL,
    PRIMARY KEY (order_id, line_no)
);
