select
    id as order_id,
    customer as customer_id,
    ordered_on,
    status,
    updated_at
from {{ ref('raw_orders') }}
