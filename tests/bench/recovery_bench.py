"""Measures the cost of losing no work, and how soon training resumes after a kill. Real daemon,
real command line.

    TRAINYARD_BIN=build/release/bin python3 tests/bench/recovery_bench.py [PAIRS]

- checkpoints: a job with one about every second, compared with one that writes only the last, in
  alternating pairs
- live metrics and their storage: a job in the daemon compared with `local run`, by the training
  times that they report
- from kill -9 of a worker, of the daemon, and of both, to the first new step
- the start of a daemon with 100,000 finished jobs in its store
- the bytes that the metrics of a step take in the store
"""

import datetime
import json
import os
import pathlib
import shutil
import signal
import sqlite3
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import Daemon, digits_spec, wait_until  # noqa: E402

FINISHED_JOBS = 100_000
WEEK_STEPS = 7 * 24 * 3600 * 10  # at ten steps a second


def spec(folder, name, every, epochs):
    """Returns a job with a network of 1.2 million parameters whose steps take some milliseconds."""
    path = digits_spec(folder, name, "  mlp: {hidden: [1024, 1024]}", f"  checkpoint_every_steps: {every}\n")
    path.write_text(path.read_text().replace("epochs: 3", f"epochs: {epochs}"))
    return path


def seconds_running(daemon, name):
    """Returns the seconds between the events RUNNING and SUCCEEDED."""
    times = {e["state"]["state"]: datetime.datetime.fromisoformat(e["time"]) for e in daemon.events(name) if "state" in e}
    return (times["SUCCEEDED"] - times["RUNNING"]).total_seconds()


def checkpoints(daemon, folder, pairs):
    shares = []
    for i in range(pairs):
        took = {}
        for every in (100, 1_000_000) if i % 2 == 0 else (1_000_000, 100):
            name = f"every-{every}-{i}"
            daemon.submit(spec(folder, name, every, 12), "--wait")
            took[every] = seconds_running(daemon, name)
        saved = sum("checkpoint" in e for e in daemon.events(f"every-100-{i}"))
        shares.append(took[100] / took[1_000_000] - 1)
    print(f"checkpoints of {saved - 1} times 9.6 MB in {took[100]:.1f} s: {statistics.median(shares):+.1%} of the time, median of "
          f"{pairs} pairs from {min(shares):+.1%} to {max(shares):+.1%}; of one a minute "
          f"{statistics.median(shares) * took[100] / (saved - 1) / 60:+.2%}")


def live_metrics(daemon, folder, pairs):
    shares = []
    for i in range(pairs):
        path = spec(folder, f"live-{i}", 1_000_000, 12)
        rates = {}
        for where in ("daemon", "local") if i % 2 == 0 else ("local", "daemon"):
            begin = time.monotonic()
            if where == "local":
                daemon.cli("local", "run", path, "--out", folder / f"local-{i}", "--threads", 1)
                rates[where] = time.monotonic() - begin
            else:
                daemon.submit(path, "--wait")
                rates[where] = time.monotonic() - begin
        shares.append(rates["daemon"] - rates["local"])
    print(f"a job in the daemon beside `local run`, start and end included: {statistics.median(shares) * 1000:+.0f} ms of "
          f"{rates['local']:.1f} s, median of {pairs} pairs from {min(shares) * 1000:+.0f} to {max(shares) * 1000:+.0f} ms")


