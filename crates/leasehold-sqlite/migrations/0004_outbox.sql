-- Outbox rows: effects that must happen and wait to be relayed.

CREATE TABLE outbox (
    id          BLOB    NOT NULL,
    org_id      BLOB    NOT NULL,
    created_at  INTEGER NOT NULL,
    kind        TEXT    NOT NULL,
    target_id   BLOB    NOT NULL,
    actor_id    BLOB    NOT NULL,
    request_id  BLOB    NOT NULL,
    traceparent TEXT,
    app         TEXT    NOT NULL,
    attempts    INTEGER NOT NULL DEFAULT 0,
    not_before  INTEGER,          -- set once it was taken
    last_error  TEXT,
    fate        TEXT,             -- done, dead; empty while pending
    ended_at    INTEGER,
    payload     TEXT    NOT NULL  -- JSON object
) STRICT;

CREATE UNIQUE INDEX outbox_id ON outbox (id);
CREATE INDEX outbox_pending ON outbox (id) WHERE ended_at IS NULL;
CREATE INDEX outbox_oldest ON outbox (created_at) WHERE ended_at IS NULL;
CREATE INDEX outbox_ended ON outbox (ended_at) WHERE ended_at IS NOT NULL;
