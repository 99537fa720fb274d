"""Starts a daemon on a temporary folder and measures uploads beside the disk and SHA-256.

usage: TRAINYARD_BIN=build/release/bin python3 tests/bench/upload_bench.py [MIB] [ROUNDS]
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import BIN, Daemon  # noqa: E402


def main():
    mib, rounds = (sys.argv[1:] + ["512", "3"][len(sys.argv) - 1:])[:2]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-bench-"))
    daemon = Daemon(folder / "state").start()
    try:
        subprocess.run([BIN / "upload_bench", f"unix:{daemon.socket}", folder, mib, rounds], check=True)
    finally:
        daemon.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
