{% materialization odd, default %}
    {% call statement('main') %}{{ sql }}{% endcall %}
    {{ return({'relations': []}) }}
{% endmaterialization %}
