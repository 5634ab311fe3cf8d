"""The e-commerce tables worked out a second time, from the landed bytes, by DuckDB alone: the judge of every run.

Nothing here knows Spark or icefield. Python looks at bytes (UTF-8, quotes, headers), DuckDB at values; money is integer
cents until the end. Where the specification leaves room, these are the readings:

- lines end with LF or CRLF; a line of blanks is no row; numbers of lines are physical, the header being line 1;
- the header is matched by name, in any order; other names are an error of the whole file;
- quotes as in RFC 4180: a quoted field may hold commas, line ends and doubled quotes; a quote elsewhere, or one that is
  never closed, makes that physical line malformed;
- an empty field is NULL, quoted or not;
- integers and decimals are digits with an optional sign; DOUBLE may have an exponent, but is finite.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import duckdb

MALFORMED = "malformed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """A landed feed: its declared columns, and the row checks as (reason, SQL that is TRUE where the row fails)."""

    name: str
    system: str
    schema: str
    checks: tuple[tuple[str, str], ...]

    @property
    def columns(self) -> dict[str, str]:
        return dict(column.split(" ") for column in self.schema.split(", "))

    @property
    def key(self) -> str:
        return self.schema.split(" ")[0]


def _not_null(*columns: str) -> tuple[tuple[str, str], ...]:
    return tuple((f"{column} is not null", f"{column} IS NULL") for column in columns)


def _one_of(column: str, *values: str) -> tuple[str, str]:
    listed = ", ".join(f"'{value}'" for value in values)
    return f"{column} is one of {', '.join(values)}", f"({column} IN ({listed})) IS NOT TRUE"


FEEDS = (
    Feed(
        name="customer_events",
        system="web",
        schema="event_id BIGINT, customer_id BIGINT, session_id VARCHAR, event_type VARCHAR, product_id BIGINT, "
        "event_timestamp TIMESTAMP, device VARCHAR, referrer VARCHAR, page_url VARCHAR",
        checks=(
            *_not_null("event_id", "customer_id", "session_id", "product_id", "event_timestamp"),
            _one_of("event_type", "view", "click", "add_to_cart", "purchase"),
        ),
    ),
    Feed(
        name="payment_transactions",
        system="payments",
        schema="transaction_id BIGINT, customer_id BIGINT, product_id BIGINT, amount DECIMAL(12,2), currency VARCHAR, "
        "payment_method VARCHAR, status VARCHAR, transaction_timestamp TIMESTAMP",
        checks=(
            *_not_null("transaction_id", "customer_id", "product_id", "amount", "transaction_timestamp"),
            _one_of("status", "completed", "failed", "refunded"),
            ("amount is positive", "amount <= 0"),
        ),
    ),
    Feed(
        name="inventory_snapshots",
        system="warehouse",
        schema="snapshot_id BIGINT, product_id BIGINT, warehouse_id INTEGER, stock_quantity INTEGER, "
        "reorder_level INTEGER, avg_daily_sales DOUBLE, snapshot_timestamp TIMESTAMP",
        checks=(
            *_not_null("snapshot_id", "product_id", "stock_quantity", "snapshot_timestamp"),
            ("stock is not negative", "stock_quantity < 0"),
        ),
    ),
    Feed(
        name="support_tickets",
        system="support",
        schema="ticket_id BIGINT, customer_id BIGINT, category VARCHAR, priority VARCHAR, created_at TIMESTAMP, "
        "first_response_at TIMESTAMP, resolved_at TIMESTAMP, satisfaction_score INTEGER",
        checks=(
            *_not_null("ticket_id", "customer_id", "created_at"),
            _one_of("priority", "critical", "high", "medium", "low"),
            ("answered after it was opened", "first_response_at < created_at"),
            ("resolved after it was opened", "resolved_at < created_at"),
        ),
    ),
)

# What a field must look like to mean exactly a value. DECIMAL(12,2): ten digits, two decimals, end zeros aside.
WHOLE = "regexp_full_match({{f}}, '[+-]?[0-9]+') AND TRY_CAST({{f}} AS {0}) IS NOT NULL"
CENTS_AT_MOST = "regexp_full_match({f}, '[+-]?(0*[0-9]{{1,10}}(\\.[0-9]{{0,2}}0*)?|\\.[0-9]{{1,2}}0*)')"
FINITE = r"""
    regexp_full_match({f}, '[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?')
    AND isfinite(TRY_CAST({f} AS DOUBLE))"""
MOMENT = """
    regexp_full_match({f}, '[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}} [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}')
    AND TRY_CAST({f} AS TIMESTAMP) IS NOT NULL AND TRY_CAST({f}[12:13] AS INTEGER) < 24"""
LOOKS = {
    "VARCHAR": "TRUE",
    "BIGINT": WHOLE.format("BIGINT"),
    "INTEGER": WHOLE.format("INTEGER"),
    "DECIMAL(12,2)": CENTS_AT_MOST,
    "DOUBLE": FINITE,
    "TIMESTAMP": MOMENT,
}


class Odd(NamedTuple):
    """A record that DuckDB must not split: with its fields, or None where it is malformed."""

    line: int
    raw: bytes
    fields: list[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """A file's text with a blank line wherever an odd record or the header stood."""

    order: list[int]
    text: str
    odd: list[Odd]


