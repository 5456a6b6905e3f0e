-- Part two: the candidates, one priority after the other and lowest first, until there are enough, or until
-- so many priorities were looked at that the next round has to go on from there. Of a priority, `heads` finds where each queue's waiting items begin, and `due` merges the due ones from there.
-- So items that are not due, and items of other queues, are not read however many there are.
--
-- Where a queue has a floor in a priority, its items begin there, and what was claimed below it is not read
-- over again, which the index keeps until a vacuum takes it away.
--
-- Two things are there for the planner. The limit around the parameter, which is never higher, tells it how
-- little is read; otherwise it takes the statement for a long one, and compiles it first. And a case has no
-- statistics: by those of the orgs it would expect that nothing is left, and sort a whole queue.
floors as materialized (
    select f.*
    from unnest($9::text[], $10::text[], $11::smallint[], $12::timestamptz[], $13::uuid[])
        as f (lane, kind, priority, available_at, id)
),
levels (priority, nth, found, places) as (
    select $14::integer, 0, 0::bigint, '{}'::tid[]
    union all
    select level.priority, l.nth + 1, l.found + cardinality(level.places), level.places
    from levels l
    cross join lateral (
        with heads as materialized (
            select q.lane, q.kind, q.full_orgs, h.priority, h.available_at, h.id
            from queues q
            left join lateral (
                select f.priority, f.available_at, f.id
                from floors f
                where f.lane = q.lane and f.kind = q.kind and f.priority > l.priority
                order by f.priority
                limit 1
            ) floor on true
            cross join lateral (
                select e.priority, e.available_at, e.id
                from (
                    (
                        select r.priority, r.available_at, r.id
                        from {schema}.ready r
                        where r.lane = q.lane and r.kind = q.kind and r.priority > l.priority
                            and r.priority < coalesce(floor.priority, 32768)
                        order by r.priority, r.available_at, r.id
                        limit 1
                    )
                    union all
                    select floor.priority, floor.available_at, floor.id
                    where floor.priority is not null
                ) e
                order by e.priority
                limit 1
            ) h
        ),
        lowest as materialized (
            select min(h.priority)::integer as priority from heads h
        ),
        due as materialized (
            select d.place
            from heads h
            cross join lateral (
                select o.place, o.available_at, o.id
                from (
                    select r.ctid as place, r.available_at, r.id
                    from {schema}.ready r
                    where r.lane = h.lane and r.kind = h.kind and r.priority = h.priority
                        and (r.available_at, r.id) >= (h.available_at, h.id)
                        and r.available_at <= {schema}.clock()
                        and case when r.org_id = any (h.full_orgs) then false else true end
                    order by r.available_at, r.id
                    limit $7::bigint
                ) o
                limit 4096
            ) d
            where h.priority = (select priority from lowest)
            order by d.available_at, d.id
            limit $7::bigint
        )
        select (select priority from lowest) as priority, array(select place from due) as places
    ) level
    where l.found < $7::bigint and l.nth < 64 and level.priority is not null
),
