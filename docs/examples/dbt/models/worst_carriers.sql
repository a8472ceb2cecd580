{{ config(
    materialized="manifestcommit",
    location=var("lake") ~ "/worst_carriers",
    key="worst_carriers " ~ var("day"),
    merge_on=["carrier"],
) }}
select carrier, max(mean_delay) as worst, max_by(day, mean_delay) as day
from {{ ref("daily_delays") }}
group by carrier
