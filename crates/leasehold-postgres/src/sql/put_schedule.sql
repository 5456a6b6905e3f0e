-- $1 id, $2 org, $3 name, $4 kind, $5 lane, $6 payload, $7 expression, $8 last_tick of a new one.
-- Answers whether another schedule of the org has the name, and whether this one was written.
with namesake as materialized (
    select from {schema}.schedules where org_id = $2 and name = $3 and id <> $1
),
put as (
    insert into {schema}.schedules as schedule (
        id, org_id, name, kind, lane, payload, expression, last_tick
    )
    select $1, $2, $3, $4, $5, $6::text::json, $7, $8 where not exists (select from namesake)
    on conflict (id) do update
    set name = excluded.name, kind = excluded.kind, lane = excluded.lane,
        payload = excluded.payload, expression = excluded.expression
    where schedule.org_id = excluded.org_id
    returning id
)
select exists (select from namesake), exists (select from put)
