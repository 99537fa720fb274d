-- Times are microseconds since 1970 in UTC; 0 means "not yet". Blobs are serialized messages of trainyard.v1.
-- A released migration is never edited; each change of the schema is a new file.

CREATE TABLE settings (
  key TEXT NOT NULL PRIMARY KEY,
  value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE projects (
  name TEXT NOT NULL PRIMARY KEY,
  queued INTEGER NOT NULL CHECK (queued >= 0)  -- jobs in state QUEUED, maintained by triggers
) STRICT, WITHOUT ROWID;

CREATE TABLE jobs (
  number INTEGER PRIMARY KEY,  -- order of submission
  project TEXT NOT NULL,
  id TEXT NOT NULL,
  uid TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,  -- the authenticated submitter: a user's name, a token's name, or "anonymous"
  dataset TEXT NOT NULL,  -- id of the dataset, for DATASET_IN_USE; '' for none
  dataset_version INTEGER NOT NULL,
  initial_model TEXT NOT NULL,  -- id of the model that the job begins with, for MODEL_IN_USE; '' for none
  spec BLOB NOT NULL,           -- JobSpec, immutable
  origin BLOB NOT NULL DEFAULT x'',  -- JobOrigin: the checkpoint of another job that it began at
  state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 7),  -- JobState
  reason TEXT NOT NULL,
  message TEXT NOT NULL,
  priority INTEGER NOT NULL,
  -- Its number of rows in `dependencies`; jobs above 0 are not in the scheduler's queue.
  waits_for INTEGER NOT NULL,
  cancel_requested INTEGER NOT NULL CHECK (cancel_requested IN (0, 1)),
  -- Only 1 while the job is active.
  pause_requested INTEGER NOT NULL DEFAULT 0 CHECK (pause_requested IN (0, 1)),
  attempt INTEGER NOT NULL,
  -- The number of attempts whose end neither the job nor its worker caused: the daemon was drained, the
  -- worker could not be started, or a file was temporarily unreadable. They do not count towards the limit of
  -- attempts.
  attempts_uncounted INTEGER NOT NULL DEFAULT 0,
  workers_lost INTEGER NOT NULL,
  retry_time_us INTEGER NOT NULL,
  device TEXT NOT NULL,  -- first device of the current or last attempt
  more_devices TEXT NOT NULL DEFAULT '',  -- its other devices, separated by blanks; '' for most jobs
  create_time_us INTEGER NOT NULL,
  start_time_us INTEGER NOT NULL,
  end_time_us INTEGER NOT NULL,
  -- The time in RUNNING summed over ended attempts, and the time at which the job became RUNNING (0: it is
  -- not RUNNING). Time limits apply to the sum of both periods.
  run_time_us INTEGER NOT NULL DEFAULT 0,
  running_since_us INTEGER NOT NULL DEFAULT 0,
  plan BLOB NOT NULL,      -- RunPlan
  progress BLOB NOT NULL,  -- Progress
  checkpoint_step INTEGER NOT NULL,
  model TEXT NOT NULL,
  newest_seq INTEGER NOT NULL,
  event_time_us INTEGER NOT NULL,  -- time of the newest event; no later event has an earlier time
  -- How far the old events of a finished job were removed: 0 not at all, 1 some of them, 2 all removable
  -- ones, 3 none was removable.
  events_thinned INTEGER NOT NULL DEFAULT 0,
  array INTEGER NOT NULL DEFAULT 0,  -- number of the job's array; 0: the job belongs to none
  array_index INTEGER NOT NULL DEFAULT 0,  -- the job's index in the array
  array_values BLOB NOT NULL DEFAULT x'',  -- ArrayMember: the values that replace those of the array's spec
  UNIQUE (project, id)
) STRICT;

-- This partial index stays small however many jobs have finished. Recovery and the scheduler use it.
CREATE INDEX jobs_unfinished ON jobs (project, dataset, state) WHERE state < 5;
-- With this index a list of jobs reads only the rows of its page, for any states and however many jobs have
-- ended, because entries of one state and project are in the order of submission. It also finds running jobs.
CREATE INDEX jobs_by_state ON jobs (state, project, array > 0);
CREATE INDEX jobs_by_owner ON jobs (owner, state, project, array > 0);
CREATE INDEX jobs_by_array ON jobs (array, state) WHERE array > 0;
-- Finished jobs by their end time, for the retention rules about jobs and events.
CREATE INDEX jobs_by_end ON jobs (end_time_us, events_thinned) WHERE state >= 5;

