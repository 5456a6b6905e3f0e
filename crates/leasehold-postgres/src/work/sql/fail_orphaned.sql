-- $1 item, $2 token, $3 failure code. Whatever has become of the lease.
with held as (
    delete from {schema}.claims where id = $1 and token = $2
    returning *
)
insert into {schema}.ends (
    id, org_id, is_done, failure_code, available_at, updated_at, updated_by, attempts,
    worker_losses, claim_seq, settled_token, cancel_requested_at, progress_percent, progress_note
)
select
    id, org_id, false, $3, available_at, {schema}.clock(), null,
    attempts, worker_losses, claim_seq, settled_token, cancel_requested_at, progress_percent,
    progress_note
from held
