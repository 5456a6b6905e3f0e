-- $1 microseconds of retention, $2 limit. Oldest first; what somebody else holds is left for
-- the next time. Answers as its count the items deleted.
--
-- With them go tokens that hold nothing: $3 at most, of claims of which no round can still be under way, which
-- is after $4 microseconds.
with old as materialized (
    select id from {schema}.ends
    where updated_at <= {schema}.clock() - $1::bigint * interval '1 microsecond'
        and (is_done or audited_at is not null or failure_code in ('cancelled', 'orphaned'))
    order by updated_at
    limit $2
    for update skip locked
),
ended as (
    delete from {schema}.ends where id = any (array(select id from old))
),
idle as materialized (
    select t.token from {schema}.tokens t
    where t.claimed_at <= {schema}.clock() - $4::bigint * interval '1 microsecond'
        and t.token not in (select c.token from {schema}.claims c)
    limit $3
    for update skip locked
),
forgotten as (
    delete from {schema}.tokens where token = any (array(select token from idle))
),
recorded as (
    delete from {schema}.troubles where id = any (array(select id from old))
)
delete from {schema}.items where id = any (array(select id from old))
