#!/usr/bin/env python3
"""Writes pytorch_transformers.json: the losses that PyTorch computes for the runs in
tests/engine/golden_transformer_test.cc. See make_pytorch_golden.py for how to call it.

Initial weights and batches are Philox numbers on both sides, so the file has only losses.
"""

import json
import pathlib
import sys

import torch
from reference_transformers import (GPT2, TransformerClassifier, ViT, image_batch,
                                    initialize_transformer, next_token_batch, text_class_batch)

SEED = 20241107
STEPS = 50
VOCABULARY, CONTEXT, CLASSES = 37, 72, 5
IMAGE = (3, 16, 16)

ADAMW = {"type": "adamw", "learning_rate": 0.001, "weight_decay": 0.01}
SGD = {"type": "sgd", "learning_rate": 0.05, "momentum": 0.9}
# At 0.05 the smaller models train so fast that rounding errors grow a thousandfold within 50 steps,
# in PyTorch as well.
SLOW_SGD = {"type": "sgd", "learning_rate": 0.003, "momentum": 0.9}
ADAM = {"type": "adam", "learning_rate": 0.0005}


def gpt2():
    return GPT2(VOCABULARY, CONTEXT, depth=2, heads=3, width=48)


def gpt2_batch(step, batch):
    return next_token_batch(SEED, step, batch, CONTEXT, VOCABULARY)


def vit_tiny():
    return ViT(IMAGE, CLASSES, width=192, heads=3, patch_size=4)


def vit_tiny_mean():
    return ViT(IMAGE, CLASSES, width=192, heads=3, patch_size=8, pool="mean")


def vit_batch(step, batch):
    return image_batch(SEED, step, batch, IMAGE, CLASSES)


def classifier():
    return TransformerClassifier(VOCABULARY, 20, CLASSES, depth=2, heads=4, width=32)


def classifier_batch(step, batch):
    return text_class_batch(SEED, step, batch, 20, VOCABULARY, CLASSES)


CASES = [
    ("gpt2_adamw", gpt2, gpt2_batch, 4, ADAMW),
    ("gpt2_sgd", gpt2, gpt2_batch, 4, SGD),
    ("vit_tiny_adam", vit_tiny, vit_batch, 4, ADAM),
    ("vit_tiny_mean_sgd", vit_tiny_mean, vit_batch, 4, SLOW_SGD),
    ("transformer_classifier_adam", classifier, classifier_batch, 8, ADAM),
    ("transformer_classifier_sgd", classifier, classifier_batch, 8, SLOW_SGD),
]


def make_optimizer(model, o):
    if o["type"] == "sgd":
        return torch.optim.SGD(model.parameters(), lr=o["learning_rate"], momentum=o["momentum"])
    kind = torch.optim.AdamW if o["type"] == "adamw" else torch.optim.Adam
    return kind(model.parameters(), lr=o["learning_rate"], weight_decay=o.get("weight_decay", 0))


def run(make_model, make_batch, batch, optimizer_spec, dtype):
    model = make_model()
    initialize_transformer(model, SEED)
    model = model.to(dtype)
    optimizer = make_optimizer(model, optimizer_spec)
    losses = []
    for step in range(STEPS):
        x, y = (torch.from_numpy(v) for v in make_batch(step, batch))
        if x.is_floating_point():
            x = x.to(dtype)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    out = {"torch": torch.__version__, "seed": SEED, "cases": []}
    for name, make_model, make_batch, batch, optimizer in CASES:
        losses = run(make_model, make_batch, batch, optimizer, torch.float32)
        exact = run(make_model, make_batch, batch, optimizer, torch.float64)
        noise = max(abs(a - b) / b for a, b in zip(losses, exact))
        print(f"{name}: loss {losses[0]:.4f} -> {losses[-1]:.6f}; PyTorch fp32 against fp64: "
              f"within {noise:.1e}")
        out["cases"].append({"name": name, "batch_size": batch, "optimizer": optimizer,
                             "fp32_loss_error": float(f"{noise:.2g}"),
                             "losses": [float(f"{v:.9g}") for v in losses]})
    path = pathlib.Path(__file__).with_name("pytorch_transformers.json")
    path.write_text(json.dumps(out, separators=(",", ":")).replace('{"name"', '\n{"name"') + "\n")
    print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    sys.exit(main())
