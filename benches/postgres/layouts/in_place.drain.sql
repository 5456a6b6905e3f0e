select gen_random_uuid() as token \gset
with due as (select id from work_items where lane = 'default' and status = 'queued' and available_at <= now() and kind = any('{NOOP}'::text[])
             order by priority, available_at, id limit :batch for update skip locked),
     u as (update work_items w set status = 'claimed', attempts = attempts + 1, claim_seq = claim_seq + 1, claim_token = :token::uuid,
           claimed_by = 'worker/1/abc', lease_expires_at = now() + interval '1 min', updated_at = now()
           from due where w.id = due.id returning w.id, w.org_id, w.kind, w.payload, w.attempts, w.claim_seq, w.created_at, w.request_id)
select coalesce(array_agg(id), '{}') as ids, count(payload) + count(org_id) + count(request_id) as n from u \gset
update work_items w set status = 'done', settled_token = claim_token, claim_token = null, claimed_by = null, lease_expires_at = null, updated_at = now()
from unnest(:ids::uuid[]) as h(id) where w.id = h.id and w.status = 'claimed' and w.claim_token = :token::uuid and w.lease_expires_at > now()
  and w.org_id = 'a0000000-0000-0000-0000-000000000001';
