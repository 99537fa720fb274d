#!/usr/bin/env python3
"""Runs the package's tests and its type check with $TRAINYARD_GRPC_PYTHON, or else with the current Python.

Exits with 77, which ctest reads as skipped, if that Python lacks the packages of the extra `test` in pyproject.toml.
TRAINYARD_BIN names the folder with the programs.
"""

import os
import pathlib
import subprocess
import sys

PYTHON = pathlib.Path(__file__).resolve().parents[1]
MODULES = ("grpc_tools", "grpc_reflection", "google.rpc.status_pb2", "google_crc32c", "yaml", "numpy", "pandas", "pytest",
           "mypy")


def main() -> int:
    python = os.environ.get("TRAINYARD_GRPC_PYTHON", sys.executable)
    found = subprocess.run([python, "-c", f"import {', '.join(MODULES)}"], capture_output=True, text=True)
    if found.returncode != 0:
        print(f"skipped: {found.stderr.strip().splitlines()[-1]} ({python} -m pip install 'client/python[test]')")
        return 77
    tests = subprocess.run([python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *sys.argv[1:]], cwd=PYTHON)
    types = subprocess.run([python, "-m", "mypy", "--cache-dir", os.devnull], cwd=PYTHON)
    return tests.returncode or types.returncode


if __name__ == "__main__":
    sys.exit(main())