CREATE TRIGGER jobs_queued_on_insert AFTER INSERT ON jobs WHEN new.state = 1 BEGIN
  INSERT INTO projects (name, queued) VALUES (new.project, 1)
    ON CONFLICT (name) DO UPDATE SET queued = queued + 1;
END;
CREATE TRIGGER jobs_queued_on_update AFTER UPDATE OF state ON jobs WHEN (old.state = 1) <> (new.state = 1) BEGIN
  UPDATE projects SET queued = queued + (new.state = 1) - (old.state = 1) WHERE name = new.project;
END;
-- The code never changes a terminal state (can_move); this trigger makes the database refuse it too.
CREATE TRIGGER jobs_terminal_once BEFORE UPDATE OF state ON jobs WHEN old.state >= 5 AND new.state <> old.state BEGIN
  SELECT RAISE(ABORT, 'a terminal job state is written once');
END;

-- The job `job` waits for the job `after`. A row is deleted after `after` has ended, so the table has rows
-- only for jobs that still wait.
CREATE TABLE dependencies (
  job INTEGER NOT NULL REFERENCES jobs (number) ON DELETE CASCADE,
  after INTEGER NOT NULL REFERENCES jobs (number) ON DELETE CASCADE,
  -- 1: any terminal state is enough; 0: it must be SUCCEEDED
  any_end INTEGER NOT NULL CHECK (any_end IN (0, 1)),
  PRIMARY KEY (job, after)
) STRICT, WITHOUT ROWID;
CREATE INDEX dependencies_by_after ON dependencies (after);

-- An array is many jobs that differ in some values. Its members are rows of `jobs`. The array's row is
-- deleted together with its last member.
CREATE TABLE arrays (
  number INTEGER PRIMARY KEY,  -- order of submission
  project TEXT NOT NULL,
  id TEXT NOT NULL,
  uid TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  spec BLOB NOT NULL,  -- JobSpec as submitted; shared by the members
  array_spec BLOB NOT NULL,  -- ArraySpec as submitted
  size INTEGER NOT NULL CHECK (size > 0),  -- number of members at submission
  create_time_us INTEGER NOT NULL,
  end_time_us INTEGER NOT NULL,  -- when the last member so far ended
  UNIQUE (project, id)
) STRICT;
-- The number of members in each state, maintained by triggers so that a list of arrays need not count rows.
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
  -- 1 if another job used a device of the attempt at the same time, so that the step times do not measure the
  -- device alone.
  shared INTEGER NOT NULL DEFAULT 0 CHECK (shared IN (0, 1)),
  -- The cluster's ID of the attempt. '' until it is known, and for attempts on the server's own devices.
  handle TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (job, number)
) STRICT, WITHOUT ROWID;
-- Finds live attempts (end time 0) and those that ended last.
CREATE INDEX attempts_by_end ON attempts (end_time_us);

