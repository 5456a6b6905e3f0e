-- As claim_take.sql, but of an org's candidates in a lane only as many as it has room for.
open as materialized (
    select r.ctid as place, r.lane, r.org_id, r.priority, r.available_at, r.id
    from {schema}.ready r
    where r.ctid = any (array(select unnest(l.places) from levels l))
    for update skip locked
),
numbered as materialized (
    select o.*, row_number() over (
        partition by o.lane, o.org_id order by o.priority, o.available_at, o.id
    ) as nth
    from open o
),
chosen as materialized (
    select n.place
    from numbered n
    left join crowd c on c.lane = n.lane and c.org_id = n.org_id
    where n.nth + coalesce(c.claims, 0) <= $15::bigint
    order by n.priority, n.available_at, n.id
    limit $6::bigint
),
