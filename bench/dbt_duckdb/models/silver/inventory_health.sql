SELECT *, stock_quantity / nullif(avg_daily_sales, 0) AS days_of_stock, days_of_stock < 7 AS is_low_stock,
       stock_quantity <= reorder_level AS needs_reorder
FROM {{ ref('inventory_snapshots') }}
{{ unseen('ingested_at', 'ingested_at') }}
