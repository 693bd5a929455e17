-- What machines are made of, and were; where each disk was seen; disks that are
-- not there; the firmware that there should be at least.

-- +goose Up
CREATE TABLE collections (
    server_uuid  text NOT NULL,
    number       bigint NOT NULL,
    node_id      text NOT NULL, -- empty: before it was adopted
    source       text NOT NULL CHECK (source IN ('sysinfo', 'survey', 'host')),
    collected_at bigint NOT NULL,
    digest       bytea NOT NULL,
    document     text NOT NULL,
    PRIMARY KEY (server_uuid, number)
);

CREATE TABLE disk_places (
    identity    text NOT NULL,
    server_uuid text NOT NULL,
    slot        text NOT NULL,
    since       bigint NOT NULL,
    until       bigint, -- it is there no longer
    PRIMARY KEY (identity, server_uuid)
);
CREATE INDEX disk_places_of_machine ON disk_places (server_uuid);

ALTER TABLE disks ADD COLUMN missing_since bigint;
CREATE INDEX disks_by_identity ON disks (identity);

CREATE TABLE firmware_minimums (
    vendor  text NOT NULL,
    part    text NOT NULL,
    version text NOT NULL,
    set_at  bigint NOT NULL,
    set_by  text NOT NULL,
    PRIMARY KEY (vendor, part)
);
