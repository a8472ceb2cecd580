{{ config(
    materialized="manifestcommit",
    location=var("lake") ~ "/daily_delays",
    key="daily_delays " ~ var("day"),
    partition_by=["day"],
) }}
select day, carrier, count(*) as flights, avg(dep_delay) as mean_delay
from {{ source("lake", "flights") }}
where day = '{{ var("day") }}'
group by day, carrier
