insert into work_items (id, org_id, created_at, created_by, kind, target_id, idempotency_key, request_id, lane, priority, max_attempts, payload)
select ('00000000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, 'a0000000-0000-0000-0000-000000000001', now(), 'b0000000-0000-0000-0000-000000000001', 'NOOP', '00000000-0000-0000-0000-000000000000', gen_random_uuid(), 'c0000000-0000-0000-0000-000000000001', 'default', 0, 5, '{"n":12}'
from generate_series(1, :rows) i;
insert into ready (lane, kind, priority, available_at, id) select lane, kind, priority, now(), id from work_items order by id;
insert into keys select org_id, idempotency_key, id from work_items;
