{# In an incremental run, only what was loaded after all that this table has seen. #}
{% macro unseen(loaded, seen) %}
{% if is_incremental() %} WHERE {{ loaded }} > (SELECT max({{ seen }}) FROM {{ this }}) {% endif %}
{% endmacro %}
