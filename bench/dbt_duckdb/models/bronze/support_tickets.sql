{{ landed('support_tickets', 'support', {
    'ticket_id': 'BIGINT',
    'customer_id': 'BIGINT',
    'category': 'VARCHAR',
    'priority': 'VARCHAR',
    'created_at': 'TIMESTAMP',
    'first_response_at': 'TIMESTAMP',
    'resolved_at': 'TIMESTAMP',
    'satisfaction_score': 'INTEGER'
}) }}
