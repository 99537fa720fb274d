-- What each owner has used of the devices, in device-seconds that count half after each half-life (settings:
-- 'share_half_life_us'; without it nothing is counted). It outlives the jobs and their attempts.
CREATE TABLE owner_uses (
  owner TEXT NOT NULL PRIMARY KEY,
  used REAL NOT NULL,
  as_of_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Attempts that go on (0), and the latest that ended.
CREATE INDEX attempts_by_end ON attempts (end_time_us);
