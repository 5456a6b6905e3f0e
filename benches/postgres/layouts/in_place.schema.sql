\ir common.sql
create table work_items (
  id uuid not null primary key, org_id uuid not null, created_at timestamptz not null, updated_at timestamptz not null,
  created_by uuid not null, kind text not null, target_id uuid not null, idempotency_key uuid not null,
  request_id uuid not null, traceparent text, lane text not null, priority smallint not null,
  max_attempts int not null, payload json not null,
  status text not null default 'queued', available_at timestamptz not null,
  attempts int not null default 0, claim_seq bigint not null default 0, worker_losses int not null default 0,
  claimed_by text, claim_token uuid, settled_token uuid, lease_expires_at timestamptz,
  failure_code text, last_error text, errors json, result json, cancel_requested_at timestamptz, audited_at timestamptz
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
create unique index work_items_key on work_items (org_id, idempotency_key);
create index work_items_queue on work_items (lane, priority, available_at, id) where status = 'queued';
create index work_items_claimed on work_items (claim_token) where status = 'claimed';
create index work_items_finished on work_items (updated_at) where status in ('done', 'failed');
