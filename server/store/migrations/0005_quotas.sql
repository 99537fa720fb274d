-- The books of device use (server/store/usage_books.h).

-- One row for each attempt that occupies devices.
CREATE TABLE device_reservations (
  job INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  project TEXT NOT NULL,
  person TEXT NOT NULL,       -- the job's owner when the attempt started
  device_kind TEXT NOT NULL,  -- cpu, gpu, or clusters/{cluster}
  devices INTEGER NOT NULL CHECK (devices > 0),
  start_time_us INTEGER NOT NULL,
  forecast_us INTEGER NOT NULL CHECK (forecast_us >= 0),  -- time times devices; 0: unknown
  price_per_hour REAL NOT NULL,                           -- of one device; 0: unknown
  PRIMARY KEY (job, attempt)
) STRICT, WITHOUT ROWID;

-- The use of devices by ended attempts. The rows outlive jobs and attempts.
CREATE TABLE device_uses (
  day INTEGER NOT NULL,  -- days since 1970-01-01 UTC
  project TEXT NOT NULL,
  person TEXT NOT NULL,
  device_kind TEXT NOT NULL,
  device_us INTEGER NOT NULL,      -- time times devices
  priced_us INTEGER NOT NULL,      -- the part of device_us that had a price
  cost REAL NOT NULL,              -- of that part
  metered_us INTEGER NOT NULL,     -- the part of device_us whose energy was measured
  energy_joules REAL NOT NULL,     -- of that part
  PRIMARY KEY (day, project, person, device_kind)
) STRICT, WITHOUT ROWID;

-- Limits of a project (person ''), of a person (project ''), or of a person in a project.
CREATE TABLE quotas (
  kind INTEGER NOT NULL CHECK (kind BETWEEN 1 AND 5),  -- QuotaKind
  project TEXT NOT NULL,
  person TEXT NOT NULL CHECK (project <> '' OR person <> ''),
  max INTEGER NOT NULL CHECK (max >= 0),
  PRIMARY KEY (kind, project, person)
) STRICT, WITHOUT ROWID;

-- A later project or person of the same name is another.
CREATE TRIGGER projects_end_quotas AFTER DELETE ON projects BEGIN
  DELETE FROM quotas WHERE project = old.name;
END;
CREATE TRIGGER people_end_quotas AFTER DELETE ON people BEGIN
  DELETE FROM quotas WHERE person = old.name;
END;

-- Attempts that run during the upgrade are settled at their end, as all others.
INSERT INTO device_reservations
  SELECT attempts.job, attempts.number, jobs.project, jobs.owner,
    CASE WHEN jobs.device = 'devices/cpu' THEN 'cpu' WHEN jobs.device LIKE 'clusters/%' THEN jobs.device ELSE 'gpu' END,
    1 + iif(jobs.more_devices = '', 0, 1 + length(jobs.more_devices) - length(replace(jobs.more_devices, ' ', ''))),
    attempts.start_time_us, 0, 0
  FROM attempts JOIN jobs ON jobs.number = attempts.job WHERE attempts.end_time_us = 0;
-- Attempts that ended before the upgrade count on the day of their end, without a price.
INSERT INTO device_uses
  SELECT attempts.end_time_us / 86400000000, jobs.project, jobs.owner,
    CASE WHEN jobs.device = 'devices/cpu' THEN 'cpu' WHEN jobs.device LIKE 'clusters/%' THEN jobs.device ELSE 'gpu' END
      AS kind,
    sum((attempts.end_time_us - attempts.start_time_us) *
      (1 + iif(jobs.more_devices = '', 0, 1 + length(jobs.more_devices) - length(replace(jobs.more_devices, ' ', ''))))),
    0, 0, 0, 0
  FROM attempts JOIN jobs ON jobs.number = attempts.job WHERE attempts.end_time_us > attempts.start_time_us
  GROUP BY attempts.end_time_us / 86400000000, jobs.project, jobs.owner, kind;
