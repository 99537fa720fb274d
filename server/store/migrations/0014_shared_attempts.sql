-- Another job was on a device of the attempt: what its steps took says nothing about the device alone.
ALTER TABLE attempts ADD COLUMN shared INTEGER NOT NULL DEFAULT 0;
