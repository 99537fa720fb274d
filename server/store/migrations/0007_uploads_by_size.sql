-- A part belongs to the size that was declared with it: a client that declares a wrong size no longer stands in the way of
-- one that is right. Parts under way start again.
CREATE TABLE uploads_by_size (
  tenant TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  size_bytes INTEGER NOT NULL CHECK (size_bytes >= 0),
  committed_size INTEGER NOT NULL CHECK (committed_size BETWEEN 0 AND size_bytes),
  complete INTEGER NOT NULL CHECK (complete IN (0, 1)),
  active_time_us INTEGER NOT NULL,
  PRIMARY KEY (tenant, sha256, size_bytes)
) STRICT, WITHOUT ROWID;
INSERT INTO uploads_by_size
  SELECT tenant, sha256, size_bytes, committed_size, complete, active_time_us FROM uploads WHERE complete = 1;
DROP TABLE uploads;
ALTER TABLE uploads_by_size RENAME TO uploads;
