#!/usr/bin/env python3
"""Runs example specs through the daemon and compares the losses with PyTorch, on real data.

    venv/bin/python tests/bench/convergence.py DATA [--only gpt2,resnet18] [--noise] [--out FILE.md]

    gpt2       examples/shakespeare_gpt.yaml on DATA/tinyshakespeare/input.txt
    resnet18   examples/cifar10_resnet18_300_steps.yaml on the JPEG files of DATA/cifar10/cifar10-jpg.tar.xz

A job runs through its own daemon. PyTorch then trains the same model from the same weights on the
same batches, which it draws by the rules in docs/datasets.md, and is evaluated on the same rows
after the same step. Needs torch, numpy, pillow and PyYAML.

Both sides round differently, and training amplifies that: single losses diverge after some dozens
of steps. So the table has the largest difference over the first 50 steps, and after that means over
a tenth of the steps. With --noise PyTorch runs once more with another number of threads, which
shows how much it differs from itself.
"""

import argparse
import functools
import json
import math
import pathlib
import sys
import tarfile
import tempfile
import time

import numpy as np
import torch
import yaml

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "golden"), str(TESTS / "e2e")]
from harness import EXAMPLES, Daemon  # noqa: E402
from image_models import initialize_images, make_image_model  # noqa: E402
from philox import philox_u32, stream_of  # noqa: E402
from reference_transformers import GPT2, initialize_transformer  # noqa: E402


def permutation(n, seed, stream, step):
    """Returns the indices sorted by random 64-bit keys, as src/base/philox.cc does."""
    r = philox_u32(seed, stream, step, (n + 1) // 2 * 4).astype(np.uint64)
    keys = r[0::2] << np.uint64(32) | r[1::2]
    return np.argsort(keys[:n], kind="stable")


class Example:
    """An example spec, and the parts of it that PyTorch needs to do the same."""

    def __init__(self):
        self.spec = yaml.safe_load((EXAMPLES / self.file).read_text())
        self.recipe = self.spec["recipe"]
        self.batch, self.seed, self.steps = (self.recipe[k] for k in ("batch_size", "seed", "steps"))

    def optimizer(self, model):
        o = self.recipe["optimizer"]
        rate, decay = o["learning_rate"], o["weight_decay"]
        if o["type"] == "sgd":
            return torch.optim.SGD(model.parameters(), lr=rate, momentum=o["momentum"], weight_decay=decay)
        return torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, o["beta2"]), weight_decay=decay)

    def learning_rate(self, step):
        schedule, base = self.recipe["schedule"], self.recipe["optimizer"]["learning_rate"]
        warmup, last = schedule["warmup_steps"], schedule.get("min_learning_rate", 0)
        if step < warmup:
            return base * (step + 1) / (warmup + 1)
        share = (step - warmup) / (self.steps - warmup - 1)
        return last + (base - last) / 2 * (1 + math.cos(math.pi * share))

    @functools.cache
    def order(self, rows, epoch):
        return permutation(rows, self.seed, stream_of("shuffle"), epoch)


