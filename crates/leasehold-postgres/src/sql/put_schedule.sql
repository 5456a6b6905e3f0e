-- $1 id, $2 org, $3 name, $4 kind, $5 lane, $6 payload, $7 expression, $8 last_tick of a new one.
-- Answers whether another schedule of the org has the name, and whether this one was written. Neither: the
-- id is taken by another org, or by somebody who wrote at the same time. Another org's row may not be there
-- for us at all, so a conflict with it must not lead to an update.
with namesake as materialized (
    select from {schema}.schedules where org_id = $2 and name = $3 and id <> $1
),
changed as (
    update {schema}.schedules
    set name = $3, kind = $4, lane = $5, payload = $6::text::json, expression = $7
    where id = $1 and org_id = $2 and not exists (select from namesake)
    returning id
),
added as (
    insert into {schema}.schedules (id, org_id, name, kind, lane, payload, expression, last_tick)
    select $1, $2, $3, $4, $5, $6::text::json, $7, $8
    where not exists (select from namesake) and not exists (select from changed)
    on conflict do nothing
    returning id
)
select exists (select from namesake), exists (select from changed) or exists (select from added)
