{{ landed('customer_events', 'web', {
    'event_id': 'BIGINT',
    'customer_id': 'BIGINT',
    'session_id': 'VARCHAR',
    'event_type': 'VARCHAR',
    'product_id': 'BIGINT',
    'event_timestamp': 'TIMESTAMP',
    'device': 'VARCHAR',
    'referrer': 'VARCHAR',
    'page_url': 'VARCHAR'
}) }}
