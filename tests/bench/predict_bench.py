"""Measures Predict on a small model: cold, and warm with 1, 8 and 64 clients, with the CPU time of
the daemon and its workers. Several builds are measured in turns, so that other load on the machine
affects all of them equally.

usage: python3 tests/bench/predict_bench.py [--rounds N] [--seconds S] [NAME=BIN_FOLDER ...]
(default: this build)
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import harness  # noqa: E402
from harness import EXAMPLES, Daemon, digits_spec  # noqa: E402

TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
CLIENTS = (1, 8, 64)


def cpu_ms(pid, children):
    """Returns the CPU time of a process, or of its children that have ended and were waited for."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[13:15] if children else fields[11:13])) * TICK_MS


class Measured:
    """A daemon of one build, with a trained model."""

    def __init__(self, name, folder, root):
        self.name, self.folder = name, folder
        self.calls = {clients: [] for clients in CLIENTS}
        self.cold_ms = []
        harness.BIN = folder
        self.daemon = Daemon(root / name).start()
        self.daemon.submit(digits_spec(root, f"mlp-{name}"), "--wait")
        self.row = root / "row.csv"
        self.row.write_text(",".join(str(i % 17) for i in range(64)) + "\n")

    def restart(self):
        harness.BIN = self.folder
        self.daemon.stop()
        self.daemon.start()

    def run(self, bench, clients, seconds):
        done = subprocess.run([bench, f"unix:{self.daemon.socket}", f"mlp-{self.name}", self.row, str(clients),
                               str(seconds)], capture_output=True, text=True, check=True)
        answered, refused, took, p50, p99, worst, *why = done.stdout.split(maxsplit=6)
        return {"answered": int(answered), "refused": int(refused), "s": float(took), "p50": float(p50),
                "p99": float(p99), "worst": float(worst), "why": "".join(why).strip()}

    def cpu(self):
        workers = self.daemon.worker_pids()
        return (cpu_ms(self.daemon.process.pid, False),
                cpu_ms(self.daemon.process.pid, True) + sum(cpu_ms(pid, False) for pid in workers))

    def measure(self, bench, seconds):
        self.restart()
        self.cold_ms.append(self.run(bench, 1, 0)["worst"])  # one call
        for clients in CLIENTS:
            daemon, workers = self.cpu()
            figures = self.run(bench, clients, seconds)
            time.sleep(0.1)  # time for the daemon to reap ended workers
            daemon_end, workers_end = self.cpu()
            count = max(1, figures["answered"])
            figures["daemon_ms"] = (daemon_end - daemon) / count
            figures["workers_ms"] = (workers_end - workers) / count
            self.calls[clients].append(figures)

    def report(self):
        print(f"{self.name:8} cold p50 {statistics.median(self.cold_ms):.1f} ms")
        for clients, rounds in self.calls.items():
            def mid(key):
                return statistics.median(r[key] for r in rounds)
            rate = statistics.median(r["answered"] / r["s"] for r in rounds)
            refused = sum(r["refused"] for r in rounds)
            print(f"{self.name:8} {clients:3} clients: {rate:7.0f}/s  p50 {mid('p50'):7.2f} ms  "
                  f"p99 {mid('p99'):7.2f} ms  "
                  f"CPU per call: daemon {mid('daemon_ms'):.2f} ms, workers {mid('workers_ms'):.2f} ms"
                  + (f"  refused {refused} ({rounds[-1]['why']})" if refused else ""))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("builds", nargs="*", default=[f"now={harness.BIN}"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    options = parser.parse_args()
    bench = harness.BIN / "predict_bench"
    root = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-bench-"))
    builds = []
    try:
        for build in options.builds:
            name, folder = build.split("=", 1)
            builds.append(Measured(name, pathlib.Path(folder).resolve(), root))
        for _ in range(options.rounds):
            for build in builds:
                build.measure(bench, options.seconds)
        print(f"MLP 64-64-10 on digits, CPU, one row a call, medians of {options.rounds} rounds of {options.seconds} s")
        for build in builds:
            build.report()
    finally:
        for build in builds:
            build.daemon.stop()
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
