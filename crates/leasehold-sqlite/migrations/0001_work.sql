-- Work items and paused lanes.
--
-- Ids are 16 bytes, so that comparing them is comparing their values; times are whole microseconds
-- since 1970, UTC, by the store's clock. The view work_items_text shows both as text.

CREATE TABLE work_items (
    id                  BLOB    NOT NULL,
    org_id              BLOB    NOT NULL,
    created_at          INTEGER NOT NULL,
    updated_at          INTEGER NOT NULL,
    created_by          BLOB    NOT NULL,
    updated_by          BLOB    NOT NULL,
    kind                TEXT    NOT NULL,
    target_id           BLOB    NOT NULL,
    idempotency_key     BLOB    NOT NULL,
    request_id          BLOB    NOT NULL,
    traceparent         TEXT,
    lane                TEXT    NOT NULL,
    priority            INTEGER NOT NULL, -- lower goes first
    status              TEXT    NOT NULL, -- queued, claimed, done, failed
    available_at        INTEGER NOT NULL, -- not claimed before this
    claimed_by          TEXT,             -- for people; never a fence
    claim_token         BLOB,             -- the fence; set while claimed
    settled_token       BLOB,             -- the token that settled the row last
    claim_seq           INTEGER NOT NULL DEFAULT 0,
    lease_expires_at    INTEGER,          -- set while claimed
    attempts            INTEGER NOT NULL DEFAULT 0,
    max_attempts        INTEGER NOT NULL,
    worker_losses       INTEGER NOT NULL DEFAULT 0,
    failure_code        TEXT,             -- why it is failed
    cancel_requested_at INTEGER,
    audited_at          INTEGER,          -- empty on a dead letter: its audit entry is owed
    progress_percent    INTEGER,
    progress_note       TEXT,
    last_error          TEXT,
    errors              TEXT,             -- JSON list, newest last
    result              TEXT,             -- JSON object
    payload             TEXT    NOT NULL  -- JSON object
) STRICT;

CREATE UNIQUE INDEX work_items_id ON work_items (id);
CREATE UNIQUE INDEX work_items_key ON work_items (org_id, idempotency_key);

-- What a claim looks for, in the order in which it takes it. The org is there for the tenant cap.
CREATE INDEX work_items_queue ON work_items (lane, kind, priority, available_at, id, org_id)
    WHERE status = 'queued';

-- The claims under way: few, found by token, and read through by the sweep.
CREATE INDEX work_items_claimed ON work_items (claim_token) WHERE status = 'claimed';

-- What the purge deletes, oldest first.
CREATE INDEX work_items_finished ON work_items (updated_at) WHERE status IN ('done', 'failed');

-- Lists: of everything, and of what failed among much that is done. Lists of what is queued read the
-- queue's index, which spares every item one entry more.
CREATE INDEX work_items_org ON work_items (org_id, id);
CREATE INDEX work_items_failed ON work_items (org_id, id, failure_code) WHERE status = 'failed';

-- Dead letters whose audit entry is owed.
CREATE INDEX work_items_unaudited ON work_items (org_id, id)
    WHERE status = 'failed' AND failure_code NOT IN ('cancelled', 'orphaned')
        AND audited_at IS NULL;

CREATE TABLE paused_lanes (
    lane      TEXT    NOT NULL PRIMARY KEY,
    reason    TEXT    NOT NULL,
    paused_by TEXT    NOT NULL, -- for people
    since     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- For people: the same rows with ids in hexadecimal and times in UTC.
CREATE VIEW work_items_text AS
SELECT
    lower(hex(id)) AS id,
    lower(hex(org_id)) AS org_id,
    lane, kind, priority, status, attempts, max_attempts,
    strftime('%Y-%m-%d %H:%M:%f', created_at / 1e6, 'unixepoch') AS created_at,
    strftime('%Y-%m-%d %H:%M:%f', updated_at / 1e6, 'unixepoch') AS updated_at,
    strftime('%Y-%m-%d %H:%M:%f', available_at / 1e6, 'unixepoch') AS available_at,
    strftime('%Y-%m-%d %H:%M:%f', lease_expires_at / 1e6, 'unixepoch') AS lease_expires_at,
    claimed_by, claim_seq, worker_losses, failure_code, last_error,
    strftime('%Y-%m-%d %H:%M:%f', cancel_requested_at / 1e6, 'unixepoch') AS cancel_requested_at,
    strftime('%Y-%m-%d %H:%M:%f', audited_at / 1e6, 'unixepoch') AS audited_at,
    progress_percent, progress_note, errors, result, payload,
    lower(hex(idempotency_key)) AS idempotency_key,
    lower(hex(target_id)) AS target_id,
    lower(hex(created_by)) AS created_by,
    lower(hex(updated_by)) AS updated_by,
    lower(hex(request_id)) AS request_id,
    traceparent
FROM work_items;
