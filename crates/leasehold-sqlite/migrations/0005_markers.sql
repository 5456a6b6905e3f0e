-- Idempotency markers: one request, one effect.

CREATE TABLE markers (
    org_id        BLOB    NOT NULL,
    user_id       BLOB    NOT NULL,
    key           TEXT    NOT NULL,
    created_at    INTEGER NOT NULL,
    digest        BLOB    NOT NULL,
    target_id     BLOB    NOT NULL, -- of the first attempt
    attempt       BLOB    NOT NULL,
    stage         TEXT    NOT NULL, -- pending, released, finished
    began_at      INTEGER NOT NULL, -- of the attempt
    answer_status INTEGER,
    answer_body   TEXT
) STRICT;

CREATE UNIQUE INDEX markers_scope ON markers (org_id, user_id, key);
CREATE INDEX markers_age ON markers (created_at);
