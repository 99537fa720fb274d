-- Times are microseconds since 1970 in UTC; 0 is "not yet". Blobs are serialized messages of trainyard.v1.
-- A migration that was released is never edited: the next change is the next file.

CREATE TABLE settings (
  key TEXT NOT NULL PRIMARY KEY,
  value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE projects (
  name TEXT NOT NULL PRIMARY KEY,
  queued INTEGER NOT NULL CHECK (queued >= 0)  -- jobs in state QUEUED, kept by triggers
) STRICT, WITHOUT ROWID;

CREATE TABLE jobs (
  number INTEGER PRIMARY KEY,  -- order of submission
  project TEXT NOT NULL,
  id TEXT NOT NULL,
  uid TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,  -- the caller as the server knew it: a user's name, a token's name, "anonymous"
  dataset TEXT NOT NULL,  -- id of the dataset, for DATASET_IN_USE; '' for none
  dataset_version INTEGER NOT NULL,
  initial_model TEXT NOT NULL,  -- id of the model that the job begins with, for MODEL_IN_USE; '' for none
  spec BLOB NOT NULL,           -- JobSpec, immutable
  origin BLOB NOT NULL DEFAULT x'',  -- JobOrigin: the checkpoint of another job that it began at
  state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 7),  -- JobState
  reason TEXT NOT NULL,
  message TEXT NOT NULL,
  priority INTEGER NOT NULL,
  waits_for INTEGER NOT NULL,  -- its rows in `dependencies`; jobs above 0 are not in the scheduler's queue
  cancel_requested INTEGER NOT NULL CHECK (cancel_requested IN (0, 1)),
  pause_requested INTEGER NOT NULL DEFAULT 0 CHECK (pause_requested IN (0, 1)),  -- while it runs
  attempt INTEGER NOT NULL,
  -- Attempts that ended by no doing of the job or its worker: a drained daemon, a worker that could not be started, a file
  -- that could not be read just then. They do not count towards the attempts that a job may have.
  attempts_uncounted INTEGER NOT NULL DEFAULT 0,
  workers_lost INTEGER NOT NULL,
  retry_time_us INTEGER NOT NULL,
  device TEXT NOT NULL,                   -- of the current or last attempt
  more_devices TEXT NOT NULL DEFAULT '',  -- its other devices, separated by blanks; '' for most jobs
  create_time_us INTEGER NOT NULL,
  start_time_us INTEGER NOT NULL,
  end_time_us INTEGER NOT NULL,
  -- Time in RUNNING of the attempts that have ended, and since when it is RUNNING now (0: it is not): what time limits count.
  run_time_us INTEGER NOT NULL DEFAULT 0,
  running_since_us INTEGER NOT NULL DEFAULT 0,
  plan BLOB NOT NULL,      -- RunPlan
  progress BLOB NOT NULL,  -- Progress
  checkpoint_step INTEGER NOT NULL,
  model TEXT NOT NULL,
  newest_seq INTEGER NOT NULL,
  event_time_us INTEGER NOT NULL,  -- of the newest event: the next one is not earlier
  -- How far the old events of a finished job were removed: 0 not at all, 1 some of them, 2 all that may go, 3 there were none
  -- that may go.
  events_thinned INTEGER NOT NULL DEFAULT 0,
  array INTEGER NOT NULL DEFAULT 0,          -- its array's number; 0: it belongs to none
  array_index INTEGER NOT NULL DEFAULT 0,    -- its own number there
  array_values BLOB NOT NULL DEFAULT x'',    -- ArrayMember: its values there
  UNIQUE (project, id)
) STRICT;

-- Small for ever, however many jobs have finished: recovery and the scheduler read by it.
CREATE INDEX jobs_unfinished ON jobs (project, dataset, state) WHERE state < 5;
-- A list of jobs reads its page and no more, whatever the states it asks for and however many jobs have ended: within one
-- state and project the index is in order of submission. Running jobs are found by it too.
CREATE INDEX jobs_by_state ON jobs (state, project, array > 0);
CREATE INDEX jobs_by_owner ON jobs (owner, state, project, array > 0);
CREATE INDEX jobs_by_array ON jobs (array, state) WHERE array > 0;
-- Finished jobs by their end, for the rules that say which of them, and which of their events, are kept.
CREATE INDEX jobs_by_end ON jobs (end_time_us, events_thinned) WHERE state >= 5;

CREATE TRIGGER jobs_queued_on_insert AFTER INSERT ON jobs WHEN new.state = 1 BEGIN
  INSERT INTO projects (name, queued) VALUES (new.project, 1)
    ON CONFLICT (name) DO UPDATE SET queued = queued + 1;
