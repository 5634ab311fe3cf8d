-- Sessions with new events, from all of their events. The key is a row, because NULL equals NULL inside of one.
{{ config(incremental_strategy='delete+insert', unique_key='row(customer_id, session_id)') }}
SELECT customer_id, session_id, min(event_timestamp) AS session_start, max(event_timestamp) AS session_end,
       date_diff('second', min(event_timestamp), max(event_timestamp)) AS session_duration_seconds,
       count(*) AS event_count,
       count(*) FILTER (event_type = 'view') AS view_count,
       count(*) FILTER (event_type = 'click') AS click_count,
       count(*) FILTER (event_type = 'add_to_cart') AS add_to_cart_count,
       count(*) FILTER (event_type = 'purchase') AS purchase_count,
       purchase_count > 0 AS is_converted,
       add_to_cart_count > 0 AND purchase_count = 0 AS is_abandoned,
       event_count = 1 AS is_bounce, max(ingested_at) AS loaded_at
FROM {{ ref('customer_events') }} AS events
{% if is_incremental() %}
SEMI JOIN (SELECT customer_id, session_id FROM {{ ref('customer_events') }} {{ unseen('ingested_at', 'loaded_at') }}) AS changed
  ON events.customer_id IS NOT DISTINCT FROM changed.customer_id
 AND events.session_id IS NOT DISTINCT FROM changed.session_id
{% endif %}
GROUP BY customer_id, session_id
