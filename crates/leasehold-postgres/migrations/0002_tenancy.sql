-- Orgs and memberships.

create table orgs (
    id         uuid        not null primary key,
    name       text        not null,
    created_at timestamptz not null,
    deleted_at timestamptz
);

create table memberships (
    org_id  uuid not null,
    user_id uuid not null,
    role    text not null, -- viewer, member, admin, owner
    primary key (org_id, user_id)
);

create table sessions (
    id           uuid        not null primary key,
    org_id       uuid        not null,
    user_id      uuid        not null,
    identity_id  uuid        not null,
    digest       bytea       not null, -- SHA-256 of the secret, which is not kept
    created_at   timestamptz not null,
    last_seen_at timestamptz not null, -- moves once a minute at most
    expires_at   timestamptz not null
);

create unique index sessions_digest on sessions (digest);
create index sessions_user on sessions (org_id, user_id);
create index sessions_expiry on sessions (expires_at);
create index sessions_idle on sessions (last_seen_at);

create table socket_tickets (
    digest          bytea       not null primary key, -- SHA-256 of the secret, which is not kept
    org_id          uuid        not null,
    credential_kind text        not null, -- session, api_key
    credential_id   uuid        not null,
    expires_at      timestamptz not null
);

create index socket_tickets_expiry on socket_tickets (expires_at);