class Gpt(Example):
    file = "shakespeare_gpt.yaml"
    title = "a GPT of 4 layers of 128, tiny Shakespeare by characters"
    shown = "val/loss"

    def prepare(self, data, folder):
        text = (data / "tinyshakespeare/input.txt").read_text(encoding="utf-8")
        self.spec["dataset"]["path"] = str(data / "tinyshakespeare/input.txt")
        codes = np.array([ord(c) for c in text])
        known = np.unique(codes)
        self.tokens = (np.searchsorted(known, codes) + 1).astype(np.int64)  # 0 is the unknown token
        self.vocabulary = len(known) + 1
        self.context = self.recipe["context_length"]
        n, t = len(self.tokens), self.context
        self.windows = round((n - 1) // t * self.recipe["validation_split"])

    def model(self):
        size = self.spec["model"]["gpt2"]
        model = GPT2(self.vocabulary, self.context, size["n_layer"], size["n_head"], size["n_embd"])
        initialize_transformer(model, self.seed)
        return model

    def samples(self, starts):
        rows = np.stack([self.tokens[s:s + self.context + 1] for s in starts])
        return torch.from_numpy(rows[:, :-1].copy()), torch.from_numpy(rows[:, 1:].reshape(-1).copy())

    def batches(self, step):
        t, n = self.context, len(self.tokens)
        inputs = n - 1 - self.windows * t - 1
        train = (inputs - (t - 1)) // t
        shift_max = min(t - 1, inputs - train * t)
        epoch, first = divmod(step, train // self.batch)
        shift = int(philox_u32(self.seed, stream_of("window"), epoch, 1)[0]) % (shift_max + 1)
        return self.samples(self.order(train, epoch)[first * self.batch:(first + 1) * self.batch] * t + shift)

    def evaluate(self, model):
        first = len(self.tokens) - 1 - self.windows * self.context
        total = 0.0
        for begin in range(0, self.windows, 64):
            count = min(64, self.windows - begin)
            x, y = self.samples(first + (begin + np.arange(count)) * self.context)
            total += count * torch.nn.functional.cross_entropy(model(x), y).item()
        return total / self.windows

    def look(self, daemon, model):
        text = daemon.cli("generate", model, "--prompt", "ROMEO:", "--tokens", 300, "--temperature", 0.8,
                          "--seed", 1).stdout
        return ["Of the model, `trainyard generate MODEL --prompt ROMEO: --tokens 300 --temperature 0.8 --seed 1`:",
                "", "```text", text.rstrip(), "```"]


class ResNet(Example):
    file = "cifar10_resnet18_300_steps.yaml"
    title = "ResNet-18 with the stem for small images, CIFAR-10 as JPEG files in folders"
    shown = "test/accuracy"

    def prepare(self, data, folder):
        from PIL import Image

        with tarfile.open(data / "cifar10/cifar10-jpg.tar.xz") as archive:
            archive.extractall(folder / "cifar10", filter="data")
        self.spec["dataset"]["path"] = str(folder / "cifar10")
        classes = sorted(p.name for p in (folder / "cifar10/train").iterdir())
        self.images, self.labels = {}, {}
        for part in ("train", "test"):
            files = sorted((folder / "cifar10" / part).rglob("*.jpg"), key=lambda p: str(p).encode())
            self.images[part] = np.stack([np.asarray(Image.open(f).convert("RGB")).transpose(2, 0, 1) for f in files])
            self.labels[part] = np.array([classes.index(f.parent.name) for f in files])
        sums = [self.images["train"][:, c].astype(np.float64) / 255 for c in range(3)]
        self.mean = np.array([s.mean() for s in sums])
        self.std = np.array([s.std() for s in sums])

    def model(self):
        model = make_image_model("resnet18", 32, 10)
        initialize_images(model, self.seed)
        return model.train().to(memory_format=torch.channels_last)

    def samples(self, part, rows):
        x = (self.images[part][rows] / 255 - self.mean[:, None, None]) / self.std[:, None, None]
        return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(self.labels[part][rows])

    def batches(self, step):
        count = len(self.labels["train"])
        epoch, first = divmod(step, count // self.batch)
        return self.samples("train", self.order(count, epoch)[first * self.batch:(first + 1) * self.batch])

    def evaluate(self, model):
        count, right = len(self.labels["test"]), 0
        for begin in range(0, count, 100):
            x, y = self.samples("test", np.arange(begin, min(begin + 100, count)))
            right += int((model(x).argmax(1) == y).sum())
        return right / count

    def look(self, daemon, model):
        return []


CASES = {"gpt2": Gpt, "resnet18": ResNet}


def run_daemon(case, folder):
    path = folder / "job.yaml"
    path.write_text(json.dumps(case.spec))  # JSON is a subset of YAML
    daemon = Daemon(folder / "state").start()
    try:
        start = time.monotonic()
        job = daemon.submit(path)
        while (state := daemon.job(job)["state"]) not in ("SUCCEEDED", "FAILED", "CANCELLED"):
            time.sleep(2)
        seconds = time.monotonic() - start
        values = {}
        for event in daemon.events(job):
            for series in event.get("metrics", {}).get("series", []):
                values.setdefault(series["key"], {}).update(
                    (int(step), value) for step, value in zip(series["steps"], series["values"]))
        losses = values.get("train/loss", {})
        if state != "SUCCEEDED" or len(losses) != case.steps:
            raise SystemExit(f"{job} {state}, {len(losses)} of {case.steps} losses\n{daemon.log()[-2000:]}")
        shown = values[case.shown][max(values[case.shown])]
        looks = case.look(daemon, daemon.job(job)["model"].split("/")[-1])
        return [losses[s] for s in sorted(losses)], shown, seconds, looks
    finally:
        daemon.stop()


def run_torch(case, threads):
    torch.set_num_threads(threads)
    model = case.model()
    optimizer = case.optimizer(model)
    clip = case.recipe.get("clip_gradients", {}).get("norm")
    losses = []
    start = time.monotonic()
    for step in range(case.steps):
        x, y = case.batches(step)
        for group in optimizer.param_groups:
            group["lr"] = case.learning_rate(step)
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        return losses, case.evaluate(model), time.monotonic() - start


def difference(ours, theirs):
    """Returns the largest relative difference between the first 50 losses."""
    return max(abs(a - b) / b for a, b in zip(ours[:50], theirs[:50]))


def report(case, args):
    with tempfile.TemporaryDirectory(prefix="trainyard-convergence-") as folder:
        folder = pathlib.Path(folder)
        case.prepare(args.data, folder)
        ours, our_result, seconds, looks = run_daemon(case, folder)
    theirs, their_result, their_seconds = run_torch(case, args.threads)
    columns = {"ours": ours, "PyTorch": theirs}
    results = {"ours": our_result, "PyTorch": their_result}
    if args.noise:
        columns["PyTorch, 1 thread"], results["PyTorch, 1 thread"], _ = run_torch(case, 1)
    lines = [f"## {case.title}", "",
             f"`examples/{case.file}`: {case.steps} steps of {case.batch}. Largest relative difference of a loss over the "
             f"first 50 steps {difference(ours, theirs):.1e}. {seconds:.0f} s through the daemon with the ingest, "
             f"PyTorch {their_seconds:.0f} s without its own (no benchmark: one after the other).", "",
             f"| steps | {' | '.join(columns)} |", "| --- |" + " --- |" * len(columns)]
    part = case.steps // 10
    for begin in range(0, case.steps, part):
        means = [f"{np.mean(losses[begin:begin + part]):.4f}" for losses in columns.values()]
        lines.append(f"| {begin + 1}-{min(begin + part, case.steps)} | {' | '.join(means)} |")
    lines.append(f"| **{case.shown} after the last step** | "
                 + " | ".join(f"**{results[name]:.4f}**" for name in columns) + " |")
    if args.noise:
        lines += ["", "PyTorch from itself over the first 50 steps: "
                  f"{difference(columns['PyTorch, 1 thread'], theirs):.1e}"]
    return lines + [""] + looks + [""] * bool(looks)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--noise", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    lines = [f"# Example specs beside PyTorch {torch.__version__}", ""]
    for name in args.only.split(","):
        lines += report(CASES[name](), args)
    print("\n".join(lines), flush=True)
    if args.out:
        args.out.write_text("\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
