{# The files of a feed that are not in its table yet: those with a name beyond the newest one, since names are days. #}
{% macro landed(feed, system, columns) %}
{% set files = "glob('landing/" ~ feed ~ "/*.csv')" %}
{% set newer = " WHERE file > (SELECT coalesce(max(source_file), '') FROM " ~ this ~ ")" if is_incremental() else "" %}
{% set found = run_query("SELECT file FROM " ~ files ~ newer).columns[0].values() if execute else [] %}
{% if found %}
SELECT * EXCLUDE (filename), now() AS ingested_at, '{{ system }}' AS source_system, filename AS source_file
FROM read_csv({{ found | list }}, columns = {{ columns }}, header = true, delim = ',', quote = '"', filename = true,
              ignore_errors = true)
{% else %}
SELECT * FROM {{ this }} WHERE false
{% endif %}
{% endmacro %}
