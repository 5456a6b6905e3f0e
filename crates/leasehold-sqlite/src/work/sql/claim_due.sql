SELECT rowid, available_at, id, org_id
FROM work_items INDEXED BY work_items_queue
WHERE status = 'queued' AND lane = ?1 AND kind = ?2 AND priority = ?3
    AND (available_at, id) > (?4, ?5) AND available_at <= ?6
ORDER BY available_at, id
LIMIT ?7
