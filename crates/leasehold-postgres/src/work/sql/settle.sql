-- $1 items, $2 orgs, $3 tokens, $4 transitions by name, $5 delays in microseconds, $6 failure codes,
-- $7 errors or notes, $8 results, $9 how many errors an item keeps. No item twice.
--
-- The rules are those of `rules.rs` in leasehold-core: the item's own row decides whether a retry has an
-- attempt left, a burial beats a cancel, and a cancel beats whatever would queue the item again.
with asked as materialized (
    select a.*
    from unnest(
        $1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::text[]
    ) with ordinality as a (id, org_id, token, transition, delay, code, note, result, entry)
),
held as materialized (
    select c.*, a.transition, a.delay, a.code, a.note, a.result, a.entry
    from asked a
    join {schema}.claims c on c.id = a.id and c.org_id = a.org_id and c.token = a.token
    where a.transition = 'release' or c.lease_expires_at > {schema}.clock()
    order by c.id
    for update of c
),
gone as (
    delete from {schema}.claims c using held h where c.id = h.id
),
-- Completed items are not looked up: nothing of theirs has a say.
decided as materialized (
    select h.*, i.kind, i.priority,
        case
            when h.transition in ('park', 'release') then greatest(h.attempts - 1, 0)
            else h.attempts
        end as attempts_left,
        case
            when h.transition = 'bury' then 'dead'
            when h.transition = 'fail' and h.attempts >= i.max_attempts then 'dead'
            when h.cancel_requested_at is not null then 'cancelled'
            else 'queued'
        end as fate
    from held h
    join {schema}.items i on i.id = h.id
    where h.transition <> 'complete'
),
queued as (
    insert into {schema}.ready (
        id, org_id, lane, kind, priority, available_at, updated_at, updated_by, attempts,
        worker_losses, claim_seq, settled_token, progress_percent, progress_note
    )
    select d.id, d.org_id, d.lane, d.kind, d.priority,
        least(
            {schema}.clock() + d.delay * interval '1 microsecond',
            timestamptz '9999-12-30 22:00:00+00'
        ),
        {schema}.clock(), null, d.attempts_left,
        d.worker_losses, d.claim_seq, d.token, d.progress_percent, d.progress_note
    from decided d
    where d.fate = 'queued'
),
ended as (
    insert into {schema}.ends (
        id, org_id, is_done, failure_code, available_at, updated_at, updated_by, attempts,
        worker_losses, claim_seq, settled_token, cancel_requested_at, progress_percent,
        progress_note, result
    )
    select h.id, h.org_id, true, null, h.available_at, {schema}.clock(),
        null::uuid, h.attempts, h.worker_losses, h.claim_seq, h.token,
        h.cancel_requested_at, h.progress_percent, h.progress_note, h.result::json
    from held h
    where h.transition = 'complete'
    union all
    select d.id, d.org_id, false, case d.fate when 'dead' then d.code else 'cancelled' end,
        d.available_at, {schema}.clock(), null,
        d.attempts_left, d.worker_losses, d.claim_seq, d.token, d.cancel_requested_at,
        d.progress_percent, d.progress_note, null
    from decided d
    where d.fate <> 'queued'
),
noted as (
    insert into {schema}.troubles as t (id, org_id, last_error, errors)
    select d.id, d.org_id, d.note,
        case when d.transition in ('fail', 'bury') then json_build_array(json_build_object(
            'attempt', d.attempts,
            'at', to_char({schema}.clock() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
            'message', d.note
        )) end
    from decided d
    on conflict (id) do update
    set last_error = excluded.last_error,
        errors = case
            when excluded.errors is null or t.errors is null then
                coalesce(excluded.errors, t.errors)
            else (
                select json_agg(e.error order by e.place)
                from (
                    select k.error, k.place
                    from (
                        select o.error, o.place
                        from json_array_elements(t.errors) with ordinality as o (error, place)
                        union all
                        select excluded.errors -> 0, 9223372036854775807
                    ) k
                    order by k.place desc
                    limit $9::bigint
                ) e
            )
        end
)
select h.entry, 'done', null
from held h
where h.transition = 'complete'
union all
select d.entry, d.fate, case when d.fate = 'queued' and d.delay = 0 then d.lane end
from decided d
