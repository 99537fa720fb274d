"""Measures uploads through the API, compared with the disk, SHA-256 and gRPC alone. Several builds
take turns.

    python3 tests/bench/upload_bench.py [--mib 512] [--rounds 3] BIN [BIN ...]

BIN is a folder of programs; the measuring clients are those of the last one, whose rpc_floor_bench
measures a stream of the same messages without reading, hashing or writing them. "The cores allow"
is the speed that an upload could reach if CPU time were its only limit: the cores, divided by the
CPU seconds that client and daemon together need for a byte. "Half of one" is stopped halfway, and
"the other half" resumes there. The list is the first page of the jobs that were submitted in a
second.
"""

import argparse
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import harness  # noqa: E402

LINE = re.compile(r"(\S[a-z0-9 ]*\S) +(\d+) MB/s +([\d.]+) CPU seconds here, (-?[\d.]+) of the daemon, (\d+) ms")
LIST = re.compile(r"(list \S[a-z0-9 ]*\S) +p50 ([\d.]+) ms, p99 ([\d.]+) ms")


def measure(programs, clients, mib):
    """Returns, for each operation: MB/s, CPU seconds of the client and of the daemon, ms; for the
    lists: p50 and p99 in ms."""
    harness.BIN = programs
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-bench-"))
    daemon = harness.Daemon(folder / "state", "--queued-jobs-max", "1000000").start()
    try:
        data = folder / "digits.yaml"
        data.write_text(f"name: digits\npath: {harness.EXAMPLES / 'digits.csv.gz'}\n"
                        "csv: {header: false, target: c64, target_kind: class, image: [1, 8, 8]}\n")
        daemon.cli("dataset", "upload", data)
        daemon.cli("device", "drain", "cpu")
        subprocess.run([clients / "submit_bench", f"unix:{daemon.socket}", "digits", "8", "1"], check=True, capture_output=True)
        done = subprocess.run([clients / "upload_bench", f"unix:{daemon.socket}", folder, str(mib), "1", str(daemon.process.pid)],
                              check=True, capture_output=True, text=True)
    finally:
        daemon.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return ({what: tuple(map(float, numbers)) for what, *numbers in LINE.findall(done.stdout)},
            {what: tuple(map(float, numbers)) for what, *numbers in LIST.findall(done.stdout)})


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("bin", nargs="+", type=lambda text: pathlib.Path(text).absolute())
    arguments = parser.parse_args()
    results, lists, floors = {}, {}, []
    for number in range(arguments.rounds):
        for programs in arguments.bin if number % 2 == 0 else reversed(arguments.bin):
            done, listed = measure(programs, arguments.bin[-1], arguments.mib)
            for what, numbers in done.items():
                results.setdefault((what, programs), []).append(numbers)
            for what, numbers in listed.items():
                lists.setdefault((what, programs), []).append(numbers)
        floor = arguments.bin[-1] / "rpc_floor_bench"
        if floor.exists():
            floors.append(subprocess.run([floor, "stream", str(arguments.mib)], check=True, capture_output=True, text=True).stdout)
    gigabytes = arguments.mib * 2**20 / 1e9
    print("| what | programs | MB/s, each round | ms, median | CPU seconds of a GB: client, daemon (medians) | the cores allow, MB/s |")
    print("| --- " * 6 + "|")
    for (what, programs), runs in sorted(results.items(), key=lambda item: list(results).index(item[0])):
        client, daemon, ms = (statistics.median(run[i] for run in runs) for i in (1, 2, 3))
        share = 0.5 if "half" in what else 1  # MB/s are given for the whole file
        client, daemon = client / gigabytes / share, daemon / gigabytes / share
        allowed = f"{1000 * os.cpu_count() / (client + daemon):,.0f}" if what == "upload" else ""
        print(f"| {what} | {programs.name} | {', '.join(f'{run[0] * share:,.0f}' for run in runs)} | {ms:,.0f} "
              f"| {client:.2f}, {daemon:.2f} | {allowed} |")
    for (what, programs), runs in lists.items():
        p50s, p99s = (", ".join(f"{run[i]:.2f}" for run in runs) for i in (0, 1))
        print(f"{what}, {programs.name}: p50 {p50s} ms, p99 {p99s} ms")
    print("".join(floors), end="")


if __name__ == "__main__":
    main()
