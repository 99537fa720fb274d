-- A list of jobs reads its page and no more, whatever the states it asks for and however many jobs have ended: within one
-- state and tenant the index is in order of submission. Running jobs are found by it too.
CREATE INDEX jobs_by_state ON jobs (state, tenant);