PLAIN = re.compile(rb'(?:[^",\r\n]|\r(?!\n|\Z))*')  # a lone CR is an ordinary character


def _field_end(data: bytes, start: int) -> int:
    """Where the field that starts here ends; -1 if a quote is in the wrong place or never closed."""
    if data[start : start + 1] != b'"':
        match = PLAIN.match(data, start)
        end = match.end() if match else start
        return -1 if data[end : end + 1] == b'"' else end
    at = start + 1
    while (at := data.find(b'"', at)) >= 0 and data[at + 1 : at + 2] == b'"':
        at += 2
    after = data[at + 1 : at + 3]
    return at + 1 if at >= 0 and (after[:1] in (b",", b"\n", b"") or after in (b"\r\n", b"\r")) else -1


def _value(field: bytes) -> bytes:
    return field[1:-1].replace(b'""', b'"') if field.startswith(b'"') else field


def _quoted_record(data: bytes, start: int) -> tuple[int, list[bytes] | None]:
    """The end of the record and its fields; a broken one ends with its physical line."""
    fields: list[bytes] = []
    at = start
    while (end := _field_end(data, at)) >= 0:
        fields.append(_value(data[at:end]))
        if data[end : end + 1] != b",":
            return end, fields
        at = end + 1
    newline = data.find(b"\n", start)
    end = len(data) if newline < 0 else newline
    return (end - 1 if data[start:end].endswith(b"\r") else end), None


def _decoded(fields: list[bytes] | None) -> list[str] | None:
    try:
        return None if fields is None else [field.decode("utf-8") for field in fields]
    except UnicodeDecodeError:
        return None


def _next_odd(data: bytes, start: int) -> int:
    """The start of the next line with a quote or with bytes that are not UTF-8, or the end of the data."""
    quote = data.find(b'"', start)
    stop = len(data) if quote < 0 else data.rfind(b"\n", start, quote) + 1 or start
    try:
        data[start:stop].decode("utf-8")
    except UnicodeDecodeError as error:
        return data.rfind(b"\n", start, start + error.start) + 1 or start
    return stop


