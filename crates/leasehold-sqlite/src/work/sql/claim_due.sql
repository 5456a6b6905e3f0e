SELECT rowid,
    id, org_id, created_at, updated_at, created_by, updated_by, kind, target_id,
    idempotency_key, request_id, traceparent, lane, priority, status, available_at,
    claimed_by, claim_token, claim_seq, lease_expires_at, attempts, max_attempts,
    worker_losses, failure_code, cancel_requested_at, audited_at, progress_percent,
    progress_note, last_error, errors, result, payload
FROM work_items INDEXED BY work_items_queue
WHERE status = 'queued' AND lane = ?1 AND kind = ?2 AND priority = ?3
    AND (available_at, id) > (?4, ?5) AND available_at <= ?6
ORDER BY available_at, id
LIMIT ?7
