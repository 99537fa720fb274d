"""What `plan` of a preset takes through a running daemon: the RPC with everything that it tells, forecasts included.

usage: TRAINYARD_BIN=build/release/bin python3 tests/bench/plan_bench.py [RUNS]

Prints the time of the whole command, that of a command which asks the daemon for next to nothing, and the CPU time that the
daemon spent on each plan. `fitted` is a batch that fits no device as it is: recompute and micro-batches are tried.
"""

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

SIDE, ROWS, CLASSES = 224, 64, 10
#       preset, recipe
PLANS = {
    "resnet50, batch 32": ("resnet50: {}", "batch_size: 32"),
    "resnet50, batch 32, bf16": ("resnet50: {}", "batch_size: 32, precision: bf16"),
    "resnet50, batch 2048, fitted": ("resnet50: {}", "batch_size: 2048"),
    "resnet50, batch auto": ("resnet50: {}", "batch_size: auto"),
    "resnet18, batch 32": ("resnet18: {}", "batch_size: 32"),
    "vit_base, batch 32": ("vit_base: {}", "batch_size: 32"),
}


def write_images(folder):
    """Images of 224 x 224 and their labels as NPY files."""
    def npy(path, kind, shape, content):
        header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
        header += " " * (-(len(header) + 11) % 64) + "\n"
        path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + content)

    npy(folder / "x.npy", "|u1", (ROWS, 3, SIDE, SIDE), bytes(range(256)) * (ROWS * 3 * SIDE * SIDE // 256))
    npy(folder / "y.npy", "<i4", (ROWS,), b"".join(struct.pack("<i", row % CLASSES) for row in range(ROWS)))
    return (f"inputs: {folder / 'x.npy'}\ntargets: {folder / 'y.npy'}\n"
            f"arrays: {{}}\n")


def cpu_seconds(pid):
    user, system = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


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
        print("| plan | command, median | at best | CPU time of the daemon, mean |")
        print("| --- | ---: | ---: | ---: |")
        for title, (model, recipe) in PLANS.items():
            spec = folder / "job.yaml"
            spec.write_text(f"dataset: images\nmodel: {{{model}}}\n"
                            f"recipe: {{epochs: 90, {recipe}, optimizer: {{learning_rate: 0.1}}}}\n")
            daemon.cli("plan", spec)  # what the daemon keeps from then on
            before = cpu_seconds(daemon.process.pid)
            taken = times_ms(lambda: daemon.cli("plan", spec), runs)
            used = (cpu_seconds(daemon.process.pid) - before) / runs
            print(f"| {title} | {statistics.median(taken):.1f} ms | {min(taken):.1f} ms | {used * 1e3:.1f} ms |", flush=True)
    finally:
        daemon.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
