-- $1 limit, $2 grace in microseconds, $3 the microseconds to wait after the first attempt, the second, and
-- so on. Rows that another relay is taking are skipped.
with due as materialized (
    select id from {schema}.outbox
    where ended_at is null
        and created_at <= {schema}.clock() - $2::bigint * interval '1 microsecond'
        and (not_before is null or not_before <= {schema}.clock())
    order by id
    limit $1
    for update skip locked
),
taken as (
    update {schema}.outbox as row
    set attempts = least(row.attempts, 2147483646) + 1,
        not_before = least(
            {schema}.clock()
                + ($3::bigint[])[least(row.attempts, cardinality($3) - 1) + 1] * interval '1 microsecond',
            timestamptz '9999-12-30 22:00:00+00'
        )
    where row.id = any (array(select id from due))
    returning row.*
)
select
    org_id, created_at, attempts, id, kind, target_id, actor_id, request_id, traceparent, app, payload
from taken
order by id
