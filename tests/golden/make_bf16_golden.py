#!/usr/bin/env python3
"""Writes pytorch_bf16.json: the runs of the other golden files under torch.autocast(bfloat16).

    venv/bin/python tests/golden/make_bf16_golden.py

Same weights, batches and optimizers as the scripts that are imported here. Autocast multiplies in
bfloat16 where we do, but rounds at other places besides (it keeps the residual stream and losses in
fp32, and normalises what is in bf16 in bf16), so two right answers differ by about as much as each
differs from fp32. `gap` is how far PyTorch's own bf16 losses are from its fp32 ones: the largest
distance of a step, relative to its loss.
"""

import json
import pathlib
import sys

import make_image_golden as images
import make_pytorch_golden as classic
import make_text_golden as text
import make_transformer_golden as transformers
import torch

CLASSIC = ["mlp_adam", "lenet5_sgd"]
IMAGES = ["resnet18"]
TRANSFORMERS = ["gpt2_adamw", "vit_tiny_adam"]
TEXT = ["lstm_classifier"]


def cases():
    """Each name with a function that gives the losses."""
    for name, *spec in classic.CASES:
        if name in CLASSIC:
            yield name, lambda spec=spec: classic.run(*spec, torch.float32)[1]
    for name, *spec in images.CASES:
        if name in IMAGES:
            yield name, lambda spec=spec: images.run(*spec, torch.float32)[1]
    for name, *spec in transformers.CASES:
        if name in TRANSFORMERS:
            yield name, lambda spec=spec: transformers.run(*spec, torch.float32)
    for name, *spec in text.CASES:
        if name in TEXT:
            yield name, lambda spec=spec: text.run(*spec, torch.float32)


def main():
    torch.set_num_threads(1)
    out = {"torch": torch.__version__, "cases": []}
    for name, run in cases():
        exact = run()
        # One context for all steps: its cache would keep the weights of the first one.
        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
            losses = run()
        gap = max(abs(a - b) / b for a, b in zip(losses, exact))
        print(f"{name}: loss {losses[0]:.4f} -> {losses[-1]:.6f}; fp32 -> {exact[-1]:.6f}; "
              f"bf16 against fp32: within {gap:.1e}", flush=True)
        out["cases"].append({"name": name, "gap": float(f"{gap:.2g}"),
                             "losses": [float(f"{v:.7g}") for v in losses]})
    path = pathlib.Path(__file__).with_name("pytorch_bf16.json")
    path.write_text(json.dumps(out, separators=(",", ":")).replace('{"name"', '\n{"name"') + "\n")
    print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    sys.exit(main())
