-- $1 digest, $2 microseconds of idleness, $3 microseconds between two notes
with living as materialized (
    select id, org_id, user_id, identity_id, created_at, last_seen_at, expires_at
    from {schema}.sessions
    where digest = $1 and expires_at > {schema}.clock()
        and last_seen_at > {schema}.clock() - $2::bigint * interval '1 microsecond'
),
noted as (
    update {schema}.sessions session
    set last_seen_at = {schema}.clock()
    from living
    where session.id = living.id
        and session.last_seen_at <= {schema}.clock() - $3::bigint * interval '1 microsecond'
    returning session.id, session.last_seen_at
)
select living.id, org_id, user_id, identity_id, created_at,
    coalesce(noted.last_seen_at, living.last_seen_at), expires_at
from living left join noted on noted.id = living.id