def _landed(data: bytes, feed: Feed, path: str) -> Landed:
    """Header and odd records taken out by looking at bytes; the rest is for DuckDB to split."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    if not data:
        return Landed(order=[], text="", odd=[])
    at, names = _quoted_record(data, 0)
    header = _decoded(names) or []
    if sorted(header) != sorted(feed.columns):
        raise ValueError(f"{path}: the header {header} does not name the columns of {feed.name}")
    odd: list[Odd] = []
    pieces: list[str] = []
    line = 1
    while (start := _next_odd(data, at)) < len(data):
        pieces.append(data[at:start].decode("utf-8"))
        line += data.count(b"\n", at, start)
        at, fields = _quoted_record(data, start)
        raw = data[start:at]
        odd.append(Odd(line, raw, _decoded(fields)))
        pieces.append("\n" * raw.count(b"\n"))
        line += raw.count(b"\n")
    pieces.append(data[at:].decode("utf-8"))
    return Landed(order=[header.index(column) + 1 for column in feed.columns], text="".join(pieces), odd=odd)


def _load(con: duckdb.DuckDBPyConnection, landing: Path, batches: Sequence[Sequence[str]]) -> None:
    origin = "feed VARCHAR, batch INTEGER, source_file VARCHAR, places INTEGER[]"
    con.execute(f"CREATE TABLE files ({origin}, text VARCHAR)")
    con.execute(f"CREATE TABLE odd ({origin}, line BIGINT, raw BLOB, fields VARCHAR[])")
    feeds = {feed.name: feed for feed in FEEDS}
    for batch, names in enumerate(batches):
        for name in names:
            path = name.removeprefix("landing/")
            feed, source_file = feeds[path.split("/")[0]], f"landing/{path}"
            landed = _landed((landing / path).read_bytes(), feed, source_file)
            con.execute(
                "INSERT INTO files VALUES (?, ?, ?, ?, ?)", [feed.name, batch, source_file, landed.order, landed.text]
            )
            for odd in landed.odd:
                con.execute(
                    "INSERT INTO odd VALUES (?, ?, ?, ?, ?, ?, ?)", [feed.name, batch, source_file, landed.order, *odd]
                )


def _bronze(con: duckdb.DuckDBPyConnection, feed: Feed) -> None:
    """Keep the first arrival of every id among the rows that passed; all else is in quarantine with its reasons."""
    _check(con, feed)
    columns = ", ".join(
        f"CAST({name} AS TIMESTAMPTZ) AS {name}" if kind == "TIMESTAMP" else name for name, kind in feed.columns.items()
    )
    con.execute(f"""
        CREATE TEMP TABLE repeated AS
        SELECT batch, source_file, line FROM checked WHERE len(reasons) = 0
        QUALIFY row_number() OVER (PARTITION BY {feed.key} ORDER BY batch, source_file, line) > 1""")
    con.execute(f"""
        CREATE TABLE bronze.{feed.name} AS
        SELECT {columns}, '{feed.system}' AS source_system, source_file
        FROM checked ANTI JOIN repeated USING (batch, source_file, line) WHERE len(reasons) = 0""")
    con.execute(f"""
        CREATE TABLE quarantine.{feed.name} AS
        SELECT '{feed.name}' AS feed, batch, source_file, line, reasons, raw, {columns}
        FROM checked WHERE len(reasons) > 0
        UNION ALL
        SELECT '{feed.name}', batch, source_file, line, ['{feed.key} is unique'], raw, {columns}
        FROM checked SEMI JOIN repeated USING (batch, source_file, line)""")
    con.execute("DROP TABLE checked; DROP TABLE repeated")


def _check(con: duckdb.DuckDBPyConnection, feed: Feed) -> None:
    """Every record of the feed in the table `checked`, with its values and the reasons it is refused for."""
    columns = list(enumerate(feed.columns.items(), start=1))
    fields = ", ".join(f"NULLIF(fields[places[{at}]], '') AS f{at}" for at, _ in columns)
    wrong = " OR ".join(f"(f{at} IS NOT NULL AND NOT ({LOOKS[kind].format(f=f'f{at}')}))" for at, (_, kind) in columns)
    values = ", ".join(
        f"CASE WHEN NOT malformed THEN TRY_CAST(f{at} AS {kind}) END AS {name}" for at, (name, kind) in columns
    )
    reasons = ", ".join(f"CASE WHEN {failed} THEN '{reason}' END" for reason, failed in feed.checks)
    con.execute(f"""
        CREATE TEMP TABLE checked AS
        WITH numbered AS (
            SELECT batch, source_file, places, unnest(lines) AS text, unnest(range(1, len(lines) + 1)) AS line
            FROM (SELECT *, string_split(text, chr(10)) AS lines FROM files WHERE feed = '{feed.name}')
        ), plain AS (
            SELECT * REPLACE (CASE WHEN ends_with(text, chr(13)) THEN text[:-2] ELSE text END AS text)
            FROM numbered WHERE trim(text, E' \\t\\r') <> ''
        ), records AS (
            SELECT batch, source_file, places, line, encode(text) AS raw, string_split(text, ',') AS fields FROM plain
            UNION ALL
            SELECT batch, source_file, places, line, raw, fields FROM odd WHERE feed = '{feed.name}'
        ), split AS (
            SELECT batch, source_file, line, raw, COALESCE(len(fields), 0) <> {len(columns)} AS torn, {fields}
            FROM records
        ), judged AS (SELECT *, torn OR {wrong} AS malformed FROM split),
        valued AS (SELECT batch, source_file, line, raw, malformed, {values} FROM judged)
        SELECT * EXCLUDE (malformed),
               CASE WHEN malformed THEN ['{MALFORMED}']
                    ELSE list_filter([{reasons}], lambda reason: reason IS NOT NULL) END AS reasons
        FROM valued""")


# Exact money from integer cents: decimal times decimal stays decimal, where a division would become DOUBLE.
def _money(cents: str) -> str:
    return f"CAST(CAST({cents} AS DECIMAL(18,0)) * CAST(0.01 AS DECIMAL(3,2)) AS DECIMAL(18,2))"


def _average(cents: str, count: str) -> str:
    """Half up to a whole cent; amounts are positive, so integer division rounds down."""
    return _money(f"CASE WHEN {count} > 0 THEN (2 * {cents} + {count}) // (2 * {count}) END")


CENTS = "CAST(amount * 100 AS BIGINT)"

SILVER = """
CREATE TABLE silver.customer_sessions AS
SELECT customer_id, session_id, session_start, session_end,
       (epoch_us(session_end) - epoch_us(session_start)) // 1000000 AS session_duration_seconds,
       event_count, view_count, click_count, add_to_cart_count, purchase_count,
       purchase_count > 0 AS is_converted,
       add_to_cart_count > 0 AND purchase_count = 0 AS is_abandoned,
       event_count = 1 AS is_bounce
