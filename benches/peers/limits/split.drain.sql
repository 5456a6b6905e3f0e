-- Ends a batch and claims the next in one commit. The scan of the ready table begins at the last claimed
-- key, so that it does not walk over dead rows.
begin;
delete from split_items where id = any(:ids::bigint[]);
delete from split_leases where token = :lease::bigint;
with claimed as (
  delete from split_ready where ctid = any(array(
    select ctid from split_ready
    where lane = 1 and available_at <= now()
      and (priority, available_at, id) >= (:priority::smallint, :available_at::timestamptz, :id::bigint)
    order by priority, available_at, id limit :batch for update skip locked))
  returning id, priority, available_at
), leased as (
  insert into split_leases (ids, worker, lease_until)
  select array_agg(id), :client_id, now() + interval '1 min' from claimed
  returning token, ids
)
select leased.token as lease, coalesce(leased.ids, '{}') as ids,
  (select count(payload) from split_items where id = any(leased.ids)) as items,
  (select coalesce(max(id), :id::bigint) from claimed) as id,
  (select coalesce(max(available_at), :available_at::timestamptz) from claimed) as available_at,
  (select coalesce(max(priority), :priority::smallint) from claimed) as priority
from leased \gset
commit;
