-- Customers with anything new, from all that is known of them.
{{ config(unique_key='coalesce(customer_id, -1)') }}
SELECT facts.customer_id, coalesce(sum(sessions), 0)::BIGINT AS total_sessions,
       coalesce(sum(converted), 0)::BIGINT AS converted_sessions,
       coalesce(sum(orders), 0)::BIGINT AS total_orders,
       coalesce(sum(paid), 0)::DECIMAL(18, 2) AS total_ltv,
       (((200 * total_ltv)::BIGINT + total_orders) // nullif(2 * total_orders, 0) / 100)::DECIMAL(18, 2)
           AS avg_order_value,
       converted_sessions / nullif(total_sessions, 0) AS conversion_rate,
       coalesce(sum(tickets), 0)::BIGINT AS support_tickets_count,
       max(active_at) AS last_activity_at,
       CASE WHEN total_ltv >= 1000 AND total_orders >= 3 THEN 'VIP'
            WHEN total_orders = 0 OR support_tickets_count > total_orders THEN 'At-Risk'
            ELSE 'Regular' END AS customer_segment,
       max(loaded) AS loaded_at
FROM (SELECT customer_id, 1 AS sessions, is_converted::INTEGER AS converted, session_end AS active_at,
             loaded_at AS loaded
      FROM {{ ref('customer_sessions') }}
      UNION ALL BY NAME
      SELECT customer_id, (status = 'completed')::INTEGER AS orders,
             CASE WHEN status = 'completed' THEN amount END AS paid, transaction_timestamp AS active_at,
             ingested_at AS loaded
      FROM {{ ref('payment_analysis') }}
      UNION ALL BY NAME
      SELECT customer_id, 1 AS tickets, created_at AS active_at, ingested_at AS loaded
      FROM {{ ref('support_metrics') }}) AS facts
{% if is_incremental() %}
SEMI JOIN (SELECT customer_id FROM {{ ref('customer_sessions') }} {{ unseen('loaded_at', 'loaded_at') }}
           UNION ALL
           SELECT customer_id FROM {{ ref('payment_analysis') }} {{ unseen('ingested_at', 'loaded_at') }}
           UNION ALL
           SELECT customer_id FROM {{ ref('support_metrics') }} {{ unseen('ingested_at', 'loaded_at') }}) AS changed
  ON facts.customer_id IS NOT DISTINCT FROM changed.customer_id
{% endif %}
GROUP BY facts.customer_id
