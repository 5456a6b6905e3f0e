-- Idempotency markers: one request, one effect.

create table markers (
    org_id        uuid        not null,
    user_id       uuid        not null,
    key           text        not null,
    created_at    timestamptz not null,
    digest        bytea       not null,
    target_id     uuid        not null, -- of the first attempt
    attempt       uuid        not null,
    stage         text        not null, -- pending, released, finished
    began_at      timestamptz not null, -- of the attempt
    answer_status integer,
    answer_body   text,
    primary key (org_id, user_id, key)
);

create index markers_age on markers (created_at);
