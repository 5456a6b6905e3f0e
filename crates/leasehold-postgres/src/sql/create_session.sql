-- $1 id, $2 org, $3 user, $4 identity, $5 digest, $6 microseconds of life
insert into {schema}.sessions (
    id, org_id, user_id, identity_id, digest, created_at, last_seen_at, expires_at
)
values (
    $1, $2, $3, $4, $5, {schema}.clock(), {schema}.clock(),
    least({schema}.clock() + $6::bigint * interval '1 microsecond', timestamptz '9999-12-30 22:00:00Z')
)
on conflict (id) do nothing
