INSERT INTO work_items (
    id, org_id, created_at, updated_at, created_by, updated_by, kind, target_id, idempotency_key,
    request_id, traceparent, lane, priority, status, available_at, max_attempts, payload
) VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, 'queued', ?13, ?14, ?15)
ON CONFLICT DO NOTHING
