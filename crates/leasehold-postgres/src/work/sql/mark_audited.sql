-- $1 org, then a list each: $2 id, $3 claim_seq. In id order, so that two who mark the same
-- do not wait for each other.
with marked as materialized (
    select dead.id
    from unnest($2::uuid[], $3::bigint[]) as mark (id, claim_seq)
    join {schema}.ends as dead on dead.id = mark.id and dead.claim_seq = mark.claim_seq
    where dead.org_id = $1 and not dead.is_done and dead.audited_at is null
    order by dead.id
    for update of dead
)
update {schema}.ends
set audited_at = {schema}.clock(), updated_at = {schema}.clock(), updated_by = null
where id = any (array(select id from marked))
