"""Measures the cost of checkpoints and metrics for a job of tiny steps, with the programs of two
builds in turns. Real daemon, real disk.

    python3 tests/bench/small_jobs_bench.py BEFORE_BIN AFTER_BIN [ROUNDS] [EPOCHS]

The job is a small network on the committed digits, with a validation after each epoch of 101 steps.
For each build it prints the medians of all rounds, with the minimum and maximum. The fsyncs are
those of `local run` under strace, which slows no other call; the commits of the daemon are those
that its store has counted. CPU time is that of the daemon and of its workers, including start and
end.
"""

import datetime
import os
import pathlib
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import harness  # noqa: E402


def spec(folder, name, epochs):
    path = harness.digits_spec(folder, name, "  mlp: {hidden: [8]}", "  validation_split: 0.1\n")
    text = path.read_text().replace("epochs: 3", f"epochs: {epochs}").replace("batch_size: 50", "batch_size: 16")
    path.write_text(text.replace("learning_rate: 0.05, momentum: 0.9", "learning_rate: 0.01"))
    return path


def cpu_seconds(pid):
    """Returns the CPU seconds of a process, and of the children that it has waited for."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    own, children = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
    return own / os.sysconf("SC_CLK_TCK"), children / os.sysconf("SC_CLK_TCK")


def used_bytes(store):
    count, free, size = (store.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size"))
    return (count - free) * size


def in_daemon(folder, epochs):
    daemon = harness.Daemon(folder / "state", "--threads-per-job", "1").start()
    try:
        name = daemon.submit(spec(folder, "small", epochs), "--wait")
        harness.wait_until(lambda: not daemon.worker_pids(), "its worker is gone")
        own, workers = cpu_seconds(daemon.process.pid)
        steps = int(daemon.job(name)["progress"]["step"])
        times, saved = {}, 0
        for event in daemon.events(name):
            saved += "checkpoint" in event
            if "state" in event:
                times[event["state"]["state"]] = datetime.datetime.fromisoformat(event["time"])
    finally:
        daemon.stop()
    seconds = (times["SUCCEEDED"] - times["RUNNING"]).total_seconds()
    with sqlite3.connect(daemon.state / "trainyard.db") as store:
        commits = int(store.execute("SELECT value FROM settings WHERE key = 'commit'").fetchone()[0])
        rows = store.execute("SELECT count(*) FROM events").fetchone()[0]
        before = used_bytes(store)
        for table in ("events", "event_parts"):
            if store.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (table,)).fetchone():
                store.execute(f"DELETE FROM {table}")
        stored = before - used_bytes(store)
    store.close()
    return {"steps/s": steps / seconds, "worker CPU us a step": workers / steps * 1e6, "daemon CPU us a step": own / steps * 1e6,
            "checkpoints/s": saved / seconds, "commits/s": commits / seconds, "events/s": rows / seconds, "stored bytes a step": stored / steps}


def fsyncs(folder, epochs):
    """Returns the fsyncs per second of `local run`, including its start and end."""
    path, out = spec(folder, "traced", epochs), folder / "calls"
    begin = time.monotonic()
    subprocess.run(["strace", "-f", "--seccomp-bpf", "-c", "-o", out, "-e", "trace=fsync,fdatasync", harness.BIN / "trainyard", "local",
                    "run", path, "--out", folder / "local", "--threads", "1"], check=True, capture_output=True)
    seconds = time.monotonic() - begin
    calls = sum(int(m[1]) for m in re.finditer(r"^ *[\d.]+ +[\d.]+ +\d+ +(\d+).* f(?:data)?sync$", out.read_text(), re.M))
    return {"fsyncs/s of the worker": calls / seconds}


def main():
    builds = {"before": pathlib.Path(sys.argv[1]), "after": pathlib.Path(sys.argv[2])}
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    epochs = int(sys.argv[4]) if len(sys.argv) > 4 else 3000
    measured = {name: [] for name in builds}
    print(f"{os.cpu_count()} cores; load before: {os.getloadavg()[0]:.1f}")
    for i in range(rounds):
        for name in list(builds) if i % 2 == 0 else reversed(builds):
            folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-bench-", dir=os.environ.get("TRAINYARD_BENCH_DIR")))
            harness.BIN = builds[name]
            try:
                measured[name].append(in_daemon(folder, epochs) | fsyncs(folder, epochs))
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    for key in measured["before"][0]:
        shown = []
        for name in builds:
            values = [one[key] for one in measured[name]]
            shown.append(f"{name} {statistics.median(values):12,.2f} ({min(values):,.2f} to {max(values):,.2f})")
        print(f"{key:24} {shown[0]:50} {shown[1]}")
    print(f"load after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
