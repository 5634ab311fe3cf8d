SELECT *, transaction_timestamp::DATE AS transaction_date, hour(transaction_timestamp)::INTEGER AS hour,
       isodow(transaction_timestamp)::INTEGER AS day_of_week, amount > 500 AS is_high_value,
       hour(transaction_timestamp) >= 23 OR hour(transaction_timestamp) < 6 AS is_off_hours,
       isodow(transaction_timestamp) >= 6 AS is_weekend, is_high_value AND is_off_hours AS is_suspicious
FROM {{ ref('payment_transactions') }}
{{ unseen('ingested_at', 'ingested_at') }}
