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

CREATE TABLE sessions (
    id           BLOB    NOT NULL PRIMARY KEY,
    org_id       BLOB    NOT NULL,
    user_id      BLOB    NOT NULL,
    identity_id  BLOB    NOT NULL,
    digest       BLOB    NOT NULL, -- SHA-256 of the secret, which is not kept
    created_at   INTEGER NOT NULL,
    last_seen_at INTEGER NOT NULL, -- moves once a minute at most
    expires_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX sessions_digest ON sessions (digest);
CREATE INDEX sessions_user ON sessions (org_id, user_id);
CREATE INDEX sessions_expiry ON sessions (expires_at);
CREATE INDEX sessions_idle ON sessions (last_seen_at);

CREATE TABLE socket_tickets (
    digest          BLOB    NOT NULL PRIMARY KEY, -- SHA-256 of the secret, which is not kept
    org_id          BLOB    NOT NULL,
    credential_kind TEXT    NOT NULL, -- session, api_key
    credential_id   BLOB    NOT NULL,
    expires_at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX socket_tickets_expiry ON socket_tickets (expires_at);
