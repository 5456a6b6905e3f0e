-- $1 is where counts stop. The (lane, kind, priority) that hold ready rows are found by one look at the
-- index each. Counts are ordered, and their limit is none that the planner knows: it then reads an index
-- from its end instead of a whole table or a whole group.
with recursive moment as materialized (
    select {schema}.clock() as now
),
groups as (
    (
        select lane, kind, priority from {schema}.ready
        order by lane, kind, priority
        limit 1
    )
    union all
    select next.lane, next.kind, next.priority
    from groups
    cross join lateral (
        select lane, kind, priority from {schema}.ready
        where (lane, kind, priority) > (groups.lane, groups.kind, groups.priority)
        order by lane, kind, priority
        limit 1
    ) as next
),
held as materialized (
    select lane, count(*) as claimed,
        count(*) filter (where lease_expires_at <= (select now from moment)) as expired
    from {schema}.claims
    group by lane
),
lanes as (
    select lane from groups
    union
    select lane from held
)
select
    moment.now,
    (
        select count(*) from (
            select from {schema}.ends
            where not is_done and failure_code not in ('cancelled', 'orphaned')
            order by org_id, id
            limit (select $1::bigint)
        ) as dead
    ),
    least((select coalesce(sum(expired), 0)::bigint from held), $1::bigint),
    lanes.lane,
    (
        select count(*) from (
            select from groups
            cross join lateral (
                select from {schema}.ready as item
                where item.lane = groups.lane and item.kind = groups.kind
                    and item.priority = groups.priority and item.available_at <= moment.now
                order by item.available_at
                limit (select $1::bigint)
            ) as item
            where groups.lane = lanes.lane
            limit (select $1::bigint)
        ) as ready
    ),
    (
        select count(*) from (
            select from groups
            cross join lateral (
                select from {schema}.ready as item
                where item.lane = groups.lane and item.kind = groups.kind
                    and item.priority = groups.priority and item.available_at > moment.now
                order by item.available_at
                limit (select $1::bigint)
            ) as item
            where groups.lane = lanes.lane
            limit (select $1::bigint)
        ) as delayed
    ),
    least(coalesce(held.claimed, 0), $1::bigint),
    (
        select min(oldest.available_at)
        from groups
        cross join lateral (
            select available_at from {schema}.ready as item
            where item.lane = groups.lane and item.kind = groups.kind
                and item.priority = groups.priority
            order by item.available_at
            limit 1
        ) as oldest
        where groups.lane = lanes.lane
    )
from moment
left join lanes on true
left join held on held.lane = lanes.lane
order by lanes.lane
