"""Uploads through the API beside the disk, SHA-256 and gRPC alone. Several builds take turns.

    python3 tests/bench/upload_bench.py [--mib 512] [--rounds 3] BIN [BIN ...]

BIN is a folder of programs with upload_bench. The last one's rpc_floor_bench says what a stream of the same messages
costs that nobody reads, hashes or writes.
"""

import argparse
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import harness  # noqa: E402

LINE = re.compile(r"(\S[a-z0-9 ]*\S) +(\d+) MB/s +([\d.]+) CPU seconds here, (-?[\d.]+) of the daemon")


def measure(programs, mib):
    """Of each thing that was done: MB/s, CPU seconds of the client and of the daemon."""
    harness.BIN = programs
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-bench-"))
    daemon = harness.Daemon(folder / "state").start()
    try:
        done = subprocess.run([programs / "upload_bench", f"unix:{daemon.socket}", folder, str(mib), "1", str(daemon.process.pid)],
                              check=True, capture_output=True, text=True)
    finally:
        daemon.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return {what: tuple(map(float, numbers)) for what, *numbers in LINE.findall(done.stdout)}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("bin", nargs="+", type=lambda text: pathlib.Path(text).resolve())
    arguments = parser.parse_args()
    results, floors = {}, []
    for _ in range(arguments.rounds):
        for programs in arguments.bin:
            for what, numbers in measure(programs, arguments.mib).items():
                results.setdefault((what, programs), []).append(numbers)
        floor = arguments.bin[-1] / "rpc_floor_bench"
        if floor.exists():
            floors.append(subprocess.run([floor, "stream", str(arguments.mib)], check=True, capture_output=True, text=True).stdout)
    gigabytes = arguments.mib * 2**20 / 1e9
    print("| what | programs | MB/s, each round | CPU seconds of a GB: client, daemon (medians) |\n| --- | --- | --- | --- |")
    for (what, programs), runs in sorted(results.items(), key=lambda item: list(results).index(item[0])):
        client, daemon = (statistics.median(run[i] for run in runs) / gigabytes for i in (1, 2))
        print(f"| {what} | {programs} | {', '.join(f'{run[0]:,.0f}' for run in runs)} | {client:.2f}, {daemon:.2f} |")
    print("".join(floors), end="")


if __name__ == "__main__":
    main()
