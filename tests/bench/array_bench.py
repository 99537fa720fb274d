#!/usr/bin/env python3
"""Measures the cost of an array of many jobs, for itself and for others: the times of SubmitArray,
of a page of its members, of CancelArray and DeleteArray, and of single submits at the same time,
each with its longest time.

    TRAINYARD_BIN=build/release/bin PYTHONPATH=client/python/src tests/bench/array_bench.py [MEMBERS]

The script starts a daemon in a temporary folder, on the disk of TMPDIR. No job starts, because its
device is drained.
"""

import os
import pathlib
import statistics
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "client/python")]
os.environ.setdefault("TRAINYARD_BIN", str(ROOT / "build/release/bin"))

from generate import generate  # noqa: E402

generate(ROOT / "client/python/src")
sys.path.insert(0, str(ROOT / "client/python/src"))

import trainyard  # noqa: E402
from harness import Daemon  # noqa: E402

SPEC = {"dataset": {"path": str(ROOT / "examples/digits.csv.gz"),
                    "csv": {"header": False, "target": "c64", "target_kind": "class", "image": [1, 8, 8]}},
        "model": {"mlp": {"hidden": [64]}},
        "recipe": {"epochs": 8, "batch_size": 50, "optimizer": {"type": "adam", "learning_rate": 0.003}}}


def timed(what, call):
    begun = time.monotonic()
    answer = call()
    print(f"{what:34} {time.monotonic() - begun:8.3f} s", flush=True)
    return answer


class Singles:
    """Submits one job after the other, and records how long each submit took."""

    def __init__(self, client):
        self.client, self.times, self.over = client, [], threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.over.is_set():
            begun = time.monotonic()
            self.client.submit(SPEC)
            self.times.append(time.monotonic() - begun)

    def __enter__(self):
        self.times.clear()
        self.over.clear()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        time.sleep(0.3)
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        ms = sorted(1000 * t for t in self.times)
        print(f"    {len(ms)} single submits meanwhile: median {statistics.median(ms):.1f} ms, longest {ms[-1]:.1f} ms",
              flush=True)


def main():
    members = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory(prefix="ty-array-") as folder:
        daemon = Daemon(pathlib.Path(folder) / "state").start()
        try:
            with trainyard.Client(f"unix:{daemon.socket}", timeout_s=120) as client:
                client.drain_device("cpu")
                random = {"random": {"count": members, "values": {
                    "recipe.optimizer.learning_rate": {"log_uniform": {"low": 1e-4, "high": 0.1}},
                    "recipe.seed": {"integers": {"low": 0, "high": 1_000_000}}}}}
                timed("one submit", lambda: client.submit(SPEC))
                with Singles(client):
                    time.sleep(2)
                with Singles(client):
                    timed(f"submit of {members}", lambda: client.submit_array(SPEC, array=random, name="sweep"))
                timed("the same, checked alone", lambda: client.check_array(SPEC, array=random))
                timed("list of arrays", client.arrays)
                timed("get of the array", lambda: client.array("sweep"))
                timed("page of 1000 members", lambda: client.jobs(array="sweep", limit=1000))
                timed("page of 1000 jobs in no array", lambda: client.jobs(members=False, limit=1000))
                with Singles(client):
                    timed("pause", lambda: client.pause_array("sweep"))
                with Singles(client):
                    timed("cancel", lambda: client.cancel_array("sweep"))
                with Singles(client):
                    timed("delete", lambda: client.delete_array("sweep"))
                wide = {"grid": {"model.mlp.hidden": [[n] for n in range(16, 516)]}}
                timed("submit of 500 that share no plan", lambda: client.submit_array(SPEC, array=wide, name="wide"))
        finally:
            daemon.stop()


if __name__ == "__main__":
    main()
