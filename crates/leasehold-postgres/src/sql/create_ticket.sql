-- $1 digest, $2 org, $3 kind of credential, $4 its id, $5 microseconds of life
insert into {schema}.socket_tickets (digest, org_id, credential_kind, credential_id, expires_at)
values (
    $1, $2, $3, $4,
    least({schema}.clock() + $5::bigint * interval '1 microsecond', timestamptz '9999-12-30 22:00:00Z')
)
