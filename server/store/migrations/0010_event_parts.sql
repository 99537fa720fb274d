-- Of an event that does not fit into a row of `events` without an overflow page, which would take 4096 bytes for the rest of
-- it: the payload in `events` is empty, and these are the pieces. Payloads with metrics may be packed from here on
-- (event_rows.h).
CREATE TABLE event_parts (
  job INTEGER NOT NULL REFERENCES jobs (number) ON DELETE CASCADE,
  seq INTEGER NOT NULL,
  part INTEGER NOT NULL,
  bytes BLOB NOT NULL,
  PRIMARY KEY (job, seq, part)
) STRICT, WITHOUT ROWID;
