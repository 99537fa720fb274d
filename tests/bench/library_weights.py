#!/usr/bin/env python3
"""Trains ResNet-50 from torchvision's own file in PyTorch and in Trainyard, on the same images, and compares the losses.

    venv/bin/python tests/bench/library_weights.py [--rows 200] [--side 224] [--batch 20] [--steps 20] [--out FILE.md]

The weights are torchvision's random ones for a fixed seed, with residual branches that begin at zero: without that, a
ResNet of random weights amplifies rounding so much that PyTorch in single differs from PyTorch in double by a third
after 20 steps. The file is written with torchvision's names, and the job takes it as it is. The images are generated
PNG files: gradients, stripes, disks and blocks with noise, a class each. With --double PyTorch trains once more in
double, which shows how much of the difference is rounding. Needs torch, torchvision, numpy and Pillow.
"""

import argparse
import pathlib
import platform
import sys
import tempfile
import time

import torch
import torchvision

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(TESTS / "e2e"))
from harness import Daemon  # noqa: E402
from library_training import (  # noqa: E402
    batch_rows, difference, losses_of_job, losses_of_torch, normalized, save, write_images)

CLASSES, SEED, MOMENTUM = 4, 7, 0.9

SPEC = """
name: resnet50
dataset: {{path: images, images: {{}}}}
model: {{resnet50: {{stem: imagenet}}}}
recipe:
  steps: {steps}
  batch_size: {batch}
  seed: {seed}
  precision: fp32
  normalize: imagenet
  optimizer: {{type: sgd, learning_rate: {rate}, momentum: {momentum}}}
  initial_weights: {{path: resnet50.safetensors}}
"""


def network():
    torch.manual_seed(SEED)
    return torchvision.models.resnet50(num_classes=CLASSES, zero_init_residual=True)


def run_job(folder, args):
    """Returns the losses, the line that says what was taken, and the seconds."""
    path = folder / "job.yaml"
    path.write_text(SPEC.format(steps=args.steps, batch=args.batch, seed=SEED, rate=args.rate, momentum=MOMENTUM))
    daemon = Daemon(folder / "state").start()
    try:
        start = time.monotonic()
        done = daemon.cli("submit", path)
        taken = next(line for line in done.stderr.splitlines() if line.startswith("initial weights"))
        while (state := daemon.job("resnet50")["state"]) not in ("SUCCEEDED", "FAILED", "CANCELLED"):
            time.sleep(1)
        if state != "SUCCEEDED":
            raise SystemExit(f"{state}\n{daemon.log()[-2000:]}")
        return losses_of_job(daemon, "resnet50"), taken, time.monotonic() - start
    finally:
        daemon.stop()


def report(args):
    with tempfile.TemporaryDirectory(prefix="trainyard-library-weights-") as folder:
        folder = pathlib.Path(folder)
        pixels, labels = write_images(folder / "images", args.rows, args.side, CLASSES)
        save(network(), folder / "resnet50.safetensors")
        ours, taken, seconds = run_job(folder, args)
    x, y = normalized(pixels, "imagenet"), torch.from_numpy(labels)
    rows = [batch_rows(args.rows, args.batch, SEED, step) for step in range(args.steps)]

    def batches():
        return ((x[r], y[r]) for r in rows)

    start = time.monotonic()
    single = losses_of_torch(network(), batches(), args.rate, MOMENTUM)
    single_seconds = time.monotonic() - start
    double = losses_of_torch(network(), batches(), args.rate, MOMENTUM, torch.float64) if args.double else None
    lines = ["# ResNet-50 from torchvision's file beside PyTorch", "",
             f"torchvision {torchvision.__version__}, PyTorch {torch.__version__}, {platform.machine()}. {args.rows} "
             f"generated PNG images of {args.side} x {args.side}, {args.steps} steps of {args.batch}, SGD with learning rate "
             f"{args.rate} and momentum {MOMENTUM}, fp32, `normalize: imagenet`, the file of "
             "`torchvision.models.resnet50(zero_init_residual=True)` as it is (`tests/bench/library_weights.py`).", "",
             f"`trainyard submit` says: {taken}.", "",
             f"Largest relative difference of a loss from PyTorch's: **{difference(ours, single):.1e}**.",
             f"{seconds:.0f} s through the daemon with the ingest, PyTorch {single_seconds:.0f} s (no benchmark: the machine "
             "was shared)."]
    if double:
        lines += ["", f"From PyTorch in double, ours differ by {difference(ours, double):.1e} and PyTorch's by "
                  f"{difference(single, double):.1e}."]
    lines += ["", "| step | ours | PyTorch |" + (" PyTorch in double |" if double else ""),
              "| --- | --- | --- |" + (" --- |" if double else "")]
    for step in range(args.steps):
        cells = [ours[step], single[step]] + ([double[step]] if double else [])
        lines.append(f"| {step + 1} | " + " | ".join(f"{loss:.7f}" for loss in cells) + " |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rate", type=float, default=0.0001)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--double", action="store_true", help="also train in double in PyTorch, which takes minutes")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    lines = report(args)
    print("\n".join(lines), flush=True)
    if args.out:
        args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
