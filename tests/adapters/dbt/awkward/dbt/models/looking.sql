-- In a full refresh no table is there yet.
{% if load_relation(ref('plain')) is none %}
select id from {{ ref('plain') }}
{% endif %}
