-- Who submitted a job, as the server knew the caller: a user's name, a token's name, "anonymous"; '' for jobs of before.
ALTER TABLE jobs ADD COLUMN owner TEXT NOT NULL DEFAULT '';
-- A list of someone's jobs reads its page and no more, like jobs_by_state.
CREATE INDEX jobs_by_owner ON jobs (owner, state, tenant);

-- Time in RUNNING of the attempts that have ended, and since when it is RUNNING now (0: it is not): what time limits count.
ALTER TABLE jobs ADD COLUMN run_time_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN running_since_us INTEGER NOT NULL DEFAULT 0;
UPDATE jobs SET running_since_us = event_time_us WHERE state = 3;

-- Which job waits for which: a row goes when the latter ends, so it is empty but for jobs that wait now.
CREATE TABLE dependencies (
  job INTEGER NOT NULL REFERENCES jobs (number) ON DELETE CASCADE,
  after INTEGER NOT NULL REFERENCES jobs (number) ON DELETE CASCADE,
  any_end INTEGER NOT NULL CHECK (any_end IN (0, 1)),  -- whatever it ends as; 0: only SUCCEEDED will do
  PRIMARY KEY (job, after)
) STRICT, WITHOUT ROWID;
CREATE INDEX dependencies_by_after ON dependencies (after);
-- The number of its rows there: jobs above 0 are not in the scheduler's queue.
ALTER TABLE jobs ADD COLUMN waits_for INTEGER NOT NULL DEFAULT 0;

-- Devices on which nothing starts, by command. A GPU is known by its UUID, which survives a renumbering; the CPU has none.
CREATE TABLE device_drains (
  device TEXT NOT NULL PRIMARY KEY,  -- its UUID, or its name if it has none
  name TEXT NOT NULL,                -- devices/{device} when it was drained
  model TEXT NOT NULL,
  reason TEXT NOT NULL,
  owner TEXT NOT NULL,
  vacate INTEGER NOT NULL CHECK (vacate IN (0, 1)),
  time_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
