-- What nodes may use outside of the control plane: a role of their own in a
-- database. Every row stays until its provider was told that it is over.

-- +goose Up
CREATE TABLE providers (
    name     text PRIMARY KEY,
    kind     text NOT NULL CHECK (kind IN ('postgresql')),
    address  text NOT NULL,
    sealed   bytea NOT NULL, -- the URL with its credential
    added_at bigint NOT NULL,
    added_by text NOT NULL
);
CREATE TABLE grants (
    name       text PRIMARY KEY, -- of the role
    provider   text NOT NULL REFERENCES providers (name),
    node_id    text NOT NULL REFERENCES nodes (node_id),
    member_of  text NOT NULL,
    state      text NOT NULL CHECK (state IN ('wanted', 'live', 'revoking', 'revoked')),
    sealed     bytea NOT NULL, -- the password; empty once it is revoked
    made_at    bigint NOT NULL,
    made_by    text NOT NULL,
    changed_at bigint NOT NULL,
    tries      bigint NOT NULL,
    again_at   bigint NOT NULL,
    error      text NOT NULL
);
CREATE INDEX grants_node ON grants (node_id, made_at);
CREATE INDEX grants_provider ON grants (provider);
CREATE INDEX grants_due ON grants (again_at) WHERE state IN ('wanted', 'revoking');
CREATE INDEX grants_may ON grants (node_id) WHERE state IN ('wanted', 'live');
-- A template names a grant by its provider.
CREATE UNIQUE INDEX grants_standing ON grants (node_id, provider) WHERE state <> 'revoked';
