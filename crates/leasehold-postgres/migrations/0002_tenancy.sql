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
