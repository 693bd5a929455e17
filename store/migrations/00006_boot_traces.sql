-- What booters and machines last said to each other: one row for each booter
-- and network card. It is what was seen, not what was changed, so it stays out
-- of audit and feed, is replaced by what comes later, and expires.

-- +goose Up
CREATE TABLE boot_traces (
    booter   text NOT NULL,
    mac      text NOT NULL,
    at       bigint NOT NULL,
    document text NOT NULL,
    PRIMARY KEY (booter, mac)
);
CREATE INDEX boot_traces_of_card ON boot_traces (mac);
CREATE INDEX boot_traces_by_time ON boot_traces (at);
-- Whose machine is this card?
CREATE INDEX registrations_of_card ON registrations (boot_mac) WHERE boot_mac <> '';
