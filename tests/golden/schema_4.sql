-- A made-up fourth version of the schema.
CREATE TABLE made_up (
  job INTEGER NOT NULL PRIMARY KEY REFERENCES jobs (number) ON DELETE CASCADE,
  word TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO made_up SELECT number, made_up FROM jobs;
