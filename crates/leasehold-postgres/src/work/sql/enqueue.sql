-- $1 is the org; then one list per column. No id and no key stands twice in the lists, so that an id finds
-- its row again.
--
-- Of two batches that bring the same keys under ids of their own, one waits for the other at the first key
-- they share. Both going by key, neither then holds what the other waits for.
with moment as materialized (
    select {schema}.clock() as now
),
new as materialized (
    select * from unnest(
        $2::uuid[], $3::timestamptz[], $4::uuid[], $5::text[], $6::uuid[], $7::uuid[], $8::uuid[],
        $9::text[], $10::text[], $11::smallint[], $12::integer[], $13::text[],
        $14::timestamptz[], $15::bigint[]
    ) as new (
        id, created_at, created_by, kind, target_id, idempotency_key, request_id,
        traceparent, lane, priority, max_attempts, payload, due_at, delay
    )
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
