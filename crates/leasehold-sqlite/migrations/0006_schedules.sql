-- Schedules and how far each has come.

CREATE TABLE schedules (
    id            BLOB    NOT NULL,
    org_id        BLOB    NOT NULL,
    name          TEXT    NOT NULL,
    kind          TEXT    NOT NULL,
    lane          TEXT    NOT NULL,
    payload       TEXT    NOT NULL, -- JSON object
    priority      INTEGER NOT NULL,
    max_attempts  INTEGER NOT NULL,
    expression    TEXT    NOT NULL,
    zone          TEXT    NOT NULL,
    starts_at     INTEGER,
    ends_at       INTEGER,
    missed        TEXT    NOT NULL, -- skip, once, up-to-N
    overlap       TEXT    NOT NULL, -- allow, skip
    jitter        INTEGER NOT NULL, -- microseconds
    declared_by   TEXT,             -- empty: a person made it
    undeclared_at INTEGER,
    paused_since  INTEGER,
    paused_reason TEXT,
    paused_by     TEXT,
    next_tick     INTEGER,
    last_tick     INTEGER,
    last_item     BLOB,
    revision      INTEGER NOT NULL  -- rises with every write
) STRICT;

CREATE UNIQUE INDEX schedules_id ON schedules (id);
CREATE UNIQUE INDEX schedules_name ON schedules (org_id, name);
CREATE INDEX schedules_org ON schedules (org_id, id);

-- What workers look for.
CREATE INDEX schedules_next ON schedules (next_tick) WHERE paused_since IS NULL;
