-- Part four: what was chosen becomes claims. The numbers of the rows keep a token from claiming twice at
-- once: the second has to wait at the first one's first row, and is refused there. The answer always has a
-- row, since each begins with how many candidates there were.
taken as (
    delete from {schema}.ready r
    where r.ctid = any (array(select place from chosen))
    returning r.*
),
claimed as (
    insert into {schema}.claims (
        id, org_id, lane, token, claimed_by, lease_expires_at, available_at, updated_at, updated_by,
        attempts, worker_losses, claim_seq, settled_token, place
    )
    select t.id, t.org_id, t.lane, $1::uuid, $2::text,
        least(
            {schema}.clock() + $5::bigint * interval '1 microsecond',
            timestamptz '9999-12-30 22:00:00+00'
        ),
        t.available_at, {schema}.clock(), '00000000-0000-0000-0000-000000000000',
        t.attempts + 1, t.worker_losses, t.claim_seq + 1, t.settled_token,
        $8::bigint + row_number() over ()
    from taken t
    returning *
)
select (select max(l.found) from levels l),
    c.id, c.org_id, i.created_at, c.updated_at, i.created_by, c.updated_by, i.kind, i.target_id,
    i.idempotency_key, i.request_id, i.traceparent, c.lane, i.priority, 'claimed', c.available_at,
    c.claimed_by, c.token, c.claim_seq, c.lease_expires_at, c.attempts, i.max_attempts,
    c.worker_losses, null::text, c.cancel_requested_at, null::timestamptz, c.progress_percent,
    c.progress_note, t.last_error, t.errors, null::json, i.payload
from (select) always
left join (
    (select h.* from held h union all select c.* from claimed c) c
    join {schema}.items i on i.id = c.id
    left join {schema}.troubles t on t.id = c.id
) on true
order by i.priority, c.available_at, c.id
