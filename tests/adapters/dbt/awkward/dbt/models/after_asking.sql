select * from {{ ref('asking') }}
