{% macro euros(cents) %}cast({{ cents }} as decimal(12, 2)) / 100{% endmacro %}
