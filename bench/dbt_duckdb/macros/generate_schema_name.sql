{# Schemas are called as their layer, without dbt's prefix. #}
{% macro generate_schema_name(custom_schema_name, node) -%} {{ custom_schema_name or target.schema }} {%- endmacro %}
