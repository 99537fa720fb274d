-- An attempt that a cluster runs: how the cluster calls it. Empty until that is known, and for the server's own devices.
ALTER TABLE attempts ADD COLUMN handle TEXT NOT NULL DEFAULT '';
