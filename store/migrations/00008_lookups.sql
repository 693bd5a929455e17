-- What holds is kept by the database too, and what is looked up for each
-- heartbeat and each sighted packet is found without reading a table.

-- +goose Up

-- A node has one machine at a time: whoever takes it over comes after the other
-- was disabled.
CREATE UNIQUE INDEX registrations_node_live ON registrations (node_id)
    WHERE node_id <> '' AND state IN ('approved', 'setting_up');
CREATE INDEX nodes_of_machine ON nodes (server_uuid, created_at);
CREATE INDEX machines_by_card ON machines (boot_mac) WHERE state = 'conflict';
CREATE INDEX machines_by_incumbent ON machines (incumbent) WHERE state = 'conflict';
CREATE INDEX nodes_initializing ON nodes (state) WHERE state = 'initializing';
CREATE INDEX disks_of_node ON disks (node_id, created_at);
CREATE INDEX tokens_of_operator ON tokens (operator);
CREATE INDEX moves_unfinished_to ON moves (to_node) WHERE outcome = '';

-- What was lost is asked for too.
DROP INDEX placements_of_node;
CREATE INDEX placements_of_node ON placements (node_id) WHERE state <> 'removed';
