-- $1 is the org; then one list per column. No id and no key stands twice in the lists, so that an id finds
-- its row again. They are taken apart side by side, which a function in `from` would do by a table for each.
--
-- Of two batches that bring the same keys under ids of their own, one waits for the other at the first key
-- they share. Both going by key, neither then holds what the other waits for.
with moment as materialized (
    select {schema}.clock() as now
),
new as materialized (
    select
        unnest($2::uuid[]) as id, unnest($3::timestamptz[]) as created_at,
        unnest($4::uuid[]) as created_by, unnest($5::text[]) as kind, unnest($6::uuid[]) as target_id,
        unnest($7::uuid[]) as idempotency_key, unnest($8::uuid[]) as request_id,
        unnest($9::text[]) as traceparent, unnest($10::text[]) as lane,
        unnest($11::smallint[]) as priority, unnest($12::integer[]) as max_attempts,
        unnest($13::text[]) as payload, unnest($14::timestamptz[]) as due_at,
        unnest($15::bigint[]) as delay
),
inserted as (
    insert into {schema}.items (
        id, org_id, created_at, created_by, kind, target_id, idempotency_key, request_id,
        traceparent, lane, priority, max_attempts, payload
    )
    select
        id, $1::uuid, created_at, created_by, kind, target_id, idempotency_key, request_id,
        traceparent, lane, priority, max_attempts, payload::json
    from new
    order by idempotency_key, id
    on conflict do nothing
    returning id
),
queued as (
    insert into {schema}.ready (
        id, org_id, lane, kind, priority, available_at, updated_at, updated_by,
        attempts, worker_losses, claim_seq
    )
    select
        new.id, $1::uuid, new.lane, new.kind, new.priority,
        -- A delay is cut at the end of the calendar, as `leasehold_core::time::later` cuts it.
        coalesce(
            new.due_at,
            least(
                moment.now + new.delay * interval '1 microsecond',
                timestamptz 'epoch' + interval '253402207200 seconds'
            )
        ),
        moment.now, new.created_by, 0, 0, 0
    from new
    cross join moment
    -- Looked up in a table made once, which a join need not be.
    where case when new.id in (select inserted.id from inserted) then true else false end
)
select moment.now, array(select inserted.id from inserted) from moment
