"""Measures how much of the machine's memory a training worker uses, compared with the plan of its
job.

    python3 tests/bench/memory_bench.py [--steps N] [--only TEXT] [BIN]

A daemon runs each job alone on the CPU. `planned` is the scheduler's figure: the plan's bytes and
the device's constant for a process. `used` is the largest amount of the worker's own memory
(RssAnon and RssShmem, read every 3 ms). It excludes the pages of files, which the system can
reclaim: some 33 MiB of the program and its libraries, and those of the dataset.
"""

import argparse
import pathlib
import random
import re
import shutil
import struct
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import harness  # noqa: E402

MIB = 2**20
#       data, model, recipe
JOBS = {
    "mlp 64": ("mnist", "mlp: {hidden: [512, 512]}", "batch_size: 64"),
    "mlp 4096": ("mnist", "mlp: {hidden: [512, 512]}", "batch_size: 4096"),
    "mlp wide, adamw": ("mnist", "mlp: {hidden: [4096, 4096]}", "batch_size: 64, optimizer: {type: adamw, learning_rate: 1e-4}"),
    "lenet5 64": ("mnist", "lenet5: {}", "batch_size: 64"),
    "lenet5 1024": ("mnist", "lenet5: {}", "batch_size: 1024"),
    "resnet18 16": ("cifar", "resnet18: {stem: cifar}", "batch_size: 16"),
    "resnet18 64": ("cifar", "resnet18: {stem: cifar}", "batch_size: 64"),
    "resnet18 64, recompute": ("cifar", "resnet18: {stem: cifar}", "batch_size: 64, recompute: blocks"),
    "resnet18 64, 4 parts": ("cifar", "resnet18: {stem: cifar}", "batch_size: 64, accumulate_steps: 4"),
    "resnet18 32, bf16": ("cifar", "resnet18: {stem: cifar}", "batch_size: 32, precision: bf16"),
    "resnet18 32, augmented": ("cifar", "resnet18: {stem: cifar}",
                               "batch_size: 32, augmentation: [{random_crop: {padding: 4}}, {random_horizontal_flip: {}}]"),
    "resnet50 8": ("cifar", "resnet50: {stem: cifar}", "batch_size: 8"),
    "vgg11 32": ("cifar", "vgg11: {}", "batch_size: 32"),
    "vit_tiny 16": ("cifar", "vit_tiny: {patch_size: 4}", "batch_size: 16"),
    "gpt2 small 4": ("text", "gpt2: {n_layer: 6, n_head: 6, n_embd: 384}", "batch_size: 4, context_length: 256"),
    "gpt2 tiny 32": ("text", "gpt2: {n_layer: 2, n_head: 2, n_embd: 64}", "batch_size: 32, context_length: 64"),
}


def write_data(folder):
    draw = random.Random(1)
    images = folder / "images.idx"
    images.write_bytes(struct.pack(">IIII", 0x803, 6000, 28, 28) + draw.randbytes(6000 * 784))
    labels = folder / "labels.idx"
    labels.write_bytes(struct.pack(">II", 0x801, 6000) + bytes(draw.randrange(10) for _ in range(6000)))
    cifar = folder / "cifar-10-batches-bin"
    cifar.mkdir()
    (cifar / "data_batch_1.bin").write_bytes(
        b"".join(bytes([draw.randrange(10)]) + draw.randbytes(3072) for _ in range(2000)))
    (cifar / "test_batch.bin").write_bytes(
        b"".join(bytes([draw.randrange(10)]) + draw.randbytes(3072) for _ in range(100)))
    (cifar / "batches.meta.txt").write_text("\n".join("abcdefghij") + "\n")
    text = folder / "text.txt"
    text.write_text("".join(draw.choice("abcdefghijklmnopqrstuvwxyz     ,.\n") for _ in range(300_000)))
    return {"mnist": f"{{train_images: {images}, train_labels: {labels}}}",
            "cifar": f"{{path: {cifar}, cifar: {{}}}}",
            "text": f"{{path: {text}, text: {{}}}}"}


def status_kib(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return {key: int(value) for key, value in re.findall(r"(Rss\w+|VmHWM):\s+(\d+)", text)}


def measure(daemon, spec):
    name = daemon.submit(spec)
    own = files = 0
    while (job := daemon.job(name))["state"] in ("QUEUED", "STARTING", "RUNNING"):
        for pid in daemon.worker_pids():
            until = time.monotonic() + 0.5
            while time.monotonic() < until:
                try:
                    kib = status_kib(pid)
                except OSError:
                    break
                own = max(own, kib.get("RssAnon", 0) + kib.get("RssShmem", 0))
                files = max(files, kib.get("RssFile", 0))
                time.sleep(0.003)
    assert job["state"] == "SUCCEEDED", job
    return job, own * 1024, files * 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin", nargs="?", type=lambda text: pathlib.Path(text).resolve(), default=harness.BIN)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    harness.BIN = arguments.bin
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-bench-"))
    daemon = harness.Daemon(folder / "state").start()
    print("| job | plan, MiB | planned with the constant | used | pages of files | sum / planned |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    try:
        data = write_data(folder)
        for title, (kind, model, recipe) in JOBS.items():
            if arguments.only not in title:
                continue
            optimizer = "" if "optimizer" in recipe else ", optimizer: {learning_rate: 0.001}"
            spec = folder / "job.yaml"
            spec.write_text(f"dataset: {data[kind]}\nmodel: {{{model}}}\n"
                            f"recipe: {{steps: {arguments.steps}, {recipe}{optimizer}}}\n")
            job, own, files = measure(daemon, spec)
            plan = sum(int(value) for part, value in job["plan"]["memory"].items() if part.endswith("_bytes"))
            constant = int(daemon.json("device", "list")["devices"][0]["overhead_bytes"])
            print(f"| {title} | {plan / MIB:.1f} | {(plan + constant) / MIB:.1f} | {own / MIB:.1f} "
                  f"| {files / MIB:.1f} | {(own + files) / (plan + constant):.3f} |", flush=True)
    finally:
        daemon.stop()
        daemon.kill_workers()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
