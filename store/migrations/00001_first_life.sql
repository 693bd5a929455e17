-- The first life of a machine: registrations, boot records, nodes, disks, and
-- everything that moves with them. Portable types only: times are
-- microseconds since 1970, documents are JSON text.

-- +goose Up
CREATE TABLE audit (
    seq       bigint PRIMARY KEY,
    at        bigint NOT NULL,
    actor     text NOT NULL,
    action    text NOT NULL,
    subject   text NOT NULL,
    detail    text NOT NULL,
    prev_hash text NOT NULL,
    hash      text NOT NULL
);
CREATE INDEX audit_by_subject ON audit (subject, seq);

CREATE TABLE audit_head (
    id   bigint PRIMARY KEY CHECK (id = 1),
    seq  bigint NOT NULL,
    hash text NOT NULL
);
INSERT INTO audit_head (id, seq, hash) VALUES (1, 0, '');

CREATE TABLE operators (
    name          text PRIMARY KEY,
    role          text NOT NULL CHECK (role IN ('admin', 'viewer')),
    password_hash text NOT NULL,
    created_at    bigint NOT NULL,
    last_login    bigint
);

CREATE TABLE tokens (
    id          text PRIMARY KEY,
    operator    text NOT NULL REFERENCES operators (name),
    secret_hash bytea NOT NULL,
    created_at  bigint NOT NULL,
    expires_at  bigint NOT NULL
);
CREATE INDEX tokens_by_expiry ON tokens (expires_at);

CREATE TABLE api_keys (
    id          text PRIMARY KEY,
    scope       text NOT NULL CHECK (scope IN ('full', 'read_only', 'audit_only', 'agent', 'booter', 'ur_enroll')),
    secret_hash bytea NOT NULL,
    comment     text NOT NULL,
    server_uuid text NOT NULL,
    created_at  bigint NOT NULL,
    created_by  text NOT NULL,
    expires_at  bigint,
    last_used   bigint,
    CHECK ((scope = 'agent') = (server_uuid <> ''))
);
CREATE UNIQUE INDEX api_keys_of_machine ON api_keys (server_uuid) WHERE server_uuid <> '';

CREATE TABLE images (
    digest   text PRIMARY KEY,
    name     text NOT NULL,
    current  boolean NOT NULL,
    kind     text NOT NULL,
    manifest text NOT NULL,
    added_at bigint NOT NULL
);
CREATE UNIQUE INDEX images_current ON images (name) WHERE current;
CREATE INDEX images_by_name ON images (name);

CREATE TABLE boot_policy (
    id       bigint PRIMARY KEY CHECK (id = 1),
    document text NOT NULL,
    seq      bigint NOT NULL
);

CREATE TABLE boot_records (
    mac          text PRIMARY KEY,
    state        text NOT NULL CHECK (state IN ('discovered', 'enrolling', 'enrolled', 'decommissioned')),
    mode         text NOT NULL CHECK (mode IN ('normal', 'rescue')),
    rescue_until bigint,
    server_uuid  text NOT NULL,
    network      text NOT NULL,
    address      text NOT NULL,
    networking   text,
    pi_name      text NOT NULL,
    pi_digest    text NOT NULL,
    kernel_args  text NOT NULL,
    probe_since  bigint,
    service_tag  text NOT NULL,
    seen_uuid    text NOT NULL,
    arch         bigint NOT NULL,
    provenance   text NOT NULL,
    first_seen   bigint,
    last_seen    bigint,
    note         text NOT NULL,
    seq          bigint NOT NULL,
    CHECK (state <> 'enrolled' OR (server_uuid <> '' AND pi_digest <> '')),
    CHECK ((mode = 'rescue') = (rescue_until IS NOT NULL))
);
-- No address is ever reserved twice, whatever the interleaving.
CREATE UNIQUE INDEX boot_records_address ON boot_records (address) WHERE address <> '';
CREATE INDEX boot_records_of_machine ON boot_records (server_uuid) WHERE server_uuid <> '';
CREATE INDEX boot_records_by_seq ON boot_records (seq);
CREATE INDEX boot_records_probes ON boot_records (probe_since) WHERE probe_since IS NOT NULL;
CREATE INDEX boot_records_rescue ON boot_records (rescue_until) WHERE rescue_until IS NOT NULL;

