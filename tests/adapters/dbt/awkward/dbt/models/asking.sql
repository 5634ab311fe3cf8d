{% set found = run_query('select 1') %}

select '{{ found }}' as found from {{ ref('plain') }}
