-- Rates of the nodes of pools, as their workers measured them (JSON, src/forecast/rates.h). `node` is what computes alike: the
-- CPU's model with its cores, or the GPU's model. The newest of a key counts, whatever build it is of.
CREATE TABLE node_rates (
  pool TEXT NOT NULL,
  node TEXT NOT NULL,
  threads INTEGER NOT NULL,
  precision INTEGER NOT NULL,
  build TEXT NOT NULL,
  time_us INTEGER NOT NULL,
  -- When a job last ended on such a node, the memory of one, and the time limit of a start there; 0: unknown.
  seen_us INTEGER NOT NULL,
  memory_bytes INTEGER NOT NULL,
  time_limit_s INTEGER NOT NULL,
  rates TEXT NOT NULL,
  PRIMARY KEY (pool, node, threads, precision)
) STRICT, WITHOUT ROWID;
