-- Outbox rows: effects that must happen and wait to be relayed.

create table outbox (
    id          uuid        not null primary key,
    org_id      uuid        not null,
    created_at  timestamptz not null,
    kind        text        not null,
    target_id   uuid        not null,
    actor_id    uuid        not null,
    request_id  uuid        not null,
    traceparent text,
    app         text        not null,
    attempts    integer     not null default 0,
    not_before  timestamptz,          -- set once it was taken
    last_error  text,
    fate        text,                 -- done, dead; empty while pending
    ended_at    timestamptz,
    payload     json        not null
);

create index outbox_pending on outbox (id) where ended_at is null;
create index outbox_oldest on outbox (created_at) where ended_at is null;
create index outbox_ended on outbox (ended_at) where ended_at is not null;
