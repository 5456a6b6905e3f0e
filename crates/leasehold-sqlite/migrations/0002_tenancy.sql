-- Orgs and memberships.

CREATE TABLE orgs (
    id         BLOB    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    deleted_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX orgs_live ON orgs (id) WHERE deleted_at IS NULL;

CREATE TABLE memberships (
    org_id  BLOB NOT NULL,
    user_id BLOB NOT NULL,
    role    TEXT NOT NULL, -- viewer, member, admin, owner
    PRIMARY KEY (org_id, user_id)
) STRICT, WITHOUT ROWID;
