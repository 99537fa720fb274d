"""Measures the cost of many watchers for the watched job and for the daemon. Real daemon, real
worker, raw clients.

    python3 tests/bench/watch_bench.py [--rounds N] [--watchers N] [--cases live,slow,...] BIN [BIN ...]

Each BIN is a folder of programs; they take turns in every round, and the first one changes from
round to round. All use the watch_bench of the first BIN that has one. A small network trains on one
thread, so that its events are large; its speed without watchers is measured before each case.

- live     each watcher reads as fast as it can, a connection each, metrics packed
- small    the same for a network whose steps take milliseconds, so that its events are a few
           hundred bytes
- small-shared  as small, all on ten connections
- plain    the same by clients that do not read packed metrics
- shared   as live, all on ten connections
- slow     each waits for half a second before each read
- storm    all disconnect every second and reconnect after the last event they saw
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import harness  # noqa: E402

SECONDS = 5
TICKS = os.sysconf("SC_CLK_TCK")
#        connections (0: one for each watcher), pause_ms, storm_ms, metrics packed
CASES = {"live": (0, 0, 0, 1), "small": (0, 0, 0, 1), "small-shared": (10, 0, 0, 1), "plain": (0, 0, 0, 0),
         "shared": (10, 0, 0, 1), "slow": (0, 500, 0, 1), "storm": (0, 0, 1000, 1)}
#         hidden layers, rows a batch
JOBS = {"fast": ("[8]", 50), "small": ("[512, 512]", 200)}


def cpu_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def machine_busy_s():
    """Returns the CPU time of all processes on the machine."""
    ticks = list(map(int, pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]))
    return (sum(ticks) - ticks[3] - ticks[4]) / TICKS


def rss_mib(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) / 1024


class Peak(threading.Thread):
    """The largest memory of a process while this thread ran."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.mib, self.over = pid, 0.0, threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.1):
            self.mib = max(self.mib, rss_mib(self.pid))

    def stop(self):
        self.over.set()
        self.join()
        return self.mib


def training(daemon):
    """Returns the step in the store, read while the daemon runs, and the time of the reading."""
    with sqlite3.connect(f"file:{daemon.state / 'trainyard.db'}?mode=ro", uri=True) as store:
        progress = store.execute("SELECT progress FROM jobs ORDER BY number DESC").fetchone()[0]
    step = 0
    for at, byte in enumerate(progress[1:]):  # field 1, a varint
        step |= (byte & 0x7f) << 7 * at
        if byte < 0x80:
            break
    return step, time.monotonic()


def rate(before, after):
    return (after[0] - before[0]) / (after[1] - before[1])


