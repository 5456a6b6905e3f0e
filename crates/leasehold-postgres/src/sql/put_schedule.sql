-- $1 id, $2 org, $3 to $15 the definition, $16 who declares it, $17 next_tick of a new one or a new timing.
-- Answers whether another schedule of the org has the name, and whether this one was written. Neither: the
-- id is taken by another org, or by somebody who wrote at the same time. Another org's row may not be there
-- for us at all, so a conflict with it must not lead to an update.
with namesake as materialized (
    select from {schema}.schedules where org_id = $2 and name = $3 and id <> $1
),
changed as (
    update {schema}.schedules
    set name = $3, kind = $4, lane = $5, payload = $6::text::json, priority = $7, max_attempts = $8,
        expression = $9, zone = $10, starts_at = $11, ends_at = $12, missed = $13, overlap = $14, jitter = $15,
        declared_by = $16, undeclared_at = null, revision = revision + 1,
        next_tick = case
            when (expression, zone, starts_at, ends_at) is distinct from ($9, $10, $11, $12) then $17
            else next_tick
        end
    where id = $1 and org_id = $2 and not exists (select from namesake)
    returning id
),
added as (
    insert into {schema}.schedules (id, org_id, name, kind, lane, payload, priority, max_attempts, expression,
        zone, starts_at, ends_at, missed, overlap, jitter, declared_by, next_tick, revision)
    select $1, $2, $3, $4, $5, $6::text::json, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, 1
    where not exists (select from namesake) and not exists (select from changed)
    on conflict do nothing
    returning id
)
select exists (select from namesake), exists (select from changed) or exists (select from added)
