-- $1 is the item, $2 its org, $3 the operator, $4 the failure code of what is cancelled. Answers a row if
-- the item waited and has ended; if it is held, its holder is asked to stop.
with waited as (
    delete from {schema}.ready
    where id = $1 and org_id = $2
    returning *
),
asked as (
    update {schema}.claims
    set cancel_requested_at = {schema}.clock(), updated_at = {schema}.clock(), updated_by = $3
    where id = $1 and org_id = $2 and cancel_requested_at is null
)
insert into {schema}.ends (
    id, org_id, is_done, failure_code, available_at, updated_at, updated_by, attempts,
    worker_losses, claim_seq, settled_token, cancel_requested_at, progress_percent, progress_note
)
select
    id, org_id, false, $4, available_at, {schema}.clock(), $3, attempts,
    worker_losses, claim_seq, settled_token, {schema}.clock(), progress_percent, progress_note
from waited
returning id
