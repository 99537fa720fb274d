-- A made-up third version of the schema, as the next release might have it: tests upgrade to it and back.
ALTER TABLE jobs ADD COLUMN made_up TEXT NOT NULL DEFAULT 'before';