CREATE TABLE registrations (
    server_uuid   text PRIMARY KEY,
    state         text NOT NULL CHECK (state IN ('pending', 'approved', 'disabled', 'awaiting_setup', 'setting_up')),
    rev           bigint NOT NULL,
    door          text NOT NULL CHECK (door IN ('netboot', 'claim')),
    hostname      text NOT NULL,
    manufacturer  text NOT NULL,
    product       text NOT NULL,
    serial        text NOT NULL,
    macs          text NOT NULL,
    node_id       text NOT NULL,
    registered_at bigint NOT NULL,
    last_seen     bigint NOT NULL,
    approved_at   bigint,
    refreshed_at  bigint,

    claim_hash    bytea,
    claim_expires bigint,
    claim_used    bytea, -- the hash of the code by which it was approved last
    poll_hash     bytea,
    key_id        text NOT NULL,
    credential    text NOT NULL CHECK (credential IN ('', 'reserved', 'undelivered', 'live')),

    boot_mac      text NOT NULL,
    session       text NOT NULL,
    source        text NOT NULL,
    public_key    text NOT NULL,

    setup_epoch      bigint NOT NULL,
    setup_deadline   bigint,
    bundle           text NOT NULL CHECK (bundle IN ('', 'ready', 'taken')),
    operation_id     text NOT NULL,
    last_setup_error text NOT NULL,
    setup_session    text NOT NULL,
    setup_key        text NOT NULL,
    proof_hash       text NOT NULL,
    pi_name          text NOT NULL,
    pi_digest        text NOT NULL,
    disk_layout      text,

    surveyed_at     bigint,
    survey_session  text NOT NULL,
    disks           text NOT NULL,

    console_port bigint NOT NULL,
    console_pin  text NOT NULL,
    conflicts    text NOT NULL,
    host_version text NOT NULL,
    seq          bigint NOT NULL,
    CHECK ((console_port = 0) = (console_pin = '')),
    CHECK ((credential = '') = (key_id = '')),
    CHECK ((bundle = '') = (state <> 'setting_up'))
);
CREATE UNIQUE INDEX registrations_by_claim ON registrations (claim_hash) WHERE claim_hash IS NOT NULL;
CREATE UNIQUE INDEX registrations_by_poll ON registrations (poll_hash) WHERE poll_hash IS NOT NULL;
CREATE INDEX registrations_by_used_claim ON registrations (claim_used) WHERE claim_used IS NOT NULL;
CREATE INDEX registrations_by_state ON registrations (state, server_uuid);
CREATE INDEX registrations_claims_due ON registrations (claim_expires) WHERE claim_expires IS NOT NULL;

-- What a machine says of itself is large and seldom read, so it has a row of
-- its own.
CREATE TABLE sysinfos (
    server_uuid text PRIMARY KEY REFERENCES registrations (server_uuid),
    document    text NOT NULL
);

CREATE TABLE ticket_keys (
    server_uuid text NOT NULL REFERENCES registrations (server_uuid),
    purpose     text NOT NULL,
    sealed      bytea NOT NULL,
    PRIMARY KEY (server_uuid, purpose)
);

CREATE TABLE nodes (
    node_id     text PRIMARY KEY,
    server_uuid text NOT NULL,
    hostname    text NOT NULL,
    policy      text NOT NULL CHECK (policy IN ('in_service', 'no_provision', 'quiesce', 'graceful_remove', 'expunged')),
    state       text NOT NULL CHECK (state IN ('initializing', 'in_service', 'quiesced', 'decommissioned')),
    created_at  bigint NOT NULL,
    last_seen   bigint,
    seq         bigint NOT NULL
);
-- A machine is at most one live node.
CREATE UNIQUE INDEX nodes_live ON nodes (server_uuid) WHERE state <> 'decommissioned';

CREATE TABLE disks (
    disk_id    text PRIMARY KEY,
    node_id    text NOT NULL REFERENCES nodes (node_id),
    identity   text NOT NULL,
    document   text NOT NULL,
    policy     text NOT NULL CHECK (policy IN ('in_service', 'graceful_remove', 'expunged')),
    state      text NOT NULL CHECK (state IN ('in_service', 'decommissioned')),
    created_at bigint NOT NULL,
    seq        bigint NOT NULL
);
CREATE UNIQUE INDEX disks_live ON disks (node_id, identity) WHERE state <> 'decommissioned';

CREATE TABLE booters (
    name      text PRIMARY KEY,
    document  text NOT NULL,
    last_seen bigint NOT NULL
);
