-- What people say of hardware: labels, a reservoir, notes. And which disks are
-- of their node's pool: all so far were adopted with it.

-- +goose Up
ALTER TABLE nodes ADD COLUMN labels text NOT NULL DEFAULT '{}';
ALTER TABLE nodes ADD COLUMN reservoir text NOT NULL DEFAULT '{}';
ALTER TABLE nodes ADD COLUMN note text NOT NULL DEFAULT '';
ALTER TABLE disks ADD COLUMN labels text NOT NULL DEFAULT '{}';
ALTER TABLE disks ADD COLUMN member boolean NOT NULL DEFAULT true;
ALTER TABLE machines ADD COLUMN note text NOT NULL DEFAULT '';
