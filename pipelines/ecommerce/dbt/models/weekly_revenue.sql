-- Revenue by week, and how it changed from the week before.
{{ config(materialized='table') }}

with weeks as (

    select
        cast(date_trunc('week', transaction_date) as date) as week,
        sum(total_revenue) as revenue,
        sum(total_orders) as orders
    from {{ source('gold', 'daily_metrics') }}
    group by 1

)

select
    week,
    revenue,
    orders,
    revenue - lag(revenue) over (order by week) as change
from weeks
