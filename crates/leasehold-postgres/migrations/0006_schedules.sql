-- Schedules and how far each has come.

create table schedules (
    id            uuid        not null primary key,
    org_id        uuid        not null,
    name          text        not null,
    kind          text        not null,
    lane          text        not null,
    payload       json        not null,
    priority      smallint    not null,
    max_attempts  integer     not null,
    expression    text        not null,
    zone          text        not null,
    starts_at     timestamptz,
    ends_at       timestamptz,
    missed        text        not null, -- skip, once, up-to-N
    overlap       text        not null, -- allow, skip
    jitter        bigint      not null, -- microseconds
    declared_by   text,                 -- null: a person made it
    undeclared_at timestamptz,
    paused_since  timestamptz,
    paused_reason text,
    paused_by     text,
    next_tick     timestamptz,
    last_tick     timestamptz,
    last_item     uuid,
    revision      bigint      not null, -- rises with every write
    unique (org_id, name)
);

create index schedules_org on schedules (org_id, id);

-- What workers look for.
create index schedules_next on schedules (next_tick) where paused_since is null;
