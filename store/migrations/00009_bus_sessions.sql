-- Whose bus session a machine announced itself over: a booter, in one run of it,
-- as of a place in the change feed. And why it is over, when it is.

-- +goose Up
ALTER TABLE registrations ADD COLUMN session_booter text NOT NULL DEFAULT '';
ALTER TABLE registrations ADD COLUMN session_run text NOT NULL DEFAULT '';
ALTER TABLE registrations ADD COLUMN session_seq bigint NOT NULL DEFAULT 0;
ALTER TABLE registrations ADD COLUMN session_over text NOT NULL DEFAULT '';
CREATE INDEX registrations_by_booter ON registrations (session_booter) WHERE session <> '';
