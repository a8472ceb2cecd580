{{ config(
    materialized="manifestcommit",
    location=var("lake") ~ "/audited_delays",
    key="audited_delays " ~ var("day"),
    partition_by=["day"],
    stage_to=var("lake") ~ "/staged.jsonl",
) }}
select day, carrier, count(*) as flights
from {{ source("lake", "flights") }}
where day = '{{ var("day") }}'
group by day, carrier
