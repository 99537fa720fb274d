-- Many jobs that differ in some values. The members are rows of jobs; the row goes with the last of them.
CREATE TABLE arrays (
  number INTEGER PRIMARY KEY,  -- order of submission
  tenant TEXT NOT NULL,
  id TEXT NOT NULL,
  uid TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  spec BLOB NOT NULL,        -- JobSpec, as given: what the members share
  array_spec BLOB NOT NULL,  -- ArraySpec, as given
  size INTEGER NOT NULL CHECK (size > 0),  -- members at submission
  create_time_us INTEGER NOT NULL,
  end_time_us INTEGER NOT NULL,  -- the newest end of a member
  UNIQUE (tenant, id)
) STRICT;
-- How many members are in which state, kept by triggers: a list of arrays counts nothing.
CREATE TABLE array_states (
  array INTEGER NOT NULL REFERENCES arrays (number) ON DELETE CASCADE,
  state INTEGER NOT NULL,  -- JobState
  jobs INTEGER NOT NULL CHECK (jobs >= 0),
  PRIMARY KEY (array, state)
) STRICT, WITHOUT ROWID;

-- Its array's number, 0 for a job that belongs to none, its own number there, and its values (ArrayMember).
ALTER TABLE jobs ADD COLUMN array INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN array_index INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN array_values BLOB NOT NULL DEFAULT x'';

-- A list of an array's jobs, or of those in no array, reads its page and no more. Jobs in no array have no entry in the first
-- index, and the two others are as they were, but that members are told apart.
CREATE INDEX jobs_by_array ON jobs (array, state) WHERE array > 0;
DROP INDEX jobs_by_state;
CREATE INDEX jobs_by_state ON jobs (state, tenant, array > 0);
DROP INDEX jobs_by_owner;
CREATE INDEX jobs_by_owner ON jobs (owner, state, tenant, array > 0);

CREATE TRIGGER array_states_on_insert AFTER INSERT ON jobs WHEN new.array > 0 BEGIN
  INSERT INTO array_states (array, state, jobs) VALUES (new.array, new.state, 1)
    ON CONFLICT (array, state) DO UPDATE SET jobs = jobs + 1;
END;
CREATE TRIGGER array_states_on_update AFTER UPDATE OF state ON jobs WHEN new.array > 0 AND old.state <> new.state BEGIN
  UPDATE array_states SET jobs = jobs - 1 WHERE array = new.array AND state = old.state;
  INSERT INTO array_states (array, state, jobs) VALUES (new.array, new.state, 1)
    ON CONFLICT (array, state) DO UPDATE SET jobs = jobs + 1;
  UPDATE arrays SET end_time_us = max(end_time_us, new.end_time_us) WHERE number = new.array AND new.state >= 5;
END;
CREATE TRIGGER array_states_on_delete AFTER DELETE ON jobs WHEN old.array > 0 BEGIN
  UPDATE array_states SET jobs = jobs - 1 WHERE array = old.array AND state = old.state;
  DELETE FROM arrays WHERE number = old.array
    AND NOT EXISTS (SELECT 1 FROM array_states WHERE array = old.array AND jobs > 0);
END;
