-- $1 items, $2 orgs, $3 tokens, $4 leases in microseconds, $5 and $6 progress or nulls. No item twice.
with asked as materialized (
    select a.*
    from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[], $5::smallint[], $6::text[])
        with ordinality as a (id, org_id, token, lease, percent, note, entry)
),
held as materialized (
    select c.id, a.lease, a.percent, a.note, a.entry
    from asked a
    join {schema}.claims c on c.id = a.id and c.org_id = a.org_id and c.token = a.token
    where c.lease_expires_at > {schema}.clock()
    order by c.id
    for update of c
)
update {schema}.claims c
set lease_expires_at = least(
        {schema}.clock() + h.lease * interval '1 microsecond',
        timestamptz '9999-12-30 22:00:00+00'
    ),
    progress_percent = coalesce(h.percent, c.progress_percent),
    progress_note = case when h.percent is null then c.progress_note else h.note end,
    updated_at = {schema}.clock(),
    updated_by = null
from held h
where c.id = h.id
returning h.entry, c.cancel_requested_at is not null
