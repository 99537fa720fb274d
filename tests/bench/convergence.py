#!/usr/bin/env python3
"""Loss curves of the daemon beside PyTorch's, over 300 steps on real data.

    venv/bin/python tests/bench/convergence.py DATA [--only gpt2,resnet18] [--steps 300] [--out FILE.md]

DATA holds tinyshakespeare/input.txt and cifar10/cifar10-jpg.tar.xz. A job runs through a daemon of its
own; PyTorch then runs the same model from the same weights on the same batches, which it draws by the
rules in docs/datasets.md. Needs torch, numpy and pillow.

Both sides round differently, and training amplifies that: single losses drift apart after some dozens
of steps. So the table has the largest difference over the first 50 steps, and then the means of 50 steps.
With --noise PyTorch runs once more with another number of threads, which shows how far it stays from itself.
"""

import argparse
import io
import json
import pathlib
import struct
import sys
import tarfile
import tempfile
import time

import numpy as np
import torch

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "golden"), str(TESTS / "e2e")]
from harness import Daemon  # noqa: E402
from image_models import initialise_images, make_image_model  # noqa: E402
from philox import philox_u32, stream_of  # noqa: E402
from reference_transformers import GPT2, initialise_transformer  # noqa: E402

SEED = 1


def permutation(n, seed, stream, step):
    """As src/base/philox.cc: indices in the order of 64-bit random keys."""
    r = philox_u32(seed, stream, step, (n + 1) // 2 * 4).astype(np.uint64)
    keys = r[0::2] << np.uint64(32) | r[1::2]
    return np.argsort(keys[:n], kind="stable")


class Gpt:
    title = "gpt2, 6 layers of 384, 10.7 M parameters, tiny Shakespeare by characters"
    batch, context, validation = 8, 128, 0.05
    rate, decay, betas, clip = 3e-4, 0.1, (0.9, 0.99), 1.0

    def prepare(self, data, folder):
        self.text = (data / "tinyshakespeare/input.txt").read_text(encoding="utf-8")
        (folder / "input.txt").write_text(self.text, encoding="utf-8")
        codes = np.array([ord(c) for c in self.text])
        known = np.unique(codes)
        self.tokens = (np.searchsorted(known, codes) + 1).astype(np.int64)  # 0 is the unknown one
        self.vocabulary = len(known) + 1
        return {
            "dataset": {"path": str(folder / "input.txt"), "text": {"tokenizer": "char"}},
            "model": {"gpt2": {"n_layer": 6, "n_head": 6, "n_embd": 384, "dropout": 0.0}},
            "recipe": {"batch_size": self.batch, "context_length": self.context,
                       "validation_split": self.validation,
                       "optimizer": {"type": "adamw", "learning_rate": self.rate, "weight_decay": self.decay,
                                     "beta1": self.betas[0], "beta2": self.betas[1]},
                       "clip_gradients": {"norm": self.clip}},
        }

    def model(self):
        model = GPT2(self.vocabulary, self.context, depth=6, heads=6, width=384)
        initialise_transformer(model, SEED)
        return model

    def optimizer(self, model):
        return torch.optim.AdamW(model.parameters(), lr=self.rate, betas=self.betas,
                                 weight_decay=self.decay)

    def batches(self, step):
        t, n = self.context, len(self.tokens)
        windows = round((n - 1) // t * self.validation)
        inputs = n - 1 - windows * t - 1
        train = (inputs - (t - 1)) // t
        shift_max = min(t - 1, inputs - train * t)
        epoch, first = divmod(step, train // self.batch)
        order = permutation(train, SEED, stream_of("shuffle"), epoch)
        shift = int(philox_u32(SEED, stream_of("window"), epoch, 1)[0]) % (shift_max + 1)
        starts = order[first * self.batch:(first + 1) * self.batch] * t + shift
        rows = np.stack([self.tokens[s:s + t + 1] for s in starts])
        return torch.from_numpy(rows[:, :-1].copy()), torch.from_numpy(rows[:, 1:].reshape(-1).copy())


class ResNet:
    title = "resnet18, stem for small images, 11.2 M parameters, CIFAR-10"
    batch, rate, momentum, decay, clip = 32, 0.02, 0.9, 5e-4, None

    def prepare(self, data, folder):
        from PIL import Image

        images, labels, classes = [], [], {}
        with tarfile.open(data / "cifar10/cifar10-jpg.tar.xz") as archive:
            for member in archive:
                parts = member.name.split("/")
                if parts[0] != "train" or not member.isfile():
                    continue
                label = classes.setdefault(parts[1], len(classes))
                if sum(1 for v in labels if v == label) >= 1000:
                    continue
                image = Image.open(io.BytesIO(archive.extractfile(member).read())).convert("RGB")
                images.append(np.asarray(image).transpose(2, 0, 1))
                labels.append(label)
        self.images, self.labels = np.stack(images), np.array(labels, dtype=np.uint8)
        (folder / "images").write_bytes(struct.pack(">BBBB4I", 0, 0, 8, 4, *self.images.shape)
                                        + self.images.tobytes())
        (folder / "labels").write_bytes(struct.pack(">BBBBI", 0, 0, 8, 1, len(labels))
                                        + self.labels.tobytes())
        x = self.images.astype(np.float64) / 255
        self.mean, self.std = x.mean(axis=(0, 2, 3)), x.std(axis=(0, 2, 3))
        return {
            "dataset": {"train_images": str(folder / "images"), "train_labels": str(folder / "labels")},
            "model": {"resnet18": {}},
            "recipe": {"batch_size": self.batch,
                       "optimizer": {"type": "sgd", "learning_rate": self.rate, "momentum": self.momentum,
                                     "weight_decay": self.decay}},
        }

    def model(self):
        model = make_image_model("resnet18", 32, 10)
        initialise_images(model, SEED)
        return model.train().to(memory_format=torch.channels_last)

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=self.rate, momentum=self.momentum,
                               weight_decay=self.decay)

    def batches(self, step):
        epoch, first = divmod(step, len(self.labels) // self.batch)
        order = permutation(len(self.labels), SEED, stream_of("shuffle"), epoch)
        rows = order[first * self.batch:(first + 1) * self.batch]
        x = (self.images[rows] / 255 - self.mean[:, None, None]) / self.std[:, None, None]
        return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(self.labels[rows].astype(np.int64))


CASES = {"gpt2": Gpt, "resnet18": ResNet}


def run_daemon(spec, steps, folder):
    spec["recipe"].update({"steps": steps, "seed": SEED, "checkpoint_every_steps": steps})
    path = folder / "job.yaml"
    path.write_text(json.dumps(spec))  # JSON is YAML
    daemon = Daemon(folder / "state").start()
    try:
        start = time.monotonic()
        job = daemon.submit(path)
        while (daemon.job(job)["state"]) not in ("SUCCEEDED", "FAILED", "CANCELLED"):
            time.sleep(2)
        seconds = time.monotonic() - start
        losses = {int(step): value
                  for event in daemon.events(job)
                  for series in event.get("metrics", {}).get("series", []) if series["key"] == "train/loss"
                  for step, value in zip(series["steps"], series["values"])}
        if len(losses) != steps:
            raise SystemExit(f"{job} reported {len(losses)} of {steps} losses\n{daemon.log()[-2000:]}")
        return [losses[s] for s in sorted(losses)], seconds
    finally:
        daemon.stop()


def run_torch(case, steps, threads):
    torch.set_num_threads(threads)
    model = case.model()
    optimizer = case.optimizer(model)
    losses = []
    start = time.monotonic()
    for step in range(steps):
        x, y = case.batches(step)
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        if case.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), case.clip)
        optimizer.step()
        losses.append(loss.item())
    return losses, time.monotonic() - start


def compare(ours, theirs):
    """Largest relative difference of the first 50 steps, and of the means over 50 steps."""
    early = max(abs(a - b) / b for a, b in zip(ours[:50], theirs[:50]))
    means = [(np.mean(ours[i:i + 50]), np.mean(theirs[i:i + 50])) for i in range(0, len(theirs), 50)]
    return early, means


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--noise", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    lines = [f"# Loss curves beside PyTorch {torch.__version__}, {args.steps} steps", ""]
    for name in args.only.split(","):
        case = CASES[name]()
        with tempfile.TemporaryDirectory(prefix="trainyard-convergence-") as folder:
            folder = pathlib.Path(folder)
            ours, seconds = run_daemon(case.prepare(args.data, folder), args.steps, folder)
        theirs, their_seconds = run_torch(case, args.steps, args.threads)
        early, means = compare(ours, theirs)
        lines += [f"## {case.title}", "",
                  f"Batch {case.batch}; largest relative difference over the first 50 steps {early:.1e}; "
                  f"{seconds:.0f} s through the daemon, PyTorch {their_seconds:.0f} s (not a benchmark: one "
                  "after the other).", "",
                  "| steps | ours | PyTorch |" + (" PyTorch, 1 thread |" if args.noise else ""),
                  "| --- | --- | --- |" + (" --- |" if args.noise else "")]
        again = None
        if args.noise:
            again, _ = run_torch(case, args.steps, 1)
        for i, (a, b) in enumerate(means):
            last = min(50 * i + 50, len(theirs))
            extra = f" {np.mean(again[50 * i:last]):.4f} |" if again else ""
            lines.append(f"| {50 * i + 1}-{last} | {a:.4f} | {b:.4f} |{extra}")
        if again:
            lines += ["", f"PyTorch from itself over the first 50 steps: {compare(again, theirs)[0]:.1e}"]
        lines.append("")
    print("\n".join(lines), flush=True)
    if args.out:
        args.out.write_text("\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
