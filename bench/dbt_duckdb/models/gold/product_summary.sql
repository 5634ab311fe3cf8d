-- Made anew each time: a day touches nearly every product.
{{ config(materialized='table') }}
SELECT product_id, coalesce(sum(views), 0)::BIGINT AS product_views,
       coalesce(sum(purchases), 0)::BIGINT AS product_purchases,
       product_purchases / nullif(product_views, 0) AS conversion_rate,
       coalesce(sum(revenue), 0)::DECIMAL(18, 2) AS revenue_generated,
       coalesce(sum(stock), 0)::BIGINT AS current_stock_level
FROM (SELECT product_id, (event_type = 'view')::INTEGER AS views,
             (event_type = 'purchase')::INTEGER AS purchases
      FROM {{ ref('customer_events') }}
      UNION ALL BY NAME
      SELECT product_id, CASE WHEN status = 'completed' THEN amount END AS revenue FROM {{ ref('payment_analysis') }}
      UNION ALL BY NAME
      SELECT product_id, arg_max(stock_quantity, (snapshot_timestamp, snapshot_id)) AS stock
      FROM {{ ref('inventory_health') }} GROUP BY product_id, warehouse_id)
GROUP BY product_id