END;
CREATE TRIGGER jobs_queued_on_update AFTER UPDATE OF state ON jobs WHEN (old.state = 1) <> (new.state = 1) BEGIN
  UPDATE projects SET queued = queued + (new.state = 1) - (old.state = 1) WHERE name = new.project;
END;
-- The code never does this (can_move); the file refuses it all the same.
CREATE TRIGGER jobs_terminal_once BEFORE UPDATE OF state ON jobs WHEN old.state >= 5 AND new.state <> old.state BEGIN
  SELECT RAISE(ABORT, 'a terminal job state is written once');
END;

-- Which job waits for which: a row goes when the latter ends, so it is empty but for jobs that wait now.
CREATE TABLE dependencies (
  job INTEGER NOT NULL REFERENCES jobs (number) ON DELETE CASCADE,
  after INTEGER NOT NULL REFERENCES jobs (number) ON DELETE CASCADE,
  any_end INTEGER NOT NULL CHECK (any_end IN (0, 1)),  -- whatever it ends as; 0: only SUCCEEDED will do
  PRIMARY KEY (job, after)
) STRICT, WITHOUT ROWID;
CREATE INDEX dependencies_by_after ON dependencies (after);

-- Many jobs that differ in some values. The members are rows of jobs; the row goes with the last of them.
CREATE TABLE arrays (
  number INTEGER PRIMARY KEY,  -- order of submission
  project TEXT NOT NULL,
  id TEXT NOT NULL,
  uid TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  spec BLOB NOT NULL,        -- JobSpec, as given: what the members share
  array_spec BLOB NOT NULL,  -- ArraySpec, as given
  size INTEGER NOT NULL CHECK (size > 0),  -- members at submission
  create_time_us INTEGER NOT NULL,
  end_time_us INTEGER NOT NULL,  -- the newest end of a member
  UNIQUE (project, id)
) STRICT;
-- How many members are in which state, kept by triggers: a list of arrays counts nothing.
CREATE TABLE array_states (
  array INTEGER NOT NULL REFERENCES arrays (number) ON DELETE CASCADE,
  state INTEGER NOT NULL,  -- JobState
  jobs INTEGER NOT NULL CHECK (jobs >= 0),
  PRIMARY KEY (array, state)
) STRICT, WITHOUT ROWID;

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

CREATE TABLE attempts (
  job INTEGER NOT NULL REFERENCES jobs (number) ON DELETE CASCADE,
  number INTEGER NOT NULL,
  nonce_digest TEXT NOT NULL,
  pid INTEGER NOT NULL,
  process_start INTEGER NOT NULL,
  device TEXT NOT NULL,
  start_time_us INTEGER NOT NULL,
  end_time_us INTEGER NOT NULL,
  outcome TEXT NOT NULL,
  acknowledged INTEGER NOT NULL,
  -- Another job was on a device of the attempt: what its steps took says nothing about the device alone.
  shared INTEGER NOT NULL DEFAULT 0 CHECK (shared IN (0, 1)),
  -- What the cluster that runs the attempt calls it. '' until that is known, and for the server's own devices.
  handle TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (job, number)
) STRICT, WITHOUT ROWID;
-- Attempts that go on (0), and the latest that ended.
CREATE INDEX attempts_by_end ON attempts (end_time_us);

CREATE TABLE events (
  job INTEGER NOT NULL REFERENCES jobs (number) ON DELETE CASCADE,
  seq INTEGER NOT NULL,
  payload BLOB NOT NULL,  -- Event, with its seq, time and attempt; its metrics are packed (event_rows.h)
  PRIMARY KEY (job, seq)
) STRICT, WITHOUT ROWID;
-- The pieces of an event that does not fit into a row of `events` without an overflow page, which would take 4096 bytes for
-- the rest of it: the payload in `events` is then empty.
CREATE TABLE event_parts (
  job INTEGER NOT NULL REFERENCES jobs (number) ON DELETE CASCADE,
  seq INTEGER NOT NULL,
  part INTEGER NOT NULL,
  bytes BLOB NOT NULL,
  PRIMARY KEY (job, seq, part)
) STRICT, WITHOUT ROWID;

