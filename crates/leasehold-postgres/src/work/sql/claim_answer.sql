-- Part four: what was chosen becomes claims. The numbers of the rows keep a token from claiming twice at
-- once: the second has to wait at the first one's first row, and is refused there. The answer always has a
-- row, since each begins with whether the token holds something already and how many candidates there were.
-- It leaves out what the same is true of for every claimed item.
--
-- Only what was claimed before can have troubles.
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
)
select (select h.any from held h), (select max(l.found) from levels l),
    {schema}.clock(),
    least(
        {schema}.clock() + $5::bigint * interval '1 microsecond',
        timestamptz '9999-12-30 22:00:00+00'
    ),
    t.id, t.org_id, i.created_at, i.created_by, i.kind, i.target_id, i.idempotency_key, i.request_id,
    i.traceparent, i.lane, i.priority, t.available_at, t.claim_seq + 1, t.attempts + 1, i.max_attempts,
    t.worker_losses, w.last_error, w.errors, i.payload
from (select) always
left join (
    taken t
    join {schema}.items i on i.id = t.id
    left join lateral (
        select e.last_error, e.errors
        from {schema}.troubles e
        where e.id = t.id and t.claim_seq > 0
        limit 1
    ) w on true
) on true
