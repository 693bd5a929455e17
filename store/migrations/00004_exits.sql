-- Leaving the fleet: what a node holds, what keeps an expunged machine out, and
-- what a machine's root password is.

-- +goose Up

-- One replica of a module on a node. Base, per-node and per-disk modules come
-- and go with their node; a service is what somebody would miss.
CREATE TABLE placements (
    placement_id text PRIMARY KEY,
    node_id      text NOT NULL REFERENCES nodes (node_id),
    disk_id      text NOT NULL,
    module       text NOT NULL,
    kind         text NOT NULL CHECK (kind IN ('base', 'per_node', 'per_disk', 'service')),
    state        text NOT NULL CHECK (state IN ('reserved', 'placed', 'moving', 'removed', 'lost')),
    created_at   bigint NOT NULL,
    seq          bigint NOT NULL
);
CREATE INDEX placements_of_node ON placements (node_id) WHERE state IN ('reserved', 'placed', 'moving');

-- A move outlives its nodes: it names them without leaning on their rows.
CREATE TABLE moves (
    move_id      text PRIMARY KEY,
    placement_id text NOT NULL,
    from_node    text NOT NULL,
    to_node      text NOT NULL,
    outcome      text NOT NULL CHECK (outcome IN ('', 'done', 'failed', 'cancelled')), -- empty: not finished
    started_at   bigint NOT NULL,
    ended_at     bigint,
    CHECK ((outcome = '') = (ended_at IS NULL))
);
CREATE INDEX moves_unfinished ON moves (from_node, to_node) WHERE outcome = '';

-- Machines and containers that run on a machine and are not ours.
CREATE TABLE foreign_workloads (
    server_uuid     text NOT NULL,
    kind            text NOT NULL,
    name            text NOT NULL,
    first_seen      bigint NOT NULL,
    acknowledged_at bigint,
    acknowledged_by text NOT NULL,
    PRIMARY KEY (server_uuid, kind, name)
);

-- It outlives the registration.
CREATE TABLE tombstones (
    server_uuid text PRIMARY KEY,
    node_id     text NOT NULL,
    at          bigint NOT NULL,
    set_by      text NOT NULL,
    reason      text NOT NULL,
    seq         bigint NOT NULL
);

-- Agent keys that are dead, so that an expunged machine which comes with its
-- own is told so instead of being taken for a guesser.
CREATE TABLE dead_keys (
    id          text PRIMARY KEY,
    secret_hash bytea NOT NULL,
    server_uuid text NOT NULL,
    died_at     bigint NOT NULL,
    expunged    boolean NOT NULL
);
CREATE INDEX dead_keys_of_machine ON dead_keys (server_uuid);

-- The crypt(3) hash, encrypted with the master key.
CREATE TABLE root_passwords (
    server_uuid text PRIMARY KEY REFERENCES registrations (server_uuid),
    sealed      bytea NOT NULL,
    set_at      bigint NOT NULL,
    set_by      text NOT NULL,
    last_nonce  bytea,
    fetched_at  bigint
);

-- A rotated key is good for a while beside the new one.
ALTER TABLE api_keys ADD COLUMN old_hash bytea;
ALTER TABLE api_keys ADD COLUMN old_until bigint;
ALTER TABLE api_keys ADD COLUMN rotated_at bigint;

-- How far a booter has followed the feed, by its own questions to it.
ALTER TABLE booters ADD COLUMN followed bigint NOT NULL DEFAULT 0;
