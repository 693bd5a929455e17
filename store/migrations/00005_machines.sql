-- Who is who: machines with their evidence, newcomers that wait, values that
-- are no evidence, and what is needed to forget noise.

-- +goose Up
CREATE TABLE machines (
    machine_id  text PRIMARY KEY,
    state       text NOT NULL CHECK (state IN ('known', 'conflict')),
    server_uuid text NOT NULL, -- of its registration
    uuid        text NOT NULL,
    uuid_key    text NOT NULL, -- the same for both byte orders
    serial      text NOT NULL,
    macs        text NOT NULL,
    disks       text NOT NULL,
    key_id      text NOT NULL,
    product     text NOT NULL,
    oddity      text NOT NULL, -- the case, if anything is odd about it
    reason      text NOT NULL,
    incumbent   text NOT NULL, -- server_uuid of the machine that a newcomer is in conflict with
    boot_mac    text NOT NULL,
    source      text NOT NULL,
    first_seen  bigint NOT NULL,
    last_seen   bigint NOT NULL,
    seq         bigint NOT NULL,
    CHECK ((state = 'known') = (server_uuid <> '')),
    CHECK ((state = 'conflict') = (incumbent <> ''))
);
CREATE UNIQUE INDEX machines_of_registration ON machines (server_uuid) WHERE server_uuid <> '';
CREATE UNIQUE INDEX machines_newcomers ON machines (uuid_key, boot_mac) WHERE state = 'conflict';
CREATE INDEX machines_waiting ON machines (last_seen) WHERE state = 'conflict';

CREATE TABLE evidence (
    kind       text NOT NULL CHECK (kind IN ('uuid', 'mac', 'serial', 'disk')),
    value      text NOT NULL,
    machine_id text NOT NULL,
    PRIMARY KEY (kind, value, machine_id)
);
CREATE INDEX evidence_of_machine ON evidence (machine_id);

-- What an operator has judged to be two machines.
CREATE TABLE machines_apart (
    server_uuid text NOT NULL,
    uuid_key    text NOT NULL,
    PRIMARY KEY (server_uuid, uuid_key)
);

CREATE TABLE shared_identities (
    kind     text NOT NULL CHECK (kind IN ('uuid', 'serial', 'mac')),
    value    text NOT NULL,
    vendor   text NOT NULL,
    comment  text NOT NULL,
    added_by text NOT NULL,
    added_at bigint NOT NULL,
    PRIMARY KEY (kind, value)
);

ALTER TABLE boot_records ADD COLUMN own_uuid text NOT NULL DEFAULT '';
ALTER TABLE boot_records ADD COLUMN awaits_uuid bigint NOT NULL DEFAULT 0;
ALTER TABLE boot_records ADD COLUMN origin text NOT NULL DEFAULT '';
ALTER TABLE boot_records ADD COLUMN touched bigint NOT NULL DEFAULT 0;
UPDATE boot_records SET touched = 1 WHERE provenance LIKE 'made by %' OR networking LIKE '%"hostname"%' OR kernel_args <> '[]';
CREATE INDEX boot_records_noise ON boot_records (last_seen) WHERE touched = 0 AND server_uuid = '';
CREATE INDEX registrations_last_seen ON registrations (last_seen) WHERE state IN ('pending', 'awaiting_setup');
