#!/usr/bin/env python3
"""Writes pytorch_bf16.json and pytorch_fp16.json: the runs of the other golden files under
torch.autocast, in float16 with torch.amp.GradScaler.

    venv/bin/python tests/golden/make_half_golden.py [bf16] [fp16]

Weights, batches and optimizers are those of the imported scripts. Autocast multiplies in 16 bits
where the engine does, but rounds at other places (it keeps the residual stream and losses in fp32,
and normalizes bf16 tensors in bf16). Two correct results therefore differ by about as much as each
differs from fp32. `gap` is the largest relative difference, over the steps, between PyTorch's
16-bit and fp32 losses.
"""

import contextlib
import json
import pathlib
import sys

import make_image_golden as images
import make_pytorch_golden as classic
import make_text_golden as text
import make_transformer_golden as transformers
import torch

CASES = {
    "bf16": ["mlp_adam", "lenet5_sgd", "resnet18", "gpt2_adamw", "vit_tiny_adam", "lstm_classifier"],
    "fp16": ["mlp_adam", "lenet5_sgd", "gpt2_adamw"],
}


def cases(names):
    """Yields each name with a function that computes the losses."""
    for name, *spec in classic.CASES:
        if name in names:
            yield name, lambda spec=spec: classic.run(*spec, torch.float32)[1]
    for name, *spec in images.CASES:
        if name in names:
            yield name, lambda spec=spec: images.run(*spec, torch.float32)[1]
    for name, *spec in transformers.CASES:
        if name in names:
            yield name, lambda spec=spec: transformers.run(*spec, torch.float32)
    for name, *spec in text.CASES:
        if name in names:
            yield name, lambda spec=spec: text.run(*spec, torch.float32)


@contextlib.contextmanager
def scaled_gradients():
    """Replaces backward() and step() by the usual calls of GradScaler; yields a list that notes for
    each step whether it was skipped."""
    scaler = torch.amp.GradScaler("cpu")
    backward = torch.Tensor.backward
    skipped = []

    def scaled_backward(loss):
        backward(scaler.scale(loss))

    def step_of(plain):
        def step(optimizer):
            if getattr(optimizer, "inside", False):
                return plain(optimizer)
            optimizer.inside = True
            before = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            optimizer.inside = False
            skipped.append(scaler.get_scale() < before)
        return step

    kinds = [torch.optim.SGD, torch.optim.Adam]  # AdamW is a subclass of Adam
    plain = [kind.step for kind in kinds]
    torch.Tensor.backward = scaled_backward
    for kind, step in zip(kinds, plain):
        kind.step = step_of(step)
    try:
        yield skipped
    finally:
        torch.Tensor.backward = backward
        for kind, step in zip(kinds, plain):
            kind.step = step


def write(precision):
    out = {"torch": torch.__version__, "cases": []}
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    for name, run in cases(CASES[precision]):
        exact = run()
        with contextlib.ExitStack() as stack:
            skipped = stack.enter_context(scaled_gradients()) if precision == "fp16" else []
            # One context covers all steps: with a cache it would keep using the weights of the
            # first step.
            stack.enter_context(torch.autocast("cpu", dtype=dtype, cache_enabled=False))
            losses = run()
        gap = max(abs(a - b) / b for a, b in zip(losses, exact))
        print(f"{name}: loss {losses[0]:.4f} -> {losses[-1]:.6f}; fp32 -> {exact[-1]:.6f}; "
              f"{precision} against fp32: within {gap:.1e}; {sum(skipped)} steps skipped", flush=True)
        out["cases"].append({"name": name, "gap": float(f"{gap:.2g}"),
                             "losses": [float(f"{v:.7g}") for v in losses]})
    path = pathlib.Path(__file__).with_name(f"pytorch_{precision}.json")
    path.write_text(json.dumps(out, separators=(",", ":")).replace('{"name"', '\n{"name"') + "\n")
    print(f"{path.name}: {path.stat().st_size} bytes")


def main():
    torch.set_num_threads(1)
    for precision in sys.argv[1:] or CASES:
        write(precision)


if __name__ == "__main__":
    sys.exit(main())
