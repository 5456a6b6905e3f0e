-- Ends the claims of an org whose lease is over, lowest id first. $1 org, $2 limit, $3 whether
-- the org is gone, $4 nanoseconds between one recovered item and the next, $5 error, $6 how many errors
-- an item keeps.
with moment as materialized (
    select {schema}.clock() as now
),
stale as materialized (
    select id from {schema}.claims
    where org_id = $1 and lease_expires_at <= (select now from moment)
    order by id
    limit $2
    for update skip locked
),
taken as (
    delete from {schema}.claims where id = any (array(select id from stale))
    returning *
),
judged as (
    -- leasehold_core::rules::requeue, unless the org is gone. No code: queued again.
    select taken.*, item.kind, item.priority,
        case
            when $3 then 'orphaned'
            when taken.cancel_requested_at is not null then 'cancelled'
            when taken.attempts >= item.max_attempts then 'lease_expired'
        end as code
    from taken
    join {schema}.items as item on item.id = taken.id
),
moved as materialized (
    -- leasehold_core::rules::stagger, by the position among those that are queued again.
    select judged.*, moment.now,
        case
            when code is not null then available_at
            else least(
                moment.now + interval '1 microsecond'
                    * ($4::bigint * (row_number() over (partition by code order by id) - 1) / 1000),
                timestamptz '9999-12-30 22:00:00+00'
            )
        end as due_at
    from judged, moment
),
queued as (
    insert into {schema}.ready (
        id, org_id, lane, kind, priority, available_at, updated_at, updated_by, attempts,
        worker_losses, claim_seq, settled_token, progress_percent, progress_note
    )
    select
        id, org_id, lane, kind, priority, due_at, now, null,
        attempts, worker_losses + 1, claim_seq, settled_token, progress_percent, progress_note
    from moved
    where code is null
),
ended as (
    insert into {schema}.ends (
        id, org_id, is_done, failure_code, available_at, updated_at, updated_by, attempts,
        worker_losses, claim_seq, settled_token, cancel_requested_at, progress_percent, progress_note
    )
    select
        id, org_id, false, code, due_at, now, null, attempts,
        worker_losses + 1, claim_seq, settled_token, cancel_requested_at, progress_percent,
        progress_note
    from moved
    where code is not null
),
recorded as (
    insert into {schema}.troubles as trouble (id, org_id, last_error, errors)
    select
        id, org_id, $5,
        json_build_array(json_build_object(
            'attempt', attempts,
            'at', to_char(now at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
            'message', $5::text
        ))
    from moved
    on conflict (id) do update set
        last_error = excluded.last_error,
        errors = (
            select json_agg(kept.error order by kept.place)
            from (
                select error, place
                from json_array_elements(coalesce(trouble.errors, '[]'))
                    with ordinality as earlier (error, place)
                union all
                select excluded.errors -> 0, 9223372036854775807
                order by place desc
                limit $6
            ) as kept
        )
    returning id, last_error, errors
)
select
    moved.code, moved.due_at <= moved.now, moved.lane,
    item.id, item.org_id, item.created_at, moved.now, item.created_by,
    '00000000-0000-0000-0000-000000000000'::uuid, item.kind, item.target_id, item.idempotency_key,
    item.request_id, item.traceparent, item.lane, item.priority, 'failed', moved.due_at,
    null::text, null::uuid, moved.claim_seq, null::timestamptz, moved.attempts, item.max_attempts,
    moved.worker_losses + 1, moved.code, moved.cancel_requested_at, null::timestamptz,
    moved.progress_percent, moved.progress_note, recorded.last_error, recorded.errors, null::json,
    item.payload
from moved
left join recorded on recorded.id = moved.id
left join {schema}.items as item on item.id = moved.id and moved.code = 'lease_expired'
order by moved.id
