#!/usr/bin/env python3
"""Writes pytorch_images.json: PyTorch's results for the runs in tests/engine/image_golden_test.cc.

    venv/bin/python tests/golden/make_image_golden.py

As in make_pytorch_golden.py, initial weights and batches are Philox numbers. The file has the loss
of each step, and the norm of each final parameter and running statistic. Networks are narrow, so
that 50 steps take a second. Learning rates are low: a rounding that flips the winner of a pooling
window or the sign of a unit would otherwise grow through batch normalization until PyTorch's fp32
curve differs from its own fp64 curve by more than the bound. fp32_loss_error in the file is that
difference.
"""

import json
import pathlib
import sys

import numpy as np
import torch
from image_models import engine_name, initialize_images, make_image_model
from philox import philox_u32, stream_of, uniform01

SEED = 20240601
STEPS = 50
CLASSES = 10
SIDE = 32

SGD = {"type": "sgd", "learning_rate": 0.0001, "momentum": 0.9}

CASES = [
    # name, preset, width, batch, options, optimizer
    ("vgg11", "vgg11", 8, 16, {"hidden": 1024, "dropout": 0.0}, {**SGD, "learning_rate": 0.05}),
    ("vgg11_bn", "vgg11", 8, 16, {"hidden": 1024, "batch_norm": True, "dropout": 0.0},
     {**SGD, "learning_rate": 0.006}),
    ("resnet18", "resnet18", 8, 16, {}, SGD),
    ("resnet50", "resnet50", 4, 16, {}, {**SGD, "learning_rate": 0.000001}),
]


def image_batch(step, batch):
    """Returns the batch of golden_batch() in reference_models.py, for images [3, SIDE, SIDE]."""
    pixels = 3 * SIDE * SIDE
    labels = philox_u32(SEED, stream_of("golden/label"), step, batch) % CLASSES
    noise = uniform01(SEED, stream_of("golden/noise"), step, batch * pixels).reshape(batch, pixels)
    pattern = uniform01(SEED, stream_of("golden/pattern"), 0, CLASSES * pixels)
    x = 0.5 * (noise - 0.5) + 1.5 * (pattern.reshape(CLASSES, pixels)[labels] - 0.5)
    return x.astype(np.float32).reshape(batch, 3, SIDE, SIDE), labels.astype(np.int64)


def run(name, width, batch, options, o, dtype):
    model = make_image_model(name, SIDE, CLASSES, width, **options)
    initialize_images(model, SEED)
    model = model.to(dtype).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=o["learning_rate"], momentum=o["momentum"])
    loss_of = torch.nn.CrossEntropyLoss()
    losses = []
    for step in range(STEPS):
        x, y = image_batch(step, batch)
        optimizer.zero_grad()
        loss = loss_of(model(torch.from_numpy(x).to(dtype)), torch.from_numpy(y))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


def engine_parameters(width, options):
    names = {"batch_norm": "batch_normalization"}
    return {"width": width, **{names.get(k, k): int(v) if isinstance(v, bool) else v
                               for k, v in options.items()}}


def golden(case, name, width, batch, options, optimizer):
    model, losses = run(name, width, batch, options, optimizer, torch.float32)
    exact, exact_losses = run(name, width, batch, options, optimizer, torch.float64)
    noise = max(abs(a - b) / b for a, b in zip(losses, exact_losses))
    exact_state = exact.state_dict()
    norms, distance = {}, 0.0
    for key, p in model.state_dict().items():
        if key.endswith("num_batches_tracked"):
            continue
        values = p.numpy().astype(np.float64).reshape(-1)
        reference = exact_state[key].numpy().reshape(-1)
        norm = np.linalg.norm(values)
        if norm > 1e-5:  # the gradient of a bias before batch normalization is only rounding error
            distance = max(distance, np.linalg.norm(values - reference) / norm)
        norms[engine_name(key)] = float(f"{norm:.7g}")
    print(f"{case}: loss {losses[0]:.4f} -> {losses[-1]:.6f}; PyTorch fp32 against fp64: "
          f"losses within {noise:.1e}, weights within {distance:.1e} (relative norm)", flush=True)
    return {
        "name": case, "preset": name, "parameters": engine_parameters(width, options),
        "batch_size": batch, "optimizer": optimizer,
        "losses": [float(f"{v:.9g}") for v in losses],
        "fp32_loss_error": noise, "fp32_weight_error": float(distance), "norms": norms,
    }


def main():
    """Runs all cases, or only those named as arguments, and then leaves the others in the file
    unchanged."""
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False
    torch.use_deterministic_algorithms(True)
    path = pathlib.Path(__file__).with_name("pytorch_images.json")
    wanted = sys.argv[1:]
    kept = {c["name"]: c for c in json.loads(path.read_text())["cases"]} if wanted else {}
    out = {"torch": torch.__version__, "seed": SEED, "steps": STEPS, "cases": [
        kept[c[0]] if wanted and c[0] not in wanted else golden(*c) for c in CASES]}
    path.write_text(json.dumps(out, separators=(",", ":")).replace('{"name"', '\n{"name"') + "\n")
    print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    sys.exit(main())
