-- Datasets and models have an owner, as jobs and arrays do: the person who created them, or '' if nobody is
-- known. The owner of older datasets and uploaded models is in the audit, that of a trained model is its job's.
ALTER TABLE datasets ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE models ADD COLUMN owner TEXT NOT NULL DEFAULT '';
UPDATE datasets SET owner = made.caller
  FROM (SELECT object, caller, min(number) FROM audit
        WHERE action = 'CreateDataset' AND result = 'OK' GROUP BY object) AS made
  WHERE made.object = 'projects/' || project || '/datasets/' || id || '@' || version;
UPDATE models SET owner = made.caller
  FROM (SELECT object, caller, min(number) FROM audit
        WHERE action = 'CreateModel' AND result = 'OK' GROUP BY object) AS made
  WHERE made.object = 'projects/' || project || '/models/' || id;
UPDATE models SET owner = jobs.owner FROM jobs WHERE jobs.uid = models.job_uid;
CREATE INDEX datasets_by_owner ON datasets (owner);
CREATE INDEX models_by_owner ON models (owner);
CREATE INDEX arrays_by_owner ON arrays (owner);

-- The project of the job's dataset and of the model that the job begins with, if that project is another one,
-- which shares them; '' if they are of the job's project. The indexes find the unfinished jobs that use shared
-- data, for DATASET_IN_USE and MODEL_IN_USE; jobs that use data of their own project have no entries.
ALTER TABLE jobs ADD COLUMN dataset_project TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN initial_model_project TEXT NOT NULL DEFAULT '';
CREATE INDEX jobs_with_shared_dataset ON jobs (dataset_project, dataset) WHERE state < 5 AND dataset_project > '';
CREATE INDEX jobs_with_shared_model ON jobs (initial_model_project, initial_model)
  WHERE state < 5 AND initial_model_project > '';
