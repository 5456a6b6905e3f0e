-- As settle.sql, for a batch of nothing but completions, which is what nearly all are: no item's own row has
-- a say in them. $1 items, $2 orgs, $3 tokens, $4 results. No item twice, in the order of the items; looked
-- up one after the other, they are locked in that order. The lists are taken apart side by side, which a
-- function in `from` would do by a table for each.
with gone as (
    delete from {schema}.claims c
    using (
        select unnest($1::uuid[]) as id, unnest($2::uuid[]) as org_id, unnest($3::uuid[]) as token,
            unnest($4::text[]) as result, generate_series(1::bigint, cardinality($1::uuid[])) as entry
    ) a
    where c.id = a.id and c.org_id = a.org_id and c.token = a.token
        and c.lease_expires_at > {schema}.clock()
    returning c.id, c.org_id, c.available_at, c.attempts, c.worker_losses, c.claim_seq, c.token,
        c.cancel_requested_at, c.progress_percent, c.progress_note, a.result, a.entry
),
ended as (
    insert into {schema}.ends (
        id, org_id, is_done, available_at, updated_at, attempts, worker_losses, claim_seq,
        settled_token, cancel_requested_at, progress_percent, progress_note, result
    )
    select g.id, g.org_id, true, g.available_at, {schema}.clock(), g.attempts, g.worker_losses,
        g.claim_seq, g.token,
        g.cancel_requested_at, g.progress_percent, g.progress_note, g.result::json
    from gone g
)
select coalesce(array_agg(g.entry), '{}') from gone g
