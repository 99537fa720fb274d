-- An id has versions, numbered from 1: other content under the same id is the next one. What was there is version 1.

CREATE TABLE datasets_with_versions (
  number INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
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
  UNIQUE (tenant, id, version)
) STRICT;
INSERT INTO datasets_with_versions
  SELECT number, tenant, id, 1, digest, state, reason, message, spec, schema, size_bytes, create_time_us FROM datasets;
DROP TABLE datasets;
ALTER TABLE datasets_with_versions RENAME TO datasets;
CREATE INDEX datasets_by_digest ON datasets (digest);

-- Kept for ever, also when every version was deleted: jobs and models name versions, which never mean anything else.
CREATE TABLE dataset_ids (
  tenant TEXT NOT NULL,
  id TEXT NOT NULL,
  newest_version INTEGER NOT NULL,  -- that was ever given
  PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;
INSERT INTO dataset_ids SELECT tenant, id, 1 FROM datasets
  UNION SELECT tenant, dataset, 1 FROM jobs WHERE dataset <> '';

-- Beside `dataset`. The specs of older jobs name no version: they are read as of version 1.
ALTER TABLE jobs ADD COLUMN dataset_version INTEGER NOT NULL DEFAULT 1;

-- The full name, with its version, of the dataset that the model was trained on; '' for weights alone, and where the job
-- of an older daemon is gone.
ALTER TABLE models ADD COLUMN dataset TEXT NOT NULL DEFAULT '';
UPDATE models SET dataset = 'tenants/' || jobs.tenant || '/datasets/' || jobs.dataset || '@1'
  FROM jobs WHERE jobs.uid = models.job_uid AND jobs.dataset <> '';
