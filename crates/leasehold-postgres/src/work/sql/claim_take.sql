-- Part three: of the candidates, the first that no other claim has locked are taken. The sort is below
-- the lock and the limit above it, so that no row is locked which is not taken.
chosen as materialized (
    select r.ctid as place
    from {schema}.ready r
    where r.ctid = any (array(select unnest(l.places) from levels l))
    order by r.priority, r.available_at, r.id
    limit $6::bigint
    for update skip locked
),
