-- Times are microseconds since 1970 in UTC; 0 is "not yet". Blobs are serialized messages of trainyard.v1.
-- A migration that was released is never edited: the next change is the next file.

CREATE TABLE settings (
  key TEXT NOT NULL PRIMARY KEY,
  value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE tenants (
  name TEXT NOT NULL PRIMARY KEY,
  queued INTEGER NOT NULL CHECK (queued >= 0)  -- jobs in state QUEUED, kept by triggers
) STRICT, WITHOUT ROWID;

CREATE TABLE jobs (
  number INTEGER PRIMARY KEY,  -- order of submission
  tenant TEXT NOT NULL,
  id TEXT NOT NULL,
  uid TEXT NOT NULL UNIQUE,
  dataset TEXT NOT NULL,  -- id of the dataset, for DATASET_IN_USE; '' for none
  spec BLOB NOT NULL,     -- JobSpec, immutable
  state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 7),  -- JobState
  reason TEXT NOT NULL,
  message TEXT NOT NULL,
  priority INTEGER NOT NULL,
  cancel_requested INTEGER NOT NULL CHECK (cancel_requested IN (0, 1)),
  attempt INTEGER NOT NULL,
  device TEXT NOT NULL,
  create_time_us INTEGER NOT NULL,
  start_time_us INTEGER NOT NULL,
  end_time_us INTEGER NOT NULL,
  plan BLOB NOT NULL,      -- RunPlan
  progress BLOB NOT NULL,  -- Progress
  checkpoint_step INTEGER NOT NULL,
  model TEXT NOT NULL,
  newest_seq INTEGER NOT NULL,
  event_time_us INTEGER NOT NULL,  -- of the newest event: the next one is not earlier
  workers_lost INTEGER NOT NULL,
  retry_time_us INTEGER NOT NULL,
  UNIQUE (tenant, id)
) STRICT;

-- Small for ever, however many jobs have finished: recovery and the scheduler read by it.
CREATE INDEX jobs_unfinished ON jobs (tenant, dataset, state) WHERE state < 5;

CREATE TRIGGER jobs_queued_on_insert AFTER INSERT ON jobs WHEN new.state = 1 BEGIN
  INSERT INTO tenants (name, queued) VALUES (new.tenant, 1)
    ON CONFLICT (name) DO UPDATE SET queued = queued + 1;
END;
CREATE TRIGGER jobs_queued_on_update AFTER UPDATE OF state ON jobs WHEN (old.state = 1) <> (new.state = 1) BEGIN
  UPDATE tenants SET queued = queued + (new.state = 1) - (old.state = 1) WHERE name = new.tenant;
END;
-- The code never does this (can_move); the file refuses it all the same.
CREATE TRIGGER jobs_terminal_once BEFORE UPDATE OF state ON jobs WHEN old.state >= 5 AND new.state <> old.state BEGIN
  SELECT RAISE(ABORT, 'a terminal job state is written once');
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
  PRIMARY KEY (job, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
  job INTEGER NOT NULL REFERENCES jobs (number) ON DELETE CASCADE,
  seq INTEGER NOT NULL,
  payload BLOB NOT NULL,  -- Event, with its seq, time and attempt
  PRIMARY KEY (job, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE request_ids (
  tenant TEXT NOT NULL,
  request_id TEXT NOT NULL,
  digest TEXT NOT NULL,
  job_uid TEXT NOT NULL,  -- may have been removed since
  time_us INTEGER NOT NULL,
  PRIMARY KEY (tenant, request_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX request_ids_by_time ON request_ids (time_us);

CREATE TABLE datasets (
  number INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  id TEXT NOT NULL,
  digest TEXT NOT NULL,
  state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 3),  -- Dataset.State
  reason TEXT NOT NULL,
  message TEXT NOT NULL,
  spec BLOB NOT NULL,    -- DatasetSpec
  schema BLOB NOT NULL,  -- DatasetSchema
  size_bytes INTEGER NOT NULL,
  create_time_us INTEGER NOT NULL,
  UNIQUE (tenant, id)
) STRICT;
CREATE INDEX datasets_by_digest ON datasets (digest);

CREATE TABLE uploads (
  tenant TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  size_bytes INTEGER NOT NULL CHECK (size_bytes >= 0),
  committed_size INTEGER NOT NULL CHECK (committed_size BETWEEN 0 AND size_bytes),
  complete INTEGER NOT NULL CHECK (complete IN (0, 1)),
  active_time_us INTEGER NOT NULL,
  PRIMARY KEY (tenant, sha256)
) STRICT, WITHOUT ROWID;

CREATE TABLE models (
  number INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  id TEXT NOT NULL,
  job_uid TEXT NOT NULL,
  digest TEXT NOT NULL,
  size_bytes INTEGER NOT NULL,
  parameter_count INTEGER NOT NULL,
  metrics BLOB NOT NULL,  -- Progress, of which only metrics
  schema BLOB NOT NULL,   -- DatasetSchema
  create_time_us INTEGER NOT NULL,
  UNIQUE (tenant, id)
) STRICT;
