-- Schedules and how far each has come.

CREATE TABLE schedules (
    id         BLOB NOT NULL,
    org_id     BLOB NOT NULL,
    name       TEXT NOT NULL,
    kind       TEXT NOT NULL,
    lane       TEXT NOT NULL,
    payload    TEXT NOT NULL, -- JSON object
    expression TEXT NOT NULL,
    last_tick  INTEGER
) STRICT;

CREATE UNIQUE INDEX schedules_id ON schedules (id);
CREATE UNIQUE INDEX schedules_name ON schedules (org_id, name);
CREATE INDEX schedules_org ON schedules (org_id, id);
