{{ landed('payment_transactions', 'payments', {
    'transaction_id': 'BIGINT',
    'customer_id': 'BIGINT',
    'product_id': 'BIGINT',
    'amount': 'DECIMAL(12, 2)',
    'currency': 'VARCHAR',
    'payment_method': 'VARCHAR',
    'status': 'VARCHAR',
    'transaction_timestamp': 'TIMESTAMP'
}) }}
