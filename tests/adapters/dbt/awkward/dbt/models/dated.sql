select {{ dbt.dateadd('day', 1, 'current_date') }} as day, id from {{ ref('plain') }}
