-- How each approved setup went, line by line. A log outlives its registration:
-- who asks what happened to a machine may ask after it was forgotten.

-- +goose Up
CREATE TABLE install_logs (
    operation_id text PRIMARY KEY,
    server_uuid  text NOT NULL,
    setup_epoch  bigint NOT NULL,
    started_at   bigint NOT NULL,
    ended_at     bigint,
    outcome      text NOT NULL CHECK (outcome IN ('running', 'complete', 'failed')),
    reason       text NOT NULL,
    step         text NOT NULL,
    step_text    text NOT NULL,
    percent      bigint NOT NULL,
    lines        bigint NOT NULL, -- number of the last line
    stdout       text NOT NULL,
    stderr       text NOT NULL,
    CHECK ((ended_at IS NULL) = (outcome = 'running'))
);
CREATE INDEX install_logs_of_machine ON install_logs (server_uuid, started_at);
CREATE INDEX install_logs_running ON install_logs (operation_id) WHERE ended_at IS NULL;

CREATE TABLE install_lines (
    operation_id text NOT NULL REFERENCES install_logs (operation_id),
    n            bigint NOT NULL,
    at           bigint NOT NULL,
    step         text NOT NULL,
    percent      bigint NOT NULL,
    line         text NOT NULL,
    PRIMARY KEY (operation_id, n)
);
