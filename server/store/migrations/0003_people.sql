-- People, their roles in projects and on the server, their tokens, and what projects share.

-- From now on a project exists if it has a row in `projects`; only CreateProject inserts one.
ALTER TABLE projects ADD COLUMN create_time_us INTEGER NOT NULL DEFAULT 0;
-- The devices that the project's jobs may use, one a line; "gpu" stands for all GPUs. '' for all devices.
ALTER TABLE projects ADD COLUMN devices TEXT NOT NULL DEFAULT '';
INSERT OR IGNORE INTO projects (name, queued) VALUES ('default', 0);
INSERT OR IGNORE INTO projects (name, queued) SELECT DISTINCT project, 0 FROM jobs;
INSERT OR IGNORE INTO projects (name, queued) SELECT DISTINCT project, 0 FROM datasets;
INSERT OR IGNORE INTO projects (name, queued) SELECT DISTINCT project, 0 FROM models;
CREATE TRIGGER projects_default_stays BEFORE DELETE ON projects WHEN old.name = 'default' BEGIN
  SELECT RAISE(ABORT, 'the project "default" stays');
END;
DROP TRIGGER jobs_queued_on_insert;
CREATE TRIGGER jobs_queued_on_insert AFTER INSERT ON jobs BEGIN
  SELECT RAISE(ABORT, 'the project of a job must exist')
    WHERE NOT EXISTS (SELECT 1 FROM projects WHERE name = new.project);
  UPDATE projects SET queued = queued + 1 WHERE name = new.project AND new.state = 1;
END;
CREATE TRIGGER datasets_in_project BEFORE INSERT ON datasets
  WHEN NOT EXISTS (SELECT 1 FROM projects WHERE name = new.project) BEGIN
  SELECT RAISE(ABORT, 'the project of a dataset must exist');
END;
CREATE TRIGGER models_in_project BEFORE INSERT ON models
  WHEN NOT EXISTS (SELECT 1 FROM projects WHERE name = new.project) BEGIN
  SELECT RAISE(ABORT, 'the project of a model must exist');
END;
CREATE TRIGGER uploads_in_project BEFORE INSERT ON uploads
  WHEN NOT EXISTS (SELECT 1 FROM projects WHERE name = new.project) BEGIN
  SELECT RAISE(ABORT, 'the project of an upload must exist');
END;

CREATE TABLE people (
  name TEXT NOT NULL PRIMARY KEY,
  server_role INTEGER NOT NULL CHECK (server_role BETWEEN 1 AND 3),  -- ServerRole
  service INTEGER NOT NULL CHECK (service IN (0, 1)),
  -- 1 once the person has called on the Unix socket: a user of the host, who has the setting socket_role in 'default'.
  host_user INTEGER NOT NULL DEFAULT 0 CHECK (host_user IN (0, 1)),
  create_time_us INTEGER NOT NULL,
  last_call_us INTEGER NOT NULL DEFAULT 0,  -- written at most once a minute
  CHECK (service = 0 OR host_user = 0)
) STRICT, WITHOUT ROWID;
CREATE INDEX people_by_role ON people (server_role) WHERE server_role > 1;

CREATE TABLE members (
  project TEXT NOT NULL REFERENCES projects (name) ON DELETE CASCADE,
  person TEXT NOT NULL REFERENCES people (name) ON DELETE CASCADE,
  -- ProjectRole. Only 'default' has rows with 1 (NONE): such a person does not get socket_role there.
  role INTEGER NOT NULL CHECK (role BETWEEN 1 AND 4 AND (role > 1 OR project = 'default')),
  PRIMARY KEY (project, person)
) STRICT, WITHOUT ROWID;
CREATE INDEX members_by_person ON members (person);

CREATE TABLE tokens (
  id TEXT NOT NULL PRIMARY KEY,
  person TEXT NOT NULL REFERENCES people (name) ON DELETE CASCADE,
  name TEXT NOT NULL,
  digest TEXT NOT NULL UNIQUE,  -- SHA-256 of the token's text, which is stored nowhere
  -- The digest before the last rotation, which is valid until old_end_us. '' for none.
  old_digest TEXT NOT NULL DEFAULT '',
  old_end_us INTEGER NOT NULL DEFAULT 0,
  rotations INTEGER NOT NULL DEFAULT 0,
  create_time_us INTEGER NOT NULL,
  valid_us INTEGER NOT NULL CHECK (valid_us >= 0),  -- how long it was valid at first; 0: it never expires
  expire_time_us INTEGER NOT NULL,                  -- 0: never
  last_use_us INTEGER NOT NULL DEFAULT 0,           -- written at most once a minute
  UNIQUE (person, name)
) STRICT, WITHOUT ROWID;
-- The people for whom a service's token may act; '*' stands for all but operators and admins.
CREATE TABLE token_acts_for (
  token TEXT NOT NULL REFERENCES tokens (id) ON DELETE CASCADE,
  person TEXT NOT NULL,
  PRIMARY KEY (token, person)
) STRICT, WITHOUT ROWID;
-- Digests of texts that were revoked or replaced, so that their bearers learn why they are refused. The newest 10,000 stay.
CREATE TABLE revoked_tokens (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  digest TEXT NOT NULL UNIQUE
) STRICT;
CREATE TRIGGER revoked_tokens_bounded AFTER INSERT ON revoked_tokens BEGIN
  DELETE FROM revoked_tokens WHERE number <= new.number - 10000;
END;
CREATE TRIGGER tokens_revoked AFTER DELETE ON tokens BEGIN
  INSERT OR IGNORE INTO revoked_tokens (digest) VALUES (old.digest);
  INSERT OR IGNORE INTO revoked_tokens (digest) SELECT old.old_digest WHERE old.old_digest <> '';
END;
CREATE TRIGGER tokens_rotated AFTER UPDATE OF old_digest ON tokens
  WHEN old.old_digest <> '' AND old.old_digest <> new.old_digest BEGIN
  INSERT OR IGNORE INTO revoked_tokens (digest) VALUES (old.old_digest);
END;
-- A later person of the same name is another person.
CREATE TRIGGER people_act_for_ends AFTER DELETE ON people BEGIN
  DELETE FROM token_acts_for WHERE person = old.name;
END;

-- A dataset or a model that another project may read and use in its jobs.
CREATE TABLE shares (
  project TEXT NOT NULL REFERENCES projects (name) ON DELETE CASCADE,
  collection TEXT NOT NULL CHECK (collection IN ('datasets', 'models')),
  id TEXT NOT NULL,  -- digits: all versions of the dataset; digits@2: this one
  with_project TEXT NOT NULL REFERENCES projects (name) ON DELETE CASCADE,
  person TEXT NOT NULL REFERENCES people (name) ON DELETE CASCADE,  -- who shared it
  time_us INTEGER NOT NULL,
  PRIMARY KEY (project, collection, id, with_project),
  CHECK (project <> with_project)
) STRICT, WITHOUT ROWID;
CREATE INDEX shares_received ON shares (with_project);
CREATE INDEX shares_by_person ON shares (person);
-- A share ends with its object: a later one of the same name is another.
CREATE TRIGGER datasets_end_shares AFTER DELETE ON datasets BEGIN
  DELETE FROM shares WHERE project = old.project AND collection = 'datasets'
    AND (id = old.id || '@' || old.version
      OR id = old.id AND NOT EXISTS (SELECT 1 FROM datasets WHERE project = old.project AND id = old.id));
END;
CREATE TRIGGER models_end_shares AFTER DELETE ON models BEGIN
  DELETE FROM shares WHERE project = old.project AND collection = 'models' AND id = old.id;
END;
