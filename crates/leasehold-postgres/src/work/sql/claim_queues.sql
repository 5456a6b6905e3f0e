-- The claim, part one of four: which queues it looks at; none if the token has claimed something already.
--
-- $1 token, $2 worker, $3 lanes, $4 kinds, $5 lease in microseconds, $6 how many at most, $7 how many
-- candidates at least, $8 how many earlier rounds of this claim have taken, $9 to $13 floors: lanes, kinds,
-- priorities, times and ids, from which on a queue is looked at. $14 the priority above which it looks.
with recursive held as materialized (
    select exists (select from {schema}.tokens t where t.token = $1::uuid) and $8::bigint = 0 as any
),
queues as materialized (
    select l.lane, k.kind, '{}'::uuid[] as full_orgs
    from (select distinct unnest($3::text[]) as lane) l
    cross join (select distinct unnest($4::text[]) as kind) k
    where not (select h.any from held h)
        and not exists (select from {schema}.paused_lanes p where p.lane = l.lane)
),
