-- Attempts that ended by no doing of the job or its worker: a drained daemon, a worker that could not be started, a file
-- that could not be read just then. They do not count towards the attempts that a job may have.

ALTER TABLE jobs ADD COLUMN attempts_uncounted INTEGER NOT NULL DEFAULT 0;
