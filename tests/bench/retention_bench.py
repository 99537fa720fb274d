"""Measures the cost of removing finished jobs and of thinning their events, and how that slows
concurrent submits.

    python3 tests/bench/retention_bench.py [--jobs 100000] [--events 0] BIN [CLIENTS]

BIN is a folder with trainyardd, trainyard-worker and trainyard; CLIENTS, by default the same, is
one with submit_bench. The finished jobs are copies of one that trained, written into a stopped
daemon's store, with their events, --events more copies of the largest of these, and an empty
checkpoint folder each. All runs share one disk and the machine with its other load, so CPU times
are the relevant ones.

- rest: submits by one caller while nothing is removed
- thin: keep_events thins the events of all copies
- remove: keep_jobs removes all of them but 100
"""

import argparse
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import harness  # noqa: E402

SUBMIT_SECONDS = 5
DAY_US = 24 * 3600 * 1_000_000


def copy_ended_job(state, copies, more_events):
    """Copies the ended job. The copies' end times begin ten days ago, a second apart."""
    with sqlite3.connect(state / "trainyard.db") as store:
        number, newest = store.execute("SELECT number, newest_seq FROM jobs WHERE state = 5").fetchone()
        payload = store.execute("SELECT payload FROM events WHERE job = ? ORDER BY length(payload) DESC LIMIT 1",
                                (number,)).fetchone()[0]
        store.executemany("INSERT INTO events (job, seq, payload) VALUES (?, ?, ?)",
                          [(number, newest + 1 + i, payload) for i in range(more_events)])
        store.execute("UPDATE jobs SET newest_seq = newest_seq + ? WHERE number = ?", (more_events, number))
        values = {"jobs": {"number": "n.value", "id": "printf('copy-%06d', n.value)", "uid": "printf('copy-%021d', n.value)",
                           "end_time_us": f"end_time_us - {10 * DAY_US} + n.value"},
                  "events": {"job": "n.value"}, "event_parts": {"job": "n.value"}, "attempts": {"job": "n.value"}}
        for table, new in values.items():
            columns = [row[1] for row in store.execute(f"PRAGMA table_info({table})")]
            key = "number" if table == "jobs" else "job"
            store.execute(
                f"WITH RECURSIVE n(value) AS (SELECT {number + 10} UNION ALL SELECT value + 1 FROM n "
                f"WHERE value < {number + 9 + copies}) INSERT INTO {table} ({', '.join(columns)}) "
                f"SELECT {', '.join(new.get(c, 't.' + c) for c in columns)} FROM n, {table} t WHERE t.{key} = {number}")
        events = store.execute("SELECT count(*) FROM events WHERE job = ?", (number,)).fetchone()[0]
        uids = [row[0] for row in store.execute("SELECT uid FROM jobs WHERE id LIKE 'copy-%'")]
    store.close()
    for copy in uids:
        (state / "jobs" / copy / "checkpoints" / "step-000000001").mkdir(parents=True)
    return events


def cpu_seconds(process):
    """Returns the CPU seconds of all its threads, without its children (clock_getcpuclockid)."""
    return time.clock_gettime((~process.pid << 3) | 2)


def measure(programs, clients, state, what, *arguments, event=None, count=0):
    daemon = harness.Daemon(state, "--queued-jobs-max", "1000000", "--threads-per-job", "1", "--cpu-slots", "1", *arguments)
    daemon.log_path.unlink(missing_ok=True)
    daemon.start()
    begin = time.monotonic()
    text = subprocess.run([clients / "submit_bench", f"unix:{daemon.socket}", "digits", "1", str(SUBMIT_SECONDS)],
                          capture_output=True, text=True, check=True).stdout
    print(f"{what}: {' '.join(text.split())}")
    if event:
        def done():
            return daemon.log().count(f"event={event} ")
        harness.wait_until(lambda: done() >= count, f"{what} is through", timeout_s=1800, interval_s=0.5)
        print(f"{what}: {count} jobs in {time.monotonic() - begin:.0f} s, the daemon's CPU with those submits "
              f"{cpu_seconds(daemon.process):.1f} s")
    daemon.kill()
    daemon.kill_workers()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--events", type=int, default=0, help="of each, besides those of the job that trained")
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("clients", type=pathlib.Path, nargs="?")
    arguments = parser.parse_args()
    harness.BIN = arguments.programs
    clients = arguments.clients or arguments.programs
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-retention-"))
    try:
        daemon = harness.Daemon(folder / "state", "--threads-per-job", "1").start()
        data = folder / "digits.yaml"
        data.write_text(f"name: digits\npath: {harness.EXAMPLES / 'digits.csv.gz'}\n"
                        "csv: {header: false, target: c64, target_kind: class, image: [1, 8, 8]}\n")
        daemon.cli("dataset", "upload", data)
        daemon.submit(harness.digits_spec(folder, "done"))
        daemon.cli("wait", "done")
        daemon.stop()
        state = daemon.state
        events = copy_ended_job(state, arguments.jobs, arguments.events)
        print(f"{arguments.jobs} finished jobs of {events} events, store {(state / 'trainyard.db').stat().st_size >> 20} MiB")
        measure(arguments.programs, clients, state, "rest")
        measure(arguments.programs, clients, state, "thin", "--keep-events", "1d", event="events_thinned",
                count=arguments.jobs)
        measure(arguments.programs, clients, state, "remove", "--keep-jobs", "100,1d", event="job_removed",
                count=arguments.jobs - 100)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
