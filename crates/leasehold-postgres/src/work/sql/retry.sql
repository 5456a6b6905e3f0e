-- $1 is the item, $2 its org, $3 the operator. Writes one row if the item had failed.
with failed as (
    delete from {schema}.ends
    where id = $1 and org_id = $2 and not is_done
    returning *
),
forgiven as (
    update {schema}.troubles
    set last_error = null
    from failed
    where troubles.id = failed.id and troubles.org_id = failed.org_id
)
insert into {schema}.ready (
    id, org_id, lane, kind, priority, available_at, updated_at, updated_by,
    attempts, worker_losses, claim_seq, settled_token, progress_percent, progress_note
)
select
    failed.id, failed.org_id, items.lane, items.kind, items.priority,
    {schema}.clock(), {schema}.clock(), $3,
    0, 0, failed.claim_seq, failed.settled_token, failed.progress_percent, failed.progress_note
from failed
join {schema}.items on items.id = failed.id and items.org_id = failed.org_id
