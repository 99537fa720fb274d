"""Starts a daemon on a temporary folder, uploads the digits and measures the time from a submit to
the end of the first step.

usage: TRAINYARD_BIN=build/release/bin python3 tests/bench/service_bench.py [RUNS]
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import BIN, EXAMPLES, Daemon  # noqa: E402


def main():
    runs = sys.argv[1] if len(sys.argv) > 1 else "30"
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-bench-"))
    daemon = Daemon(folder / "state").start()
    try:
        data = folder / "digits.yaml"
        data.write_text(f"name: digits\npath: {EXAMPLES / 'digits.csv.gz'}\n"
                        "csv: {header: false, target: c64, target_kind: class, image: [1, 8, 8]}\n")
        daemon.cli("dataset", "upload", data)
        status = pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text()
        rss_kib = int(re.search(r"VmRSS:\s+(\d+)", status)[1])
        print(f"daemon resident, idle: {rss_kib / 1024:.1f} MiB")
        sys.stdout.flush()
        bench = BIN / "latency_bench"
        subprocess.run([bench, f"unix:{daemon.socket}", "digits", runs], check=True)
    finally:
        daemon.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
