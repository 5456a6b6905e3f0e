-- $1 org, $2 stream, $3 id, $4 kind, $5 target, $6 actor, $7 request, $8 app, $9 payload.
-- The cursor's row is the lock: who moves it holds it until the entry is committed, so that numbers
-- have no gap and become visible in order. An id that is there leaves the cursor alone.
with there as materialized (
    select seq from {schema}.entries where org_id = $1 and stream = $2 and id = $3
),
moved as (
    insert into {schema}.entry_cursors as cursor (org_id, stream, last)
    select $1, $2, 1 where not exists (select from there)
    on conflict (org_id, stream) do update set last = cursor.last + 1
    returning last
),
written as (
    insert into {schema}.entries (
        org_id, stream, seq, id, produced_at, kind, target_id, actor_id, request_id, app, payload
    )
    select $1, $2, moved.last, $3, {schema}.clock(), $4, $5, $6, $7, $8, $9::text::json
    from moved
    returning seq
)
select seq from there
union all
select seq from written
