-- The devices of the current or last attempt beside `device`, the first: separated by blanks; '' for most jobs.

ALTER TABLE jobs ADD COLUMN more_devices TEXT NOT NULL DEFAULT '';
