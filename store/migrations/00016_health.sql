-- What hosts see of the placements that they check, beside what else they say;
-- all of one kind is read at once.

-- +goose Up
CREATE TABLE mirrors_new (
    node_id  text NOT NULL REFERENCES nodes (node_id),
    kind     text NOT NULL CHECK (kind IN ('owned', 'profile', 'health')),
    said_at  bigint NOT NULL,
    digest   bytea NOT NULL,
    document text NOT NULL,
    PRIMARY KEY (node_id, kind)
);
INSERT INTO mirrors_new SELECT node_id, kind, said_at, digest, document FROM node_mirrors;
DROP TABLE node_mirrors;
ALTER TABLE mirrors_new RENAME TO node_mirrors;
CREATE INDEX node_mirrors_kind ON node_mirrors (kind, node_id);
