-- $1 worker, $2 lanes, $3 kinds, $4 capacity, $5 running, $6 draining, $7 started_at,
-- $8 microseconds to live.
-- Beats that another worker is deleting are skipped: two that wait for each other would both fail.
with over as materialized (
    select worker from {schema}.worker_beats
    where expires_at <= {schema}.clock() and worker <> $1
    for update skip locked
),
gone as (
    delete from {schema}.worker_beats where worker in (select worker from over)
)
insert into {schema}.worker_beats (
    worker, lanes, kinds, capacity, running, draining, started_at, beat_at, expires_at
)
values (
    $1, $2, $3, $4, $5, $6, $7, {schema}.clock(),
    least(
        {schema}.clock() + $8::bigint * interval '1 microsecond',
        timestamptz '9999-12-30 22:00:00+00'
    )
)
on conflict (worker) do update set
    lanes = excluded.lanes, kinds = excluded.kinds, capacity = excluded.capacity,
    running = excluded.running, draining = excluded.draining, started_at = excluded.started_at,
    beat_at = excluded.beat_at, expires_at = excluded.expires_at
