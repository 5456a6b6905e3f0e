-- Events and audit entries: append-only, numbered without gaps per org and stream.

CREATE TABLE entries (
    org_id      BLOB    NOT NULL,
    stream      TEXT    NOT NULL, -- events, audit
    seq         INTEGER NOT NULL,
    id          BLOB    NOT NULL,
    produced_at INTEGER NOT NULL,
    kind        TEXT    NOT NULL,
    target_id   BLOB    NOT NULL,
    actor_id    BLOB    NOT NULL,
    request_id  BLOB    NOT NULL,
    app         TEXT    NOT NULL,
    payload     TEXT    NOT NULL  -- JSON object
) STRICT;

CREATE UNIQUE INDEX entries_seq ON entries (org_id, stream, seq);
CREATE UNIQUE INDEX entries_id ON entries (org_id, stream, id);

-- The last number given out.
CREATE TABLE entry_cursors (
    org_id BLOB    NOT NULL,
    stream TEXT    NOT NULL,
    last   INTEGER NOT NULL,
    PRIMARY KEY (org_id, stream)
) STRICT, WITHOUT ROWID;
