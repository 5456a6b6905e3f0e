-- As claim_queues.sql, past the orgs that have their fill of a lane. $15 is how many claims that is. It
-- reads all claims of the lanes, which are as many as the workers can hold.
with recursive held as materialized (
    select exists (select from {schema}.tokens t where t.token = $1::uuid) and $8::bigint = 0 as any
),
crowd as materialized (
    select c.lane, c.org_id, count(*) as claims
    from {schema}.claims c
    where c.lane = any ($3::text[])
    group by c.lane, c.org_id
),
queues as materialized (
    select l.lane, k.kind,
        array(select c.org_id from crowd c where c.lane = l.lane and c.claims >= $15::bigint) as full_orgs
    from (select distinct unnest($3::text[]) as lane) l
    cross join (select distinct unnest($4::text[]) as kind) k
    where not (select h.any from held h)
        and not exists (select from {schema}.paused_lanes p where p.lane = l.lane)
),
