-- By which master key the sealed and keyed columns were made, so that another
-- one is noticed before anything is written with it.

-- +goose Up
CREATE TABLE master_key (
    id   bigint PRIMARY KEY CHECK (id = 1),
    mark text NOT NULL
);
