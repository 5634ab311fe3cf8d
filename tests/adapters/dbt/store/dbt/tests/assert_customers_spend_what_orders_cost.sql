select customer_id, sum(difference) as difference
from (
    select customer_id, amount as difference from {{ ref('orders') }}
    union all
    select customer_id, -spent as difference from {{ ref('customers') }}
) as both_sides
group by customer_id
having sum(difference) <> 0