def back_to_training(daemon, folder):
    name = daemon.submit(spec(folder, "killed", 20, 100_000))
    step = [0]

    def trains_on():
        job = daemon.job(name)
        return job["state"] == "RUNNING" and int(job["progress"]["step"]) > step[0]

    for what in ("the worker", "the daemon", "both"):
        times = []
        for _ in range(7):
            wait_until(trains_on, "it trains")
            wait_until(lambda: int(daemon.job(name)["checkpoint_step"]) > step[0], "it has a checkpoint")
            step[0] = int(daemon.job(name)["progress"]["step"])
            begin = time.monotonic()
            if what != "the daemon":
                os.kill(daemon.worker_pids()[0], signal.SIGKILL)
            if what != "the worker":
                daemon.kill()
                daemon.start()
            wait_until(trains_on, "it trains again", interval_s=0.005)
            times.append(time.monotonic() - begin)
        print(f"from kill -9 of {what} to a step that is further: median {statistics.median(times):.2f} s, "
              f"worst {max(times):.2f} s of {len(times)}")
    daemon.cli("cancel", name)
    daemon.cli("wait", name, check=False)


def metrics_of_a_week(daemon, folder):
    def store_bytes():
        daemon.stop()
        size = (daemon.state / "trainyard.db").stat().st_size
        daemon.start()
        return size

    small = digits_spec(folder, "many-steps", "  mlp: {hidden: [8]}", "  checkpoint_every_steps: 1000000\n")
    small.write_text(small.read_text().replace("epochs: 3", "epochs: 1000"))
    before = store_bytes()
    name = daemon.submit(small, "--wait")
    steps = int(daemon.job(name)["progress"]["step"])
    each = (store_bytes() - before) / steps
    print(f"metrics of {steps} steps: {each:.1f} bytes a step; a week of ten steps a second: {each * WEEK_STEPS / 2**20:.0f} MiB")


def many_finished_jobs(daemon):
    """Inserts copies of one finished job, its attempt and its events into the store."""
    daemon.stop()
    with sqlite3.connect(daemon.state / "trainyard.db") as store:
        store.execute("PRAGMA foreign_keys = OFF")
        number = store.execute("SELECT number FROM jobs WHERE state = 5 AND attempt > 0 ORDER BY number LIMIT 1").fetchone()[0]
        first = store.execute("SELECT max(number) FROM jobs").fetchone()[0] + 1
        for table, key in (("jobs", "number"), ("attempts", "job"), ("events", "job"), ("event_parts", "job")):
            columns = [row[1] for row in store.execute(f"PRAGMA table_info({table})")]
            values = {key: "n.value", "id": "'copy-' || n.value", "uid": "'copy-' || n.value", "model": "''"}
            store.execute(
                f"WITH RECURSIVE n(value) AS (SELECT {first} UNION ALL SELECT value + 1 FROM n WHERE value + 1 < {first + FINISHED_JOBS}) "
                f"INSERT INTO {table} ({', '.join(columns)}) "
                f"SELECT {', '.join(values[c] if c in values and (table == 'jobs' or c == key) else 't.' + c for c in columns)} "
                f"FROM n, {table} t WHERE t.{key} = {number}")
    store.close()
    size = (daemon.state / "trainyard.db").stat().st_size / 2**20
    times = []
    for _ in range(5):
        begin = time.monotonic()
        daemon.start()
        times.append(time.monotonic() - begin)
        daemon.kill()
    daemon.start()
    begin = time.monotonic()
    count = len(json.loads(daemon.cli("list", "-o", "json").stdout)["jobs"])
    print(f"start with {FINISHED_JOBS} finished jobs ({size:.0f} MiB) after kill -9, until `health` says so: median "
          f"{statistics.median(times):.2f} s, worst {max(times):.2f} s of {len(times)}; the first {count} listed in "
          f"{time.monotonic() - begin:.2f} s")


def main():
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-bench-"))
    daemon = Daemon(folder / "state", "--threads-per-job", "1").start()
    try:
        print(f"{os.cpu_count()} cores; load before: {os.getloadavg()[0]:.1f}")
        checkpoints(daemon, folder, pairs)
        live_metrics(daemon, folder, pairs)
        back_to_training(daemon, folder)
        metrics_of_a_week(daemon, folder)
        many_finished_jobs(daemon)
        print(f"load after: {os.getloadavg()[0]:.1f}")
    finally:
        daemon.stop()
        daemon.kill_workers()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
