{{ config(materialized='incremental', unique_key='order_id') }}

with orders as (

    select * from {{ ref('stg_orders') }}
    {% if is_incremental() %}
    where updated_at > (select max(updated_at) from {{ this }})
    {% endif %}

)

select
    orders.order_id,
    orders.customer_id,
    orders.ordered_on,
    orders.status,
    orders.updated_at,
    amounts.card_amount,
    amounts.transfer_amount,
    amounts.voucher_amount,
    amounts.amount
from orders
left join {{ ref('order_amounts') }} as amounts
    on orders.order_id = amounts.order_id
