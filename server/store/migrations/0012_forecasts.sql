-- Rates of devices by which jobs are forecast, as measured (JSON, src/forecast/rates.h). `device_key` is what they hold for:
-- the device's model, its cores, the build. The newest of a key counts.
CREATE TABLE device_rates (
  device_key TEXT NOT NULL,
  threads INTEGER NOT NULL,
  precision INTEGER NOT NULL,
  time_us INTEGER NOT NULL,
  rates TEXT NOT NULL,
  PRIMARY KEY (device_key, threads, precision)
) STRICT, WITHOUT ROWID;

-- What jobs that ended were forecast to take, and what they took. `graph` is the digest of a step's work: jobs of the same
-- one on the same device correct later forecasts.
CREATE TABLE forecast_outcomes (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  device_model TEXT NOT NULL,
  threads INTEGER NOT NULL,
  precision INTEGER NOT NULL,
  graph TEXT NOT NULL,
  job TEXT NOT NULL,
  end_time_us INTEGER NOT NULL,
  basis TEXT NOT NULL,
  steps INTEGER NOT NULL,
  step_seconds REAL NOT NULL,
  step_seconds_low REAL NOT NULL,
  step_seconds_high REAL NOT NULL,
  step_seconds_measured REAL NOT NULL,
  total_seconds REAL NOT NULL,
  total_seconds_measured REAL NOT NULL
) STRICT;
