UPDATE work_items INDEXED BY work_items_id
SET status = iif(attempts < max_attempts AND cancel_requested_at IS NULL, 'queued', 'failed'),
    failure_code = CASE
        WHEN attempts >= max_attempts THEN ?9
        WHEN cancel_requested_at IS NOT NULL THEN 'cancelled'
    END,
    available_at =
        iif(attempts < max_attempts AND cancel_requested_at IS NULL, ?5, available_at),
    audited_at = NULL,
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
    settled_token = ?3, updated_at = ?4, updated_by = zeroblob(16)
WHERE id = ?1 AND org_id = ?2 AND status = 'claimed' AND claim_token = ?3
    AND lease_expires_at > ?4
RETURNING status, attempts >= max_attempts