FROM (
    SELECT customer_id, session_id, min(event_timestamp) AS session_start, max(event_timestamp) AS session_end,
           count(*) AS event_count,
           count(*) FILTER (event_type = 'view') AS view_count,
           count(*) FILTER (event_type = 'click') AS click_count,
           count(*) FILTER (event_type = 'add_to_cart') AS add_to_cart_count,
           count(*) FILTER (event_type = 'purchase') AS purchase_count
    FROM bronze.customer_events GROUP BY customer_id, session_id);

CREATE TABLE silver.payment_analysis AS
SELECT *, is_high_value AND is_off_hours AS is_suspicious
FROM (
    SELECT *, amount > 500 AS is_high_value, hour >= 23 OR hour < 6 AS is_off_hours, day_of_week >= 6 AS is_weekend
    FROM (
        SELECT *, CAST(CAST(transaction_timestamp AS TIMESTAMP) AS DATE) AS transaction_date,
               CAST(date_part('hour', CAST(transaction_timestamp AS TIMESTAMP)) AS INTEGER) AS hour,
               CAST(isodow(CAST(transaction_timestamp AS TIMESTAMP)) AS INTEGER) AS day_of_week
        FROM bronze.payment_transactions));

CREATE TABLE silver.inventory_health AS
SELECT *, days_of_stock < 7 AS is_low_stock, stock_quantity <= reorder_level AS needs_reorder
FROM (
    SELECT *, CAST(stock_quantity AS DOUBLE) / NULLIF(avg_daily_sales, 0) AS days_of_stock
    FROM bronze.inventory_snapshots);

CREATE TABLE silver.support_metrics AS
SELECT * EXCLUDE (answer, solution, answer_limit, solution_limit),
       answer / CAST(3600 AS DOUBLE) AS response_time_hours, solution / CAST(3600 AS DOUBLE) AS resolution_time_hours,
       answer <= answer_limit * 3600 AS meets_response_sla, solution <= solution_limit * 3600 AS meets_resolution_sla
FROM (
    SELECT *, (epoch_us(first_response_at) - epoch_us(created_at)) // 1000000 AS answer,
           (epoch_us(resolved_at) - epoch_us(created_at)) // 1000000 AS solution,
           CASE priority WHEN 'critical' THEN 1 WHEN 'high' THEN 4 WHEN 'medium' THEN 8 WHEN 'low' THEN 24 END
               AS answer_limit,
           CASE priority WHEN 'critical' THEN 4 WHEN 'high' THEN 24 WHEN 'medium' THEN 72 WHEN 'low' THEN 168 END
               AS solution_limit
    FROM bronze.support_tickets);
