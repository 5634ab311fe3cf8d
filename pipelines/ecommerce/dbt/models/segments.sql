-- What each segment of customers is worth.
{{ config(materialized='table') }}

select
    customer_segment,
    count(*) as customers,
    sum(total_orders) as orders,
    sum(total_ltv) as revenue
from {{ source('gold', 'customer_summary') }}
group by customer_segment
