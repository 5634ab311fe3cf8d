select
    id as payment_id,
    order_id,
    method,
    cast({{ euros('amount_cents') }} as decimal(12, 2)) as amount
from {{ ref('raw_payments') }}
