-- Who owns the schema need not be one who may make others.
do $$
begin
    if pg_catalog.to_regnamespace('{schema}') is null then
        create schema {schema};
    end if;
end
$$;

-- The steps that the schema has.
create table if not exists {schema}.migrations (
    version    integer     not null primary key,
    name       text        not null,
    digest     bytea       not null,
    applied_at timestamptz not null default now(),
    build_min  integer     not null default 0 -- only builds from this version run on it
);

-- The logins that the fences are raised for, once there are any.
create table if not exists {schema}.logins (
    purpose text  not null primary key, -- runtime, system, enqueuer
    login   text  not null,
    fence   bytea                       -- the digest of what was last done for it
);

-- The store's now: what due, lease and purge go by. A function, so that a test can move it.
create or replace function {schema}.clock() returns timestamptz
    language sql stable parallel safe
    as 'select pg_catalog.now()';

-- The orgs that the transaction may act for, as it has said itself; none unless it has.
create or replace function {schema}.named_orgs() returns uuid[]
    language sql stable parallel safe
    as 'select pg_catalog.string_to_array(
            nullif(pg_catalog.current_setting(''leasehold.orgs'', true), ''''), '',''
        )::pg_catalog.uuid[]';
