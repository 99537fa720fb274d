#!/usr/bin/env python3
"""Turns JPEG files into training batches, compared with Pillow and torchvision: the same files, two
threads or processes each, in turns.

    venv/bin/python tests/bench/image_pipeline.py DATA [--images 20000] [--rounds 5] [--out FILE.md]

DATA contains cifar10/cifar10-jpg.tar.xz, whose training images are unpacked first. Needs torch,
torchvision and pillow.

    decode    Trainyard: the complete ingest of a folder: reading, decoding, statistics, digests,
              flushed files. The others: the files of a list, divided between two processes, by
              Image.open(f).convert("RGB") into an array or by torchvision.io.decode_jpeg; they
              write nothing.
    batches   Trainyard: the loader, with random crops and flips, standardized, batches of 128.
              PyTorch: a DataLoader with two workers over decoded images in memory, with
              torchvision.transforms.v2 on each image.
"""

import argparse
import multiprocessing
import pathlib
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

import numpy as np
import torch
import torchvision
from PIL import Image
from torchvision.transforms import v2

BENCH = pathlib.Path(__file__).resolve().parents[2] / "build/release/bin/data_bench"


def pillow(files):
    return sum(np.asarray(Image.open(f).convert("RGB")).shape[0] for f in files)


def torchvision_io(files):
    torch.set_num_threads(1)
    read = torchvision.io.read_file
    return sum(torchvision.io.decode_jpeg(read(str(f)), torchvision.io.ImageReadMode.RGB).shape[1] for f in files)


def decode_rate(function, files, pool):
    start = time.monotonic()
    parts = [files[i::64] for i in range(64)]
    assert sum(pool.imap_unordered(function, parts)) == 32 * len(files)
    return len(files) / (time.monotonic() - start)


class Decoded(torch.utils.data.Dataset):
    def __init__(self, files):
        self.images = torch.stack([torch.from_numpy(np.array(Image.open(f).convert("RGB"))).permute(2, 0, 1)
                                   for f in files])
        self.change = v2.Compose([v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip(),
                                  v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.25] * 3)])

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.change(self.images[i]), i % 10


def batch_rate(loader, epochs):
    iterator = iter(loader)  # starts the workers, which persist
    next(iterator)
    for _ in iterator:
        pass
    start, count = time.monotonic(), 0
    for _ in range(epochs):
        for x, _ in loader:
            count += len(x)
    return count / (time.monotonic() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--images", type=int, default=20000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    rates = {"ours": ([], []), "Pillow": ([], []), "torchvision": ([], [])}
    with tempfile.TemporaryDirectory(prefix="trainyard-images-") as folder:
        folder = pathlib.Path(folder)
        with tarfile.open(args.data / "cifar10/cifar10-jpg.tar.xz") as archive:
            taken, each = {}, args.images // 10
            for member in archive:
                parts = member.name.split("/")
                if parts[0] == "train" and member.isfile() and taken.setdefault(parts[1], 0) < each:
                    taken[parts[1]] += 1
                    archive.extract(member, folder, filter="data")
        files = sorted((folder / "train").rglob("*.jpg"))
        loader = torch.utils.data.DataLoader(Decoded(files), batch_size=128, shuffle=True, drop_last=True,
                                             num_workers=2, persistent_workers=True, prefetch_factor=4)
        with multiprocessing.Pool(2) as pool:
            for function in (pillow, torchvision_io):
                pool.map(function, [files[:64]] * 2)  # warms up: imports and first calls
            for _ in range(args.rounds):
                decoded, batched = map(float, subprocess.run([BENCH, "--images", folder], check=True, text=True,
                                                             capture_output=True).stdout.split())
                rates["ours"][0].append(decoded)
                rates["ours"][1].append(batched)
                rates["Pillow"][0].append(decode_rate(pillow, files, pool))
                rates["torchvision"][0].append(decode_rate(torchvision_io, files, pool))
                rates["torchvision"][1].append(batch_rate(loader, 1))
    lines = [f"# JPEG files into batches, torchvision {torchvision.__version__}, Pillow {Image.__version__}", "",
             f"{len(files):,} files of 32 x 32, two threads or processes each, median (least, most) of {args.rounds} "
             "interleaved rounds, images/s.", "", "| | decode | augmented batches |", "| --- | --- | --- |"]
    for name, columns in rates.items():
        cells = [f"{statistics.median(c):,.0f} ({min(c):,.0f}, {max(c):,.0f})" if c else "" for c in columns]
        lines.append(f"| {name} | {cells[0]} | {cells[1]} |")
    print("\n".join(lines))
    if args.out:
        args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
