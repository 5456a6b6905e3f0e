-- The split layout without fences: no uuid, no token on an item, no org, no idempotency key, no retention.
create table split_items (
  id bigint generated always as identity primary key,
  lane smallint not null default 1,
  attempt smallint not null default 0,
  payload bytea not null default '\x7b22696422203a2031327d'
);
create table split_ready (
  lane smallint not null default 1,
  priority smallint not null default 0,
  available_at timestamptz not null default now(),
  id bigint not null
) with (autovacuum_vacuum_scale_factor = 0.02);
create index split_ready_order on split_ready (lane, priority, available_at, id);
create table split_leases (
  token bigint generated always as identity primary key,
  worker bigint,
  ids bigint[],
  lease_until timestamptz
);
