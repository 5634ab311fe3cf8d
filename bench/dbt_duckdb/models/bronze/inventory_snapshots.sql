{{ landed('inventory_snapshots', 'warehouse', {
    'snapshot_id': 'BIGINT',
    'product_id': 'BIGINT',
    'warehouse_id': 'INTEGER',
    'stock_quantity': 'INTEGER',
    'reorder_level': 'INTEGER',
    'avg_daily_sales': 'DOUBLE',
    'snapshot_timestamp': 'TIMESTAMP'
}) }}
