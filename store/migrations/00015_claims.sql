-- That another scheduler still needs a node or a disk.

-- +goose Up
CREATE TABLE claims (
    claim_id      text PRIMARY KEY,
    node_id       text NOT NULL REFERENCES nodes (node_id),
    disk_id       text NOT NULL, -- empty: the whole node
    holder        text NOT NULL,
    reason        text NOT NULL,
    state         text NOT NULL CHECK (state IN ('held', 'draining', 'released')),
    since         bigint NOT NULL,
    why           text NOT NULL, -- it drains, or ended
    ended         text NOT NULL CHECK (ended IN ('', 'released', 'expired', 'broken', 'gone')),
    made_at       bigint NOT NULL,
    made_by       text NOT NULL,
    lease_seconds bigint NOT NULL,
    expires_at    bigint NOT NULL,
    CHECK ((state = 'released') = (ended <> ''))
);
CREATE UNIQUE INDEX claims_live ON claims (node_id, disk_id, holder) WHERE state <> 'released';
CREATE INDEX claims_node ON claims (node_id, made_at);
CREATE INDEX claims_due ON claims (expires_at) WHERE state <> 'released';
CREATE INDEX claims_old ON claims (since) WHERE state = 'released';
