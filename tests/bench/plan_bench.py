"""Measures the time to `plan` a preset through a running daemon: the RPC with its complete answer,
including forecasts.

usage: TRAINYARD_BIN=build/release/bin python3 tests/bench/plan_bench.py [RUNS]

Prints the time of the whole command, the time of a command that requests next to nothing from the
daemon, and the CPU time that the daemon and its workers spent on each plan. A plan marked `anew`
has another seed, so that a worker measures the kernels' workspace; for `again` it is already known.
`fitted` is a batch that needs more memory than most machines have, so that recompute and
micro-batches are tried.
"""

import itertools
import os
import pathlib
import shutil
import statistics
import struct
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import Daemon  # noqa: E402

SIDE, ROWS, CLASSES = 224, 512, 10
#       preset, recipe
PLANS = {
    "resnet50, batch 32": ("resnet50: {}", "batch_size: 32"),
    "resnet50, batch 32, bf16": ("resnet50: {}", "batch_size: 32, precision: bf16"),
    "resnet50, batch 512, fitted": ("resnet50: {}", "batch_size: 512"),
    "resnet50, batch auto": ("resnet50: {}", "batch_size: auto"),
    "resnet18, batch 32": ("resnet18: {}", "batch_size: 32"),
    "vit_base, batch 32": ("vit_base: {}", "batch_size: 32"),
}


def write_images(folder):
    """Writes images of 224 x 224 and their labels as NPY files."""
    def npy(path, kind, shape, content):
        header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
        header += " " * (-(len(header) + 11) % 64) + "\n"
        path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + content)

    npy(folder / "x.npy", "|u1", (ROWS, 3, SIDE, SIDE), bytes(range(256)) * (ROWS * 3 * SIDE * SIDE // 256))
    npy(folder / "y.npy", "<i4", (ROWS,), b"".join(struct.pack("<i", row % CLASSES) for row in range(ROWS)))
    return (f"inputs: {folder / 'x.npy'}\ntargets: {folder / 'y.npy'}\n"
            f"arrays: {{}}\n")


def cpu_seconds(pid):
    """Returns the CPU seconds of the process, and of its children that have ended."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    user, system, of_children, in_children = (int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:15])
    return user + system, of_children + in_children


def times_ms(command, runs):
    taken = []
    for _ in range(runs):
        begin = time.perf_counter()
        command()
        taken.append((time.perf_counter() - begin) * 1e3)
    return taken


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-bench-"))
    daemon = Daemon(folder / "state").start()
    try:
        data = folder / "data.yaml"
        data.write_text("name: images\n" + write_images(folder))
        daemon.cli("dataset", "upload", data)
        least = times_ms(lambda: daemon.cli("health"), runs)
        print(f"`trainyard health`: {statistics.median(least):.1f} ms in the median of {runs}\n")
        print("| plan | | command, median | at best | CPU time of the daemon, mean | of its workers |")
        print("| --- | --- | ---: | ---: | ---: | ---: |")
        spec = folder / "job.yaml"

        def plan(model, recipe, seed):
            spec.write_text(f"dataset: images\nmodel: {{{model}}}\n"
                            f"recipe: {{epochs: 90, seed: {seed}, {recipe}, optimizer: {{learning_rate: 0.1}}}}\n")
            daemon.cli("plan", spec)

        for title, (model, recipe) in PLANS.items():
            seeds = itertools.count(1)
            for when, seed in (("anew", lambda: next(seeds)), ("again", lambda: 1)):
                before = cpu_seconds(daemon.process.pid)
                taken = times_ms(lambda: plan(model, recipe, seed()), runs)
                daemon_ms, workers_ms = ((now - then) / runs * 1e3
                                         for now, then in zip(cpu_seconds(daemon.process.pid), before))
                print(f"| {title} | {when} | {statistics.median(taken):.1f} ms | {min(taken):.1f} ms | {daemon_ms:.1f} ms "
                      f"| {workers_ms:.1f} ms |", flush=True)
    finally:
        daemon.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
