-- $1 org, $2 user, $3 key, $4 digest, $5 target, $6 attempt, $7 microseconds of lease.
-- The target of the first attempt stays.
insert into {schema}.markers as marker (
    org_id, user_id, key, created_at, digest, target_id, attempt, stage, began_at
)
values ($1, $2, $3, {schema}.clock(), $4, $5, $6, 'pending', {schema}.clock())
on conflict (org_id, user_id, key) do update
set attempt = excluded.attempt, stage = 'pending', began_at = excluded.began_at
where marker.digest = excluded.digest
    and (marker.stage = 'released'
        or (marker.stage = 'pending'
            and (marker.attempt = excluded.attempt
                or marker.began_at + $7::bigint * interval '1 microsecond' < excluded.began_at)))
returning target_id