CREATE TABLE events (
  job INTEGER NOT NULL REFERENCES jobs (number) ON DELETE CASCADE,
  seq INTEGER NOT NULL,
  payload BLOB NOT NULL,  -- Event, with its seq, time and attempt; its metrics are packed (event_rows.h)
  PRIMARY KEY (job, seq)
) STRICT, WITHOUT ROWID;
-- The parts of an event that would need an overflow page of 4096 bytes if it were stored as one row of
-- `events`. Its payload in `events` is empty.
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
  job_uid TEXT NOT NULL,  -- job or array that the request created; may have been removed since
  time_us INTEGER NOT NULL,
  PRIMARY KEY (project, request_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX request_ids_by_time ON request_ids (time_us);

-- An ID has versions, numbered from 1. New content under the same ID becomes the next version.
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
-- These rows are never deleted, even if all versions of the dataset are: jobs and models refer to version
-- numbers, so a number must not be reused.
CREATE TABLE dataset_ids (
  project TEXT NOT NULL,
  id TEXT NOT NULL,
  newest_version INTEGER NOT NULL,  -- the largest number that was ever assigned
  PRIMARY KEY (project, id)
) STRICT, WITHOUT ROWID;

-- The declared size is part of the key, so that a client that declares a wrong size does not block a client
-- that declares the right one.
CREATE TABLE uploads (
  project TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  size_bytes INTEGER NOT NULL CHECK (size_bytes >= 0),
  committed_size INTEGER NOT NULL CHECK (committed_size BETWEEN 0 AND size_bytes),
  complete INTEGER NOT NULL CHECK (complete IN (0, 1)),
  active_time_us INTEGER NOT NULL,
  PRIMARY KEY (project, sha256, size_bytes)
) STRICT, WITHOUT ROWID;

-- A model that consists of uploaded weights only, and was trained by no job, has job_uid ''. Its file is the
-- upload with the model's digest.
CREATE TABLE models (
  number INTEGER PRIMARY KEY,
  project TEXT NOT NULL,
  id TEXT NOT NULL,
  job_uid TEXT NOT NULL,
  dataset TEXT NOT NULL DEFAULT '',  -- full name and version of the training dataset; '' for uploaded weights
  digest TEXT NOT NULL,
  size_bytes INTEGER NOT NULL,
  parameter_count INTEGER NOT NULL,
  tensor_count INTEGER NOT NULL,
  tensors BLOB NOT NULL,  -- Model with only the field `tensors` set
  metrics BLOB NOT NULL,  -- Progress with only the field `metrics` set
  schema BLOB NOT NULL,   -- DatasetSchema
  create_time_us INTEGER NOT NULL,
  UNIQUE (project, id)
) STRICT;

-- Measured rates of devices, from which jobs are forecast (JSON, src/forecast/rates.h). `device_key` names
-- the device's model, its number of cores and the program's build. A new measurement replaces that of the
-- same key.
CREATE TABLE device_rates (
  device_key TEXT NOT NULL,
  threads INTEGER NOT NULL,
  precision INTEGER NOT NULL,
  time_us INTEGER NOT NULL,
  rates TEXT NOT NULL,
  PRIMARY KEY (device_key, threads, precision)
) STRICT, WITHOUT ROWID;
-- Rates of the nodes of clusters, measured by their workers (JSON, src/forecast/rates.h). `node` names a kind
-- of node: the CPU's model with its number of cores, or the GPU's model. A new measurement replaces that of
-- the same key, from any build.
CREATE TABLE node_rates (
  cluster TEXT NOT NULL,
  node TEXT NOT NULL,
  threads INTEGER NOT NULL,
  precision INTEGER NOT NULL,
  build TEXT NOT NULL,
  time_us INTEGER NOT NULL,
  -- When a job last ended on such a node; the node's memory in bytes and the time limit of an attempt there
  -- in seconds, 0 if unknown.
  seen_us INTEGER NOT NULL,
  memory_bytes INTEGER NOT NULL,
  time_limit_s INTEGER NOT NULL,
  rates TEXT NOT NULL,
  PRIMARY KEY (cluster, node, threads, precision)
) STRICT, WITHOUT ROWID;
-- The forecast and the measured times of jobs that succeeded. `graph` is the digest of the work of one step.
-- Outcomes with the same graph and device correct later forecasts.
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

-- Each owner's use of devices in device-seconds, which decay exponentially with the half-life in the setting
-- 'share_half_life_us'; without the setting nothing is counted. The rows outlive the jobs and their attempts.
CREATE TABLE owner_uses (
  owner TEXT NOT NULL PRIMARY KEY,
  used REAL NOT NULL,
  as_of_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Devices that an operator has drained: no job starts on them. The key of a GPU is its UUID, which survives a
-- renumbering; the CPU has none.
CREATE TABLE device_drains (
  device TEXT NOT NULL PRIMARY KEY,  -- the device's UUID, or its name if it has no UUID
  name TEXT NOT NULL,                -- devices/{device} when it was drained
  model TEXT NOT NULL,
  reason TEXT NOT NULL,
  owner TEXT NOT NULL,
  vacate INTEGER NOT NULL CHECK (vacate IN (0, 1)),
  time_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