"""

GOLD = f"""
CREATE TABLE gold.customer_summary AS
WITH visits AS (
    SELECT customer_id, count(*) AS sessions, count(*) FILTER (is_converted) AS converted,
           max(session_end) AS last_visit
    FROM silver.customer_sessions GROUP BY customer_id
), payments AS (
    SELECT customer_id, count(*) FILTER (status = 'completed') AS orders,
           COALESCE(sum({CENTS}) FILTER (status = 'completed'), 0) AS cents, max(transaction_timestamp) AS last_payment
    FROM silver.payment_analysis GROUP BY customer_id
), tickets AS (
    SELECT customer_id, count(*) AS tickets, max(created_at) AS last_ticket
    FROM silver.support_metrics GROUP BY customer_id
), everyone AS (
    SELECT customer_id FROM visits UNION SELECT customer_id FROM payments UNION SELECT customer_id FROM tickets
), joined AS (
    SELECT customer_id, COALESCE(sessions, 0) AS sessions, COALESCE(converted, 0) AS converted,
           COALESCE(orders, 0) AS orders,
           COALESCE(cents, 0) AS cents, COALESCE(tickets, 0) AS tickets,
           greatest(last_visit, last_payment, last_ticket) AS last_activity_at
    FROM everyone LEFT JOIN visits USING (customer_id)
    LEFT JOIN payments USING (customer_id) LEFT JOIN tickets USING (customer_id)
)
SELECT customer_id, sessions AS total_sessions, converted AS converted_sessions, orders AS total_orders,
       {_money("cents")} AS total_ltv, {_average("cents", "orders")} AS avg_order_value,
       CAST(converted AS DOUBLE) / NULLIF(sessions, 0) AS conversion_rate,
       tickets AS support_tickets_count, last_activity_at,
       CASE WHEN cents >= 100000 AND orders >= 3 THEN 'VIP'
            WHEN orders = 0 OR tickets > orders THEN 'At-Risk' ELSE 'Regular' END AS customer_segment
FROM joined;

CREATE TABLE gold.daily_metrics AS
SELECT transaction_date, {_money("cents")} AS total_revenue, orders AS total_orders,
       {_average("cents", "orders")} AS avg_order_value, customers AS total_customers, suspicious AS fraud_flag_count
FROM (
    SELECT transaction_date, COALESCE(sum({CENTS}) FILTER (status = 'completed'), 0) AS cents,
           count(*) FILTER (status = 'completed') AS orders,
           count(DISTINCT customer_id) FILTER (status = 'completed') AS customers,
           count(*) FILTER (is_suspicious) AS suspicious
    FROM silver.payment_analysis GROUP BY transaction_date);

CREATE TABLE gold.product_summary AS
WITH seen AS (
    SELECT product_id, count(*) FILTER (event_type = 'view') AS views,
           count(*) FILTER (event_type = 'purchase') AS purchases
    FROM bronze.customer_events GROUP BY product_id
), paid AS (
    SELECT product_id, COALESCE(sum({CENTS}) FILTER (status = 'completed'), 0) AS cents
    FROM silver.payment_analysis GROUP BY product_id
), newest AS (
    SELECT product_id, stock_quantity FROM silver.inventory_health
    QUALIFY row_number() OVER (
        PARTITION BY product_id, warehouse_id ORDER BY snapshot_timestamp DESC, snapshot_id DESC) = 1
), stock AS (SELECT product_id, sum(stock_quantity) AS stock FROM newest GROUP BY product_id),
everything AS (SELECT product_id FROM seen UNION SELECT product_id FROM paid UNION SELECT product_id FROM stock)
SELECT product_id, COALESCE(views, 0) AS product_views, COALESCE(purchases, 0) AS product_purchases,
       CAST(purchases AS DOUBLE) / NULLIF(views, 0) AS conversion_rate,
       {_money("COALESCE(cents, 0)")} AS revenue_generated, CAST(COALESCE(stock, 0) AS BIGINT) AS current_stock_level
FROM everything LEFT JOIN seen USING (product_id) LEFT JOIN paid USING (product_id) LEFT JOIN stock USING (product_id);
"""


def recompute(landing: Path, batches: Sequence[Sequence[str]]) -> duckdb.DuckDBPyConnection:
    """All tables from the landed files; a batch is the files that one run was the first to take.

    Files are named as `<feed>/<day>.csv` below `landing`, with or without a leading `landing/`. The connection has
    bronze.<feed> (without the volatile ingested_at), quarantine.<feed>, and the tables of silver and gold. A
    malformed line has the single reason `malformed`; its declared columns are all NULL here.
    """
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    for schema in ("bronze", "quarantine", "silver", "gold"):
        con.execute(f"CREATE SCHEMA {schema}")
    _load(con, Path(landing), batches)
    for feed in FEEDS:
        _bronze(con, feed)
    con.execute("DROP TABLE files; DROP TABLE odd")
    con.execute(SILVER)
    con.execute(GOLD)
    return con
