-- Part four: what was chosen becomes claims. The token's own row keeps it from claiming twice at once: the
-- second has to wait there for the first, and is refused. Later rounds of a claim find it written. The answer
-- always has a row, since each begins with whether the token holds something already, how many candidates there
-- were, and the last priority if there may be more behind it. It leaves out what the same is true of for every claimed item.
--
-- Only what was claimed before can have troubles.
taken as (
    delete from {schema}.ready r
    where r.ctid = any (array(select place from chosen))
    returning r.id, r.org_id, r.lane, r.available_at, r.attempts, r.worker_losses, r.claim_seq,
        r.settled_token
),
claimed as (
    insert into {schema}.claims (
        id, org_id, token, lease_expires_at, available_at, updated_at, claim_seq, attempts,
        worker_losses, lane, claimed_by, settled_token
    )
    select t.id, t.org_id, $1::uuid,
        least(
            {schema}.clock() + $5::bigint * interval '1 microsecond',
            timestamptz '9999-12-30 22:00:00+00'
        ),
        t.available_at, {schema}.clock(), t.claim_seq + 1, t.attempts + 1, t.worker_losses, t.lane,
        $2::text, t.settled_token
    from taken t
),
once as (
    insert into {schema}.tokens (token, claimed_at)
    select $1::uuid, {schema}.clock()
    where $8::bigint = 0 and exists (select from chosen)
)
select (select h.any from held h), (select max(l.found) from levels l),
    (select l.priority from levels l where l.nth = 64),
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
