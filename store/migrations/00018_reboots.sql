-- A node's host can be asked to restart its machine: at once, or once nothing
-- runs on it.

-- +goose Up
ALTER TABLE node_orders RENAME TO node_orders_before;
CREATE TABLE node_orders (
    node_id  text NOT NULL REFERENCES nodes (node_id),
    verb     text NOT NULL CHECK (verb IN ('report_now', 'retire', 'rekey', 'reboot', 'reboot_drained')),
    asked_at bigint NOT NULL,
    asked_by text NOT NULL,
    told_at  bigint, -- when its host was told first
    -- The key that is to take another's place once it was used.
    key_id   text NOT NULL DEFAULT '',
    key_hash bytea,
    replaces text NOT NULL DEFAULT '',
    -- The boot in which its host was told: another one is what it was asked for.
    boot_id  text NOT NULL DEFAULT '',
    -- What was wanted of the node before it was drained, and is again.
    policy   text NOT NULL DEFAULT '',
    PRIMARY KEY (node_id, verb)
);
INSERT INTO node_orders (node_id, verb, asked_at, asked_by, told_at, key_id, key_hash, replaces)
 SELECT node_id, verb, asked_at, asked_by, told_at, key_id, key_hash, replaces FROM node_orders_before;
DROP TABLE node_orders_before;
CREATE UNIQUE INDEX node_orders_key ON node_orders (key_id) WHERE key_id <> '';
