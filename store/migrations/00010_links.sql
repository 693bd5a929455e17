-- What nodes are told to be, and what their hosts say: of how that went, of
-- what they answer for, of the machine. And when each was linked last.

-- +goose Up
CREATE TABLE declarations (
    node_id     text NOT NULL REFERENCES nodes (node_id),
    generation  bigint NOT NULL,
    declared_at bigint NOT NULL,
    declared_by text NOT NULL,
    digest      bytea NOT NULL, -- of what it says, without its generation
    sealed      bytea NOT NULL,
    PRIMARY KEY (node_id, generation)
);

-- A report is the newest, or the newest in which something was not ok.
CREATE TABLE node_reports (
    node_id     text NOT NULL REFERENCES nodes (node_id),
    slot        text NOT NULL CHECK (slot IN ('newest', 'notable')),
    generation  bigint NOT NULL,
    finished_at bigint NOT NULL, -- by the node's clock
    reported_at bigint NOT NULL, -- by ours
    digest      bytea NOT NULL, -- of what it says, without its times
    document    text NOT NULL,
    PRIMARY KEY (node_id, slot)
);

CREATE TABLE node_mirrors (
    node_id  text NOT NULL REFERENCES nodes (node_id),
    kind     text NOT NULL CHECK (kind IN ('owned', 'profile')),
    said_at  bigint NOT NULL,
    digest   bytea NOT NULL,
    document text NOT NULL,
    PRIMARY KEY (node_id, kind)
);

CREATE TABLE node_links (
    node_id    text PRIMARY KEY REFERENCES nodes (node_id),
    linked_at  bigint NOT NULL,
    told       bigint NOT NULL, -- for how many seconds it was said to be away
    holds      bigint NOT NULL,
    version    text NOT NULL,
    capability bigint NOT NULL,
    boot_id    text NOT NULL
);
CREATE INDEX node_links_away ON node_links (linked_at);
