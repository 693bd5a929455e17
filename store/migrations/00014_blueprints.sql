-- Modules, the blueprints that were the target, and which one is; a node that
-- people declare themselves.

-- +goose Up
CREATE TABLE modules (
    name     text NOT NULL,
    version  bigint NOT NULL,
    document text NOT NULL,
    wanted   boolean NOT NULL,
    added_at bigint NOT NULL,
    added_by text NOT NULL,
    PRIMARY KEY (name, version)
);
CREATE UNIQUE INDEX modules_wanted ON modules (name) WHERE wanted;

-- Each was the target, one after another: the parent of each is the one before.
CREATE TABLE blueprints (
    number       bigint PRIMARY KEY,
    blueprint_id text NOT NULL UNIQUE,
    parent_id    text NOT NULL, -- empty: it is the first
    made_at      bigint NOT NULL,
    made_by      text NOT NULL,
    why          text NOT NULL,
    changes      bigint NOT NULL, -- that its report tells of
    document     bytea NOT NULL,  -- JSON, compressed
    report       bytea NOT NULL
);

-- Its one row is what planners race for.
CREATE TABLE blueprint_target (
    id           bigint PRIMARY KEY CHECK (id = 1),
    number       bigint NOT NULL, -- 0: there is none yet
    blueprint_id text NOT NULL,
    planning     boolean NOT NULL,
    set_at       bigint, -- when planning was allowed or stopped last
    set_by       text NOT NULL,
    reason       text NOT NULL,
    seq          bigint NOT NULL,
    CHECK ((number = 0) = (blueprint_id = ''))
);
INSERT INTO blueprint_target (id, number, blueprint_id, planning, set_by, reason, seq) VALUES (1, 0, '', true, '', '', 0);

ALTER TABLE placements ADD COLUMN name text NOT NULL DEFAULT '';
ALTER TABLE placements ADD COLUMN version bigint NOT NULL DEFAULT 0;
ALTER TABLE placements ADD COLUMN transient_id text NOT NULL DEFAULT '';
ALTER TABLE placements ADD COLUMN changed_at bigint NOT NULL DEFAULT 0; -- its state
CREATE INDEX placements_by_node ON placements (node_id, placement_id);
CREATE INDEX placements_by_module ON placements (module, placement_id);

-- What people told a node to be stays theirs until they hand it over.
ALTER TABLE nodes ADD COLUMN by_hand boolean NOT NULL DEFAULT false;
UPDATE nodes SET by_hand = true WHERE node_id IN (SELECT node_id FROM declarations);
