"""Measures how many CSV rows a second become a dataset, compared with pandas.read_csv on the same
file.

    python tests/bench/table_ingest.py build/release/bin/data_bench [--rows 1000000]

Needs pandas. The file has 20 columns: 13 decimals, 5 integers and 2 categories. Both programs read
it from the page cache, in turns. Other load on the machine disturbs CPU seconds less than wall
seconds. `parse` ends with typed arrays in memory, as pandas does; `ingest` also includes digests,
statistics, and files that are flushed to the disk.
"""
import argparse
import random
import subprocess
import tempfile
import time
from pathlib import Path

import pandas as pd

REPETITIONS = 3


def write_table(path: Path, rows: int) -> None:
    draw = random.Random(1)
    cuts, colors = ["Ideal", "Premium", "Good", "Very Good", "Fair"], "DEFGHIJ"
    with path.open("w") as file:
        file.write(",".join([f"x{i}" for i in range(16)] + ["cut", "color", "depth", "price"]) + "\n")
        for _ in range(rows):
            cells = [f"{draw.random() * 100:.4f}" for _ in range(12)] + [str(draw.randrange(1000)) for _ in range(4)]
            cells += [draw.choice(cuts), draw.choice(colors), f"{draw.random() * 10:.2f}", str(draw.randrange(20000))]
            file.write(",".join(cells) + "\n")


def run_pandas(path: Path) -> tuple[float, float]:
    """Returns wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    pd.read_csv(path)
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data_bench")
    parser.add_argument("--rows", type=int, default=1_000_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        write_table(path, args.rows)
        print(f"{args.rows} rows, {path.stat().st_size / 1e6:.0f} MB")
        for _ in range(REPETITIONS):
            wall, cpu = run_pandas(path)
            print(f"pandas  1 thread   {args.rows / wall / 1e6:6.2f} M rows/s   {args.rows / cpu / 1e6:6.2f} per CPU second")
            lines = subprocess.run([args.data_bench, "--table", path, "price"], check=True, capture_output=True,
                                   text=True).stdout.splitlines()
            for line in lines:
                what, threads, rows, wall_s, cpu_s = line.split()
                print(f"{what:7} {threads} thread{'s' if threads != '1' else ' '}  "
                      f"{int(rows) / float(wall_s) / 1e6:6.2f} M rows/s   "
                      f"{int(rows) / float(cpu_s) / 1e6:6.2f} per CPU second")


if __name__ == "__main__":
    main()
