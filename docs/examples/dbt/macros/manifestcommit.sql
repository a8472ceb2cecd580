{#- A model is one commit of a table: its rows are staged in DuckDB, the plugin commits them under the model's key, and
    what refers to the model reads the version that the table then has. -#}
{% materialization manifestcommit, adapter="duckdb", supported_languages=["sql"] %}
  {%- do config.require("location") -%}
  {%- do config.require("key") -%}
  {%- set staged = make_intermediate_relation(this.incorporate(type="table"), suffix="__staged") -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}
  {% call statement("main") -%}
    create or replace table {{ staged }} as ({{ compiled_code }})
  {%- endcall %}
  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ adapter.commit() }}

  {% do adapter.store_relation("dbt_manifestcommit", this, adapter.get_columns_in_relation(staged), config.get("location"), "parquet", config) %}

  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({"relations": [this.incorporate(type="view")]}) }}
{% endmaterialization %}
