-- The last beat of every worker, and until when it counts.

CREATE TABLE worker_beats (
    worker     TEXT    NOT NULL PRIMARY KEY,
    lanes      TEXT    NOT NULL, -- JSON list
    kinds      TEXT    NOT NULL, -- JSON list
    capacity   INTEGER NOT NULL,
    running    INTEGER NOT NULL,
    draining   INTEGER NOT NULL, -- 0, 1
    started_at INTEGER NOT NULL,
    beat_at    INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
