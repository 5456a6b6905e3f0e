UPDATE work_items
SET status = 'claimed', claim_token = ?2, claimed_by = ?3, lease_expires_at = ?4,
    claim_seq = claim_seq + 1, attempts = attempts + 1, updated_at = ?5, updated_by = zeroblob(16),
    progress_percent = NULL, progress_note = NULL
WHERE rowid = ?1 AND status = 'queued'