def measure(bench, daemon, name, watchers, case):
    connections, pause_ms, storm_ms, packed = CASES[case]
    pid, worker = daemon.process.pid, daemon.worker_pids()[0]
    begin = training(daemon)
    time.sleep(3)
    alone = rate(begin, training(daemon))
    clients = subprocess.Popen([bench, f"unix:{daemon.socket}", name, *map(str, (
        watchers, connections or watchers, SECONDS, pause_ms, storm_ms, 1, packed))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    peak = Peak(pid)
    try:
        assert clients.stdout.readline() == "ready\n"
        time.sleep(0.5)
        begin, daemon_cpu, worker_cpu, busy = training(daemon), cpu_s(pid), cpu_s(worker), machine_busy_s()
        line = clients.stdout.readline()
        daemon_cpu, worker_cpu, end = cpu_s(pid) - daemon_cpu, cpu_s(worker) - worker_cpu, training(daemon)
        busy = machine_busy_s() - busy
        out = json.loads(line.removeprefix("done "))
        clients.stdin.close()
        clients.wait(60)
    finally:
        clients.kill()
    out.update(case=case, packed=packed, alone=alone, watched=rate(begin, end), daemon_cpu=daemon_cpu,
               worker_cpu=worker_cpu, peak_mib=peak.stop(),
               others_cpu=busy - daemon_cpu - worker_cpu - out["client_cpu"])
    time.sleep(3)
    out["after_mib"] = rss_mib(pid)
    return out


def run(bin_folder, bench, watchers, cases):
    harness.BIN = bin_folder
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-bench-"))
    daemon = harness.Daemon(folder / "state", "--threads-per-job", "1", "--watch-streams-max", "5000").start()
    try:
        idle_mib = rss_mib(daemon.process.pid)
        for kind, (hidden, rows) in JOBS.items():
            of_kind = [case for case in cases if case.startswith("small") == (kind == "small")]
            if not of_kind:
                continue
            spec = harness.digits_spec(folder, kind, f"  mlp: {{hidden: {hidden}}}",
                                       "  checkpoint_every_steps: 100000000\n"
                                       "  validation_split: 0.2\n  evaluate_every_steps: 300\n")
            spec.write_text(spec.read_text().replace("epochs: 3", "epochs: 1000000").replace("batch_size: 50", f"batch_size: {rows}"))
            name = daemon.submit(spec)
            harness.wait_until(lambda name=name: int(daemon.job(name)["progress"]["step"]) > 100, "it trains")
            for case in of_kind:
                yield dict(measure(bench, daemon, name, watchers, case), idle_mib=idle_mib)
            daemon.cli("cancel", name)
            harness.wait_until(lambda: not daemon.worker_pids(), "its worker is gone")
    finally:
        daemon.stop()
        daemon.kill_workers()
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bins", nargs="+", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--watchers", type=int, default=1000)
    parser.add_argument("--cases", default=",".join(CASES))
    arguments = parser.parse_args()
    cases = arguments.cases.split(",")
    bench = next(b / "watch_bench" for b in arguments.bins if (b / "watch_bench").exists())
    results = {}
    for number in range(arguments.rounds):
        for folder in arguments.bins if number % 2 == 0 else reversed(arguments.bins):
            print(f"round {number + 1}, {folder}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
            for one in run(folder, bench, arguments.watchers, cases):
                print(json.dumps(one), file=sys.stderr)
                results.setdefault((one["case"], folder), []).append(one)
    print(f"{arguments.watchers} watchers, {os.cpu_count()} cores, median of {arguments.rounds} rounds of {SECONDS} s\n")
    print("| case | programs | training alone -> watched, steps/s | kept | events/s | events a message, bytes an event | daemon CPU us/event | "
          "daemon, client, worker, other programs: cores | lag p50, p99 ms | answered in p99 ms | peak MiB, after (idle) |")
    print("| --- " * 11 + "|")
    for (case, folder), runs in sorted(results.items(), key=lambda item: (cases.index(item[0][0]), arguments.bins.index(item[0][1]))):
        def median(value, runs=runs):
            return statistics.median(map(value, runs))
        print(f"| {case} | {folder} | {median(lambda r: r['alone']):,.0f} -> {median(lambda r: r['watched']):,.0f} "
              f"| {median(lambda r: r['watched'] / r['alone']):.0%} | {median(lambda r: r['events'] / r['seconds']):,.0f} "
              f"| {median(lambda r: r['events'] / max(1, r['messages'])):,.1f}, {median(lambda r: r['bytes'] / max(1, r['events'])):,.0f} "
              f"| {median(lambda r: 1e6 * r['daemon_cpu'] / max(1, r['events'])):.1f} "
              f"| {median(lambda r: r['daemon_cpu'] / r['seconds']):.2f}, {median(lambda r: r['client_cpu'] / r['seconds']):.2f}, "
              f"{median(lambda r: r['worker_cpu'] / r['seconds']):.2f}, {median(lambda r: r['others_cpu'] / r['seconds']):.2f} "
              f"| {median(lambda r: r['lag_p50_ms']):,.0f}, {median(lambda r: r['lag_p99_ms']):,.0f} "
              f"| {median(lambda r: r['answer_p99_ms']):,.0f} "
              f"| {median(lambda r: r['peak_mib']):.0f}, {median(lambda r: r['after_mib']):.0f} "
              f"({median(lambda r: r['idle_mib']):.0f}) |")


if __name__ == "__main__":
    main()
