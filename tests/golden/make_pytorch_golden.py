#!/usr/bin/env python3
"""Writes pytorch_training.json: PyTorch's results for the runs in tests/engine/golden_test.cc.

    python3 -m venv venv && venv/bin/pip install torch numpy
    venv/bin/python tests/golden/make_pytorch_golden.py

Initial weights and batches are Philox numbers (philox.py), so the file has only results: the loss
of each step, and the norm and a few values of each final parameter.

LeNet's learning rate is low for a reason: one rounding can flip the winner of a pooling window, and
because the gradients of single pixels nearly cancel, one flip changes a convolution's gradient by
1e-3. At a learning rate that reaches a loss of 0.1 in 100 steps, PyTorch's own fp32 curve differs
from its fp64 curve by 1e-2; at this rate they agree. For the same reason the script disables
oneDNN: PyTorch's plain loops are ten times closer to fp64.
"""

import json
import pathlib
import sys

import numpy as np
import torch
from reference_models import golden_batch, initialize, make_lenet5, make_mlp

SEED = 20240601
STEPS = 100
SAMPLES = 16

CASES = [
    # name, model, image shape, batch, optimizer
    ("mlp_sgd", make_mlp, (784,), 64, {"type": "sgd", "learning_rate": 0.004, "momentum": 0.9}),
    ("mlp_adam", make_mlp, (784,), 64, {"type": "adam", "learning_rate": 0.00005}),
    ("lenet5_sgd", make_lenet5, (1, 28, 28), 64,
     {"type": "sgd", "learning_rate": 0.004, "momentum": 0.9}),
]


def make_optimizer(model, o):
    if o["type"] == "sgd":
        return torch.optim.SGD(model.parameters(), lr=o["learning_rate"], momentum=o["momentum"])
    return torch.optim.Adam(model.parameters(), lr=o["learning_rate"])


def run(make_model, shape, batch, optimizer_spec, dtype):
    model = make_model()
    initialize(model, SEED)
    model = model.to(dtype)
    optimizer = make_optimizer(model, optimizer_spec)
    loss_of = torch.nn.CrossEntropyLoss()
    losses = []
    for step in range(STEPS):
        x, y = golden_batch(SEED, step, batch)
        x = torch.from_numpy(x).to(dtype).reshape(batch, *shape)
        optimizer.zero_grad()
        loss = loss_of(model(x), torch.from_numpy(y))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


def main():
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False
    torch.use_deterministic_algorithms(True)
    out = {"torch": torch.__version__, "seed": SEED, "steps": STEPS, "cases": []}
    for name, make_model, shape, batch, optimizer in CASES:
        model, losses = run(make_model, shape, batch, optimizer, torch.float32)
        exact, exact_losses = run(make_model, shape, batch, optimizer, torch.float64)
        noise = max(abs(a - b) / b for a, b in zip(losses, exact_losses))
        parameters = {}
        exact_parameters = dict(exact.named_parameters())
        distance = 0.0
        for key, p in model.named_parameters():
            values = p.detach().numpy().astype(np.float64).reshape(-1)
            reference = exact_parameters[key].detach().numpy().reshape(-1)
            distance = max(distance,
                           np.linalg.norm(values - reference) / np.linalg.norm(reference))
            index = np.linspace(0, values.size - 1, min(SAMPLES, values.size)).astype(int)
            parameters[key] = {
                "norm": float(np.linalg.norm(values)),
                "index": [int(i) for i in index],
                "value": [float(np.float32(values[i])) for i in index],
            }
        print(f"{name}: loss {losses[0]:.4f} -> {losses[-1]:.6f}; PyTorch fp32 against fp64: "
              f"losses within {noise:.1e}, weights within {distance:.1e} (relative norm)")
        out["cases"].append({
            "name": name, "batch_size": batch, "optimizer": optimizer,
            # Nine significant digits represent a float32 exactly.
            "losses": [float(f"{v:.9g}") for v in losses],
            # The effect of PyTorch's own rounding on its results, as an estimate of the reference's
            # error.
            "fp32_loss_error": noise, "fp32_weight_error": float(distance),
            "parameters": parameters,
        })
    path = pathlib.Path(__file__).with_name("pytorch_training.json")
    path.write_text(json.dumps(out, indent=None, separators=(",", ":")).replace(
        '{"name"', '\n{"name"').replace('"parameters":', '\n"parameters":') + "\n")
    print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    sys.exit(main())
