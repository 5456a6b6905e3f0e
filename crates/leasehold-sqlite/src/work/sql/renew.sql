UPDATE work_items INDEXED BY work_items_id
SET lease_expires_at = ?5,
    progress_percent = iif(?6 IS NULL, progress_percent, ?6),
    progress_note = iif(?6 IS NULL, progress_note, ?7),
    updated_at = ?4, updated_by = zeroblob(16)
WHERE id = ?1 AND org_id = ?2 AND status = 'claimed' AND claim_token = ?3
    AND lease_expires_at > ?4
RETURNING cancel_requested_at IS NOT NULL
