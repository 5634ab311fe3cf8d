select id, kind from {{ ref('events') }}
