-- A running job that was asked to pause, and where a job began that was made from another's checkpoint.

ALTER TABLE jobs ADD COLUMN pause_requested INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN origin BLOB NOT NULL DEFAULT x'';  -- JobOrigin
