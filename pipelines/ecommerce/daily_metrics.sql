-- One row for every day with any payment: revenue, orders, customers, suspicious payments.
SELECT
    transaction_date,
    CAST(coalesce(sum(amount) FILTER (WHERE status = 'completed'), 0) AS DECIMAL(18, 2)) AS total_revenue,
    count(*) FILTER (WHERE status = 'completed') AS total_orders,
    CAST(round(try_divide(sum(amount) FILTER (WHERE status = 'completed'),
                          count(*) FILTER (WHERE status = 'completed')), 2) AS DECIMAL(18, 2)) AS avg_order_value,
    count(DISTINCT customer_id) FILTER (WHERE status = 'completed') AS total_customers,
    count_if(is_suspicious) AS fraud_flag_count
FROM {payment_analysis}
GROUP BY transaction_date
