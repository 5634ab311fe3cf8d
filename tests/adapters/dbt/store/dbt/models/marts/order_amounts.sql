{{ config(materialized='ephemeral') }}

select
    order_id,
    {% for method in ['card', 'transfer', 'voucher'] -%}
    sum(case when method = '{{ method }}' then amount else 0 end) as {{ method }}_amount,
    {% endfor -%}
    sum(amount) as amount
from {{ ref('stg_payments') }}
group by order_id
