-- Days with new payments, from all of their payments.
{{ config(unique_key="coalesce(transaction_date, '-infinity')") }}
SELECT transaction_date,
       coalesce(sum(amount) FILTER (status = 'completed'), 0)::DECIMAL(18, 2) AS total_revenue,
       count(*) FILTER (status = 'completed') AS total_orders,
       (((200 * total_revenue)::BIGINT + total_orders) // nullif(2 * total_orders, 0) / 100)::DECIMAL(18, 2)
           AS avg_order_value,
       count(DISTINCT customer_id) FILTER (status = 'completed') AS total_customers,
       count(*) FILTER (is_suspicious) AS fraud_flag_count, max(ingested_at) AS loaded_at
FROM {{ ref('payment_analysis') }} AS payments
{% if is_incremental() %}
SEMI JOIN (SELECT transaction_date FROM {{ ref('payment_analysis') }} {{ unseen('ingested_at', 'loaded_at') }}) AS changed
  ON payments.transaction_date IS NOT DISTINCT FROM changed.transaction_date
{% endif %}
GROUP BY transaction_date
