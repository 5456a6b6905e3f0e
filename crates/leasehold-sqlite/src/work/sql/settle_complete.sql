UPDATE work_items INDEXED BY work_items_id
SET status = 'done', result = ?5, claimed_by = NULL, claim_token = NULL, lease_expires_at = NULL,
    settled_token = ?3, updated_at = ?4, updated_by = zeroblob(16)
WHERE id = ?1 AND org_id = ?2 AND status = 'claimed' AND claim_token = ?3
    AND lease_expires_at > ?4
