-- Params: ?1 rowid, ?2 now, ?3 status, ?4 failure code, ?5 available_at or null, ?6 error, ?7 now as
-- text, ?8 how many errors are kept.
UPDATE work_items
SET status = ?3, failure_code = ?4, available_at = coalesce(?5, available_at),
    audited_at = NULL, worker_losses = worker_losses + 1,
    last_error = ?6,
    errors = json_insert(
        CASE
            WHEN errors IS NULL THEN '[]'
            WHEN json_array_length(errors) < ?8 THEN errors
            ELSE json_remove(errors, '$[0]')
        END,
        '$[#]', json_object('attempt', attempts, 'at', ?7, 'message', ?6)
    ),
    claimed_by = NULL, claim_token = NULL, lease_expires_at = NULL,
    updated_at = ?2, updated_by = zeroblob(16)
WHERE rowid = ?1 AND status = 'claimed' AND lease_expires_at <= ?2
