\ir common.sql
create table work_items (
  id uuid not null primary key, org_id uuid not null, created_at timestamptz not null,
  created_by uuid not null, kind text not null, target_id uuid not null, idempotency_key uuid not null,
  request_id uuid not null, traceparent text, lane text not null, priority smallint not null,
  max_attempts int not null, payload json not null
);
create unique index work_items_key on work_items (org_id, idempotency_key);
create table ready (
  lane text not null, kind text not null, priority smallint not null, available_at timestamptz not null, id uuid not null,
  attempts int not null default 0, worker_losses int not null default 0, claim_seq bigint not null default 0
) with (autovacuum_vacuum_scale_factor = 0.02);
create index ready_order on ready (lane, priority, available_at, id);
create table claims (
  id uuid not null primary key, token uuid not null, org_id uuid not null, lease_expires_at timestamptz not null,
  claimed_by text not null, attempts int not null, worker_losses int not null, claim_seq bigint not null,
  cancel_requested_at timestamptz, progress_percent smallint, progress_note text
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
create table ends (
  id uuid not null primary key, org_id uuid not null, ended_at timestamptz not null, done boolean not null,
  settled_token uuid not null, attempts int not null, worker_losses int not null, claim_seq bigint not null,
  failure_code text, result json, audited_at timestamptz
);
create index ends_ended on ends using brin (ended_at);
create table failures (id uuid primary key, last_error text, errors json);
