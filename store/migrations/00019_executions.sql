-- What could not be carried out yet of what the target says, and when it is tried
-- again: nodes that could not be told, webhooks that are to be called.

-- +goose Up
CREATE TABLE executions (
    node_id    text PRIMARY KEY REFERENCES nodes (node_id),
    generation bigint NOT NULL,
    tries      bigint NOT NULL,
    again_at   bigint NOT NULL,
    error      text NOT NULL
);

CREATE TABLE hook_calls (
    call_id      text PRIMARY KEY, -- what a receiver tells calls apart by
    placement_id text NOT NULL,
    node_id      text NOT NULL,
    module       text NOT NULL,
    url          text NOT NULL,
    body         text NOT NULL,
    made_at      bigint NOT NULL,
    tries        bigint NOT NULL,
    again_at     bigint, -- NULL: it is over
    error        text NOT NULL,
    done_at      bigint
);
CREATE INDEX hook_calls_due ON hook_calls (again_at) WHERE done_at IS NULL;
