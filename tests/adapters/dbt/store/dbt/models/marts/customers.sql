with orders as (

    select
        customer_id,
        min(ordered_on) as first_order_on,
        max(ordered_on) as last_order_on,
        count(*) as orders,
        sum(amount) as spent
    from {{ ref('orders') }}
    group by customer_id

)

select
    customers.customer_id,
    customers.first_name,
    customers.last_name,
    orders.first_order_on,
    orders.last_order_on,
    coalesce(orders.orders, 0) as orders,
    orders.spent
from {{ ref('stg_customers') }} as customers
left join orders
    on customers.customer_id = orders.customer_id
