-- Events and audit entries: append-only, numbered without gaps per org and stream.

create table entries (
    org_id      uuid        not null,
    stream      text        not null, -- events, audit
    seq         bigint      not null,
    id          uuid        not null,
    produced_at timestamptz not null,
    kind        text        not null,
    target_id   uuid        not null,
    actor_id    uuid        not null,
    request_id  uuid        not null,
    app         text        not null,
    payload     json        not null,
    primary key (org_id, stream, seq)
);

create unique index entries_id on entries (org_id, stream, id);

-- The last number given out.
create table entry_cursors (
    org_id uuid   not null,
    stream text   not null,
    last   bigint not null,
    primary key (org_id, stream)
);
