select gen_random_uuid() as token \gset
with due as (delete from ready where ctid = any(array(
               select ctid from ready where lane = 'default' and available_at <= now() and kind = any('{NOOP}'::text[])
               order by priority, available_at, id limit :batch for update skip locked))
             returning id, attempts, worker_losses, claim_seq),
     taken as (insert into claims (id, token, org_id, lease_expires_at, claimed_by, attempts, worker_losses, claim_seq)
               select due.id, :token::uuid, w.org_id, now() + interval '1 min', 'worker/1/abc', due.attempts + 1, due.worker_losses, due.claim_seq + 1
               from due join work_items w on w.id = due.id returning id, attempts, claim_seq)
select coalesce(array_agg(t.id), '{}') as ids, count(w.payload) + count(w.org_id) + count(w.request_id) as n from taken t join work_items w on w.id = t.id \gset
with gone as (delete from claims c using unnest(:ids::uuid[]) as h(id)
              where c.id = h.id and c.token = :token::uuid and c.lease_expires_at > now() and c.org_id = 'a0000000-0000-0000-0000-000000000001'
              returning c.*)
insert into ends (id, org_id, ended_at, done, settled_token, attempts, worker_losses, claim_seq)
select id, org_id, now(), true, token, attempts, worker_losses, claim_seq from gone;
