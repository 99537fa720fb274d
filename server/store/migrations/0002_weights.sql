-- Models of weights alone, which no job trained: job_uid is '', and the file is the upload of the model's digest.

ALTER TABLE models ADD COLUMN tensor_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE models ADD COLUMN tensors BLOB NOT NULL DEFAULT x'';  -- Model, of which only tensors

-- The id of the model that the job begins with, for MODEL_IN_USE; '' for none.
ALTER TABLE jobs ADD COLUMN initial_model TEXT NOT NULL DEFAULT '';
