-- $1 org, then a list each: $2 id, $3 kind, $4 target, $5 actor, $6 request, $7 traceparent,
-- $8 app, $9 payload. In id order, so that two batches do not wait for each other.
insert into {schema}.outbox (
    id, org_id, created_at, kind, target_id, actor_id, request_id, traceparent, app, payload
)
select
    id, $1, {schema}.clock(), kind, target_id, actor_id, request_id, traceparent, app, payload::json
from unnest(
    $2::uuid[], $3::text[], $4::uuid[], $5::uuid[], $6::uuid[], $7::text[], $8::text[], $9::text[]
) as row (id, kind, target_id, actor_id, request_id, traceparent, app, payload)
order by id
on conflict do nothing
