-- $1 lowest org, $2 limit. The orgs of owed audit entries are found by one look at the index
-- each, so that an org with many costs no more than one with few.
with recursive owed as (
    (
        select org_id from {schema}.ends
        where org_id >= $1 and not is_done and failure_code not in ('cancelled', 'orphaned')
            and audited_at is null
        order by org_id
        limit 1
    )
    union all
    select next.org_id
    from owed
    cross join lateral (
        select org_id from {schema}.ends
        where org_id > owed.org_id and not is_done
            and failure_code not in ('cancelled', 'orphaned') and audited_at is null
        order by org_id
        limit 1
    ) as next
)
select org_id from {schema}.claims where lease_expires_at <= {schema}.clock() and org_id >= $1
union
(select org_id from owed limit $2)
order by org_id
limit $2
