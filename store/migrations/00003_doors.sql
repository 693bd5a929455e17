-- Windows and enrolment tokens, two more doors, and what a window must
-- remember of a machine: that it was disabled once.

-- +goose Up
CREATE TABLE windows (
    kind      text PRIMARY KEY CHECK (kind IN ('auto-approve', 'enrollment')),
    opened_by text NOT NULL,
    opened_at bigint NOT NULL,
    closes_at bigint NOT NULL,
    slots     bigint,
    taken     bigint NOT NULL,
    ended     text NOT NULL CHECK (ended IN ('', 'closed', 'expired', 'used_up')),
    ended_at  bigint,
    seq       bigint NOT NULL,
    CHECK ((ended = '') = (ended_at IS NULL)),
    CHECK (slots IS NULL OR taken <= slots)
);

CREATE TABLE enrolment_tokens (
    id          text PRIMARY KEY,
    secret_hash bytea NOT NULL,
    comment     text NOT NULL,
    as_node     text NOT NULL,
    created_at  bigint NOT NULL,
    created_by  text NOT NULL,
    expires_at  bigint NOT NULL,
    used_at     bigint,
    used_by     text NOT NULL,
    nonce_hash  bytea,
    key_id      text NOT NULL,
    revoked_at  bigint,
    revoked_by  text NOT NULL,
    CHECK ((used_at IS NULL) = (used_by = '')),
    CHECK ((revoked_at IS NULL) = (revoked_by = '')),
    CHECK (used_at IS NULL OR nonce_hash IS NOT NULL)
);

ALTER TABLE registrations ADD COLUMN came_by text NOT NULL DEFAULT 'claim'
    CHECK (came_by IN ('netboot', 'claim', 'window', 'token'));
UPDATE registrations SET came_by = door;
ALTER TABLE registrations DROP COLUMN door;
ALTER TABLE registrations RENAME COLUMN came_by TO door;

ALTER TABLE registrations ADD COLUMN was_disabled boolean NOT NULL DEFAULT false;
UPDATE registrations SET was_disabled = true WHERE state = 'disabled' OR state = 'pending' AND EXISTS (
    SELECT 1 FROM audit a WHERE a.subject = 'registration/' || server_uuid AND a.action IN ('disable', 'expire_key'));
