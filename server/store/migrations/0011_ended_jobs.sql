-- How far the old events of a finished job were removed: 0 not at all, 1 some of them, 2 all that may go, 3 there were none
-- that may go.
ALTER TABLE jobs ADD COLUMN events_thinned INTEGER NOT NULL DEFAULT 0;

-- Finished jobs by their end, for the rules that say which of them, and which of their events, are kept.
CREATE INDEX jobs_by_end ON jobs (end_time_us, events_thinned) WHERE state >= 5;
