"""Runs random jobs under a real memory limit, as many at a time as the scheduler allows, to find
out whether one is killed for memory.

    python3 tests/bench/memory_storm.py [--jobs N] [--limit-mib N] [--seed N] [BIN]      (as root, with control groups)

The daemon and its workers run in their own control group with that limit, without swap, and see it
as in a container. Jobs are drawn so that often two of them, for which there are enough cores, do
not fit into memory together. Prints how many jobs ended in which way, the largest memory of the
group (including its page cache), how often the system had to reclaim pages or killed a process, and
the refused jobs, each of which must need more memory than there is.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import harness  # noqa: E402
import memory_bench  # noqa: E402

MIB = 2**20
ROOT = pathlib.Path("/sys/fs/cgroup")


class Group:
    """A control group with a memory limit, version 2 or 1."""

    def __init__(self, limit):
        self.two = (ROOT / "cgroup.controllers").exists()
        self.mount = ROOT if self.two else ROOT / "memory"
        self.folder = self.mount / f"trainyard-storm-{os.getpid()}"
        self.folder.mkdir()
        if self.two:
            self.write("memory.max", limit)
            self.write("memory.swap.max", 0)
        else:
            self.write("memory.limit_in_bytes", limit)
            self.write("memory.swappiness", 0)

    def write(self, name, value):
        (self.folder / name).write_text(str(value))

    def program(self, folder, binary):
        """Writes a script that runs `binary` in the group, which it sees as the root group."""
        path = folder / "limited"
        path.write_text(f"#!/bin/sh\necho $$ > {self.folder}/cgroup.procs\n"
                        f"exec unshare -m sh -c 'mount --bind {self.folder} {self.mount} && exec \"$0\" \"$@\"' {binary} \"$@\"\n")
        path.chmod(0o755)
        return path

    def kills(self):
        text = (self.folder / ("memory.events" if self.two else "memory.oom_control")).read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("oom_kill "))

    def peak(self):
        path = self.folder / ("memory.peak" if self.two else "memory.max_usage_in_bytes")
        return int(path.read_text()) if path.exists() else 0

    def remove(self):
        for _ in range(50):
            try:
                return self.folder.rmdir()
            except OSError:
                time.sleep(0.1)


def draw(random_, number, data):
    kind = random_.choice(["mnist", "mnist", "cifar", "text"])
    batch = random_.choice([8, 32, 64, 256, 1024])
    optimizer = random_.choice(["sgd", "adam", "adamw"])
    if kind == "mnist":
        width = random_.choice([64, 256, 1024, 2048, 3000])
        model = random_.choice([f"mlp: {{hidden: [{width}, {width}]}}", "lenet5: {}"])
    elif kind == "cifar":
        batch = min(batch, 64)
        model = random_.choice(["resnet18: {stem: cifar, width: 16}", "vgg11: {}", "lenet5: {}"])
    else:
        batch = min(batch, 32)
        model = f"gpt2: {{n_layer: 2, n_head: 2, n_embd: {random_.choice([32, 128, 256])}}}"
    context = ", context_length: 64" if kind == "text" else ""
    return (f"name: storm-{number}\ndataset: {data[kind]}\nmodel: {{{model}}}\nresources: {{threads: 1}}\n"
            f"recipe: {{steps: {random_.randint(2, 8)}, batch_size: {batch}, seed: {number}{context}, "
            f"optimizer: {{type: {optimizer}, learning_rate: 0.0001}}}}\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin", nargs="?", type=lambda text: pathlib.Path(text).resolve(), default=harness.BIN)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--limit-mib", type=int, default=700)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    harness.BIN = arguments.bin
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-bench-"))
    group = Group(arguments.limit_mib * MIB)
    daemon = harness.Daemon(folder / "state", program=group.program(folder, arguments.bin / "trainyardd"))
    try:
        daemon.arguments.append("--measure-after-seconds=-1")
        daemon.start()
        data = memory_bench.write_data(folder)
        names = {}
        for kind, files in data.items():  # uploaded once, then referred to by name
            daemon.cli("dataset", "upload", spec_of(folder, kind, files))
            names[kind] = kind
        random_ = random.Random(arguments.seed)
        refused = []
        for number in range(arguments.jobs):
            spec = folder / "job.yaml"
            spec.write_text(draw(random_, number, names))
            done = daemon.cli("submit", spec, check=False)
            if done.returncode != 0:
                refused.append(done.stderr.strip())
        most = 0
        while active := running_jobs(daemon):
            most = max(most, len(active))
            time.sleep(0.1)
        ends = collections.Counter()
        failed = []
        for number in range(arguments.jobs):
            done = daemon.cli("get", f"storm-{number}", "-o", "json", check=False)
            if done.returncode != 0:
                continue
            job = json.loads(done.stdout)
            ends[(job["state"], job.get("attempt", 0))] += 1
            if job["state"] != "SUCCEEDED" or job.get("attempt") != 1:
                failed.append((job["name"], job.get("reason"), job.get("message")))
        print(f"{arguments.jobs} jobs, seed {arguments.seed}, limit {arguments.limit_mib} MiB: {dict(ends)}; refused {len(refused)}; "
              f"at most {most} at a time; the group's peak {group.peak() / MIB:.0f} MiB, processes killed {group.kills()}")
        for line in failed[:5] + refused[:5]:
            print(" ", line)
        return 1 if failed or group.kills() else 0
    finally:
        daemon.stop()
        daemon.kill_workers()
        group.remove()
        shutil.rmtree(folder, ignore_errors=True)


def running_jobs(daemon):
    """Returns the names of the jobs that have a worker; while jobs are queued, waits until one has."""
    while True:
        jobs = daemon.json("list", "--state", "starting", "--state", "running").get("jobs", [])
        if jobs or not daemon.json("list", "--state", "queued", "--limit", "1").get("jobs", []):
            return [job["name"] for job in jobs]
        time.sleep(0.05)


def spec_of(folder, kind, files):
    path = folder / f"{kind}.yaml"
    path.write_text(f"name: {kind}\n" + files[1:-1].replace(", ", "\n") + "\n")
    return path


if __name__ == "__main__":
    sys.exit(main())
