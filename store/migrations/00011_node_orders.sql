-- What an operator asked the host of a node for, until it was done.

-- +goose Up
CREATE TABLE node_orders (
    node_id  text NOT NULL REFERENCES nodes (node_id),
    verb     text NOT NULL CHECK (verb IN ('report_now', 'retire', 'rekey')),
    asked_at bigint NOT NULL,
    asked_by text NOT NULL,
    told_at  bigint, -- when its host was told first
    -- The key that is to take another's place once it was used.
    key_id   text NOT NULL DEFAULT '',
    key_hash bytea,
    replaces text NOT NULL DEFAULT '',
    PRIMARY KEY (node_id, verb)
);
CREATE UNIQUE INDEX node_orders_key ON node_orders (key_id) WHERE key_id <> '';
