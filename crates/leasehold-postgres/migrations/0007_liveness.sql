-- The last beat of every worker, and until when it counts.

create table worker_beats (
    worker     text        not null primary key,
    lanes      text[]      not null,
    kinds      text[]      not null,
    capacity   integer     not null,
    running    integer     not null,
    draining   boolean     not null,
    started_at timestamptz not null,
    beat_at    timestamptz not null,
    expires_at timestamptz not null
);
