-- Schedules and how far each has come.

create table schedules (
    id         uuid not null primary key,
    org_id     uuid not null,
    name       text not null,
    kind       text not null,
    lane       text not null,
    payload    json not null,
    expression text not null,
    last_tick  timestamptz,
    unique (org_id, name)
);

create index schedules_org on schedules (org_id, id);