CREATE TABLE request_ids (
  project TEXT NOT NULL,
  request_id TEXT NOT NULL,
  digest TEXT NOT NULL,
  job_uid TEXT NOT NULL,  -- may have been removed since
  time_us INTEGER NOT NULL,
  PRIMARY KEY (project, request_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX request_ids_by_time ON request_ids (time_us);

-- An id has versions, numbered from 1: other content under the same id is the next one.
CREATE TABLE datasets (
  number INTEGER PRIMARY KEY,
  project TEXT NOT NULL,
  id TEXT NOT NULL,
  version INTEGER NOT NULL CHECK (version >= 1),
  digest TEXT NOT NULL,
  state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 3),  -- Dataset.State
  reason TEXT NOT NULL,
  message TEXT NOT NULL,
  spec BLOB NOT NULL,    -- DatasetSpec
  schema BLOB NOT NULL,  -- DatasetSchema
  size_bytes INTEGER NOT NULL,
  create_time_us INTEGER NOT NULL,
  UNIQUE (project, id, version)
) STRICT;
CREATE INDEX datasets_by_digest ON datasets (digest);
-- Kept for ever, also when every version was deleted: jobs and models name versions, which never mean anything else.
CREATE TABLE dataset_ids (
  project TEXT NOT NULL,
  id TEXT NOT NULL,
  newest_version INTEGER NOT NULL,  -- that was ever given
  PRIMARY KEY (project, id)
) STRICT, WITHOUT ROWID;

-- A part belongs to the size that was declared with it: a client that declares a wrong size does not stand in the way of one
-- that is right.
CREATE TABLE uploads (
  project TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  size_bytes INTEGER NOT NULL CHECK (size_bytes >= 0),
  committed_size INTEGER NOT NULL CHECK (committed_size BETWEEN 0 AND size_bytes),
  complete INTEGER NOT NULL CHECK (complete IN (0, 1)),
  active_time_us INTEGER NOT NULL,
  PRIMARY KEY (project, sha256, size_bytes)
) STRICT, WITHOUT ROWID;

-- Models of weights alone, which no job trained: job_uid is '', and the file is the upload of the model's digest.
CREATE TABLE models (
  number INTEGER PRIMARY KEY,
  project TEXT NOT NULL,
  id TEXT NOT NULL,
  job_uid TEXT NOT NULL,
  dataset TEXT NOT NULL DEFAULT '',  -- full name, with its version, of what it was trained on; '' for weights alone
  digest TEXT NOT NULL,
  size_bytes INTEGER NOT NULL,
  parameter_count INTEGER NOT NULL,
  tensor_count INTEGER NOT NULL,
  tensors BLOB NOT NULL,  -- Model, of which only tensors
  metrics BLOB NOT NULL,  -- Progress, of which only metrics
  schema BLOB NOT NULL,   -- DatasetSchema
  create_time_us INTEGER NOT NULL,
  UNIQUE (project, id)
) STRICT;

-- Rates of devices by which jobs are forecast, as measured (JSON, src/forecast/rates.h). `device_key` is what they hold for:
-- the device's model, its cores, the build. The newest of a key counts.
CREATE TABLE device_rates (
  device_key TEXT NOT NULL,
  threads INTEGER NOT NULL,
  precision INTEGER NOT NULL,
  time_us INTEGER NOT NULL,
  rates TEXT NOT NULL,
  PRIMARY KEY (device_key, threads, precision)
) STRICT, WITHOUT ROWID;
-- Rates of the nodes of clusters, as their workers measured them (JSON, src/forecast/rates.h). `node` is what computes alike: the
-- CPU's model with its cores, or the GPU's model. The newest of a key counts, whatever build it is of.
CREATE TABLE node_rates (
  cluster TEXT NOT NULL,
  node TEXT NOT NULL,
  threads INTEGER NOT NULL,
  precision INTEGER NOT NULL,
  build TEXT NOT NULL,
  time_us INTEGER NOT NULL,
  -- When a job last ended on such a node, the memory of one, and the time limit of a start there; 0: unknown.
  seen_us INTEGER NOT NULL,
  memory_bytes INTEGER NOT NULL,
  time_limit_s INTEGER NOT NULL,
  rates TEXT NOT NULL,
  PRIMARY KEY (cluster, node, threads, precision)
) STRICT, WITHOUT ROWID;
-- What jobs that ended were forecast to take, and what they took. `graph` is the digest of a step's work: jobs of the same
-- one on the same device correct later forecasts.
CREATE TABLE forecast_outcomes (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  device_model TEXT NOT NULL,
  threads INTEGER NOT NULL,
  precision INTEGER NOT NULL,
  graph TEXT NOT NULL,
  job TEXT NOT NULL,
  end_time_us INTEGER NOT NULL,
  basis TEXT NOT NULL,
  steps INTEGER NOT NULL,
  step_seconds REAL NOT NULL,
  step_seconds_low REAL NOT NULL,
  step_seconds_high REAL NOT NULL,
  step_seconds_measured REAL NOT NULL,
  total_seconds REAL NOT NULL,
  total_seconds_measured REAL NOT NULL
) STRICT;

-- What each owner has used of the devices, in device-seconds that count half after each half-life (settings:
-- 'share_half_life_us'; without it nothing is counted). It outlives the jobs and their attempts.
CREATE TABLE owner_uses (
  owner TEXT NOT NULL PRIMARY KEY,
  used REAL NOT NULL,
  as_of_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

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
