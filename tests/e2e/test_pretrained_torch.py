"""Tiny models of every family that transformers has made, as folders in model.pretrained: losses of AdamW steps as in
PyTorch, on the same tokens in the same batches. The test fails if a setting of config.json has another meaning than in
transformers, or a tensor is taken for another one. Weights in several files, as transformers splits them, give the same.

TRAINYARD_TORCH_PYTHON names a Python with torch and transformers; without them the test is skipped.
"""

import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from harness import BIN, SOURCE

try:
    import torch
    import transformers  # noqa: F401
except ImportError as missing:
    python = os.environ.get("TRAINYARD_TORCH_PYTHON")
    if python and os.environ.get("TRAINYARD_TORCH_TRIED") != python:
        os.execve(python, [python, *sys.argv], dict(os.environ, TRAINYARD_TORCH_TRIED=python))
    print(f"{missing.name} is not installed for {sys.executable}", file=sys.stderr)
    raise SystemExit(77)  # CTest's status for skipped tests

golden_spec = importlib.util.spec_from_file_location("families", SOURCE / "tests/golden/make_families_golden.py")
families = importlib.util.module_from_spec(golden_spec)
golden_spec.loader.exec_module(families)

BOUND = 1e-4
STEPS, BATCH, CONTEXT, WINDOWS, RATE = 20, 4, 48, 16, 0.002

SPEC = """
dataset: {{path: text.txt, text: {{tokenizer: byte}}}}
model: {{pretrained: {folder}}}
recipe:
  steps: {steps}
  batch_size: {batch}
  context_length: {context}
  shuffle: false
  precision: fp32
  optimizer: {{type: adamw, learning_rate: {rate}, weight_decay: 0.01, epsilon: 1.0e-8}}
"""


def losses_of_torch(model, tokens):
    """Trains the model and returns the loss of each step."""
    x, y = tokens[:-1].reshape(-1, CONTEXT), tokens[1:].reshape(-1, CONTEXT)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01, eps=1e-8)
    losses = []
    for step in range(STEPS):
        first = step % (WINDOWS // BATCH) * BATCH
        optimizer.zero_grad(set_to_none=True)
        logits = model.train()(x[first:first + BATCH]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y[first:first + BATCH].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class Families(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="trainyard-families-")
        cls.folder = Path(cls.scratch.name)
        draw = random.Random(9)
        text = bytes(draw.randrange(97, 117) for _ in range(CONTEXT * WINDOWS + 1))
        (cls.folder / "text.txt").write_bytes(text)
        cls.tokens = torch.tensor(list(text))
        families.SIZES["vocab_size"] = 256

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def loss_here(self, name, steps):
        spec = self.folder / f"{name}-{steps}.yaml"
        spec.write_text(SPEC.format(folder=name, steps=steps, batch=BATCH, context=CONTEXT, rate=RATE))
        done = subprocess.run([BIN / "trainyard", "local", "run", spec, "-o", "json"], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["metrics"]["train/loss"]

    def check(self, case):
        family, settings = families.CASES[case]
        name = case.replace(" ", "-").replace(",", "")
        model = families.make_model(family, settings)
        model.save_pretrained(self.folder / name)
        model.save_pretrained(self.folder / f"{name}-split", max_shard_size="20KB")
        self.assertTrue((self.folder / f"{name}-split" / "model.safetensors.index.json").exists())
        theirs = losses_of_torch(model, self.tokens)
        first, last = self.loss_here(name, 1), self.loss_here(name, STEPS)
        worst = max(abs(first / theirs[0] - 1), abs(last / theirs[-1] - 1))
        print(f"  {case:30} losses {theirs[0]:.5f} to {theirs[-1]:.5f}, here {first:.5f} to {last:.5f}, within {worst:.1e}")
        self.assertLess(worst, BOUND)
        self.assertEqual(self.loss_here(f"{name}-split", 1), first)


def add_case(case):
    setattr(Families, "test_" + case.replace(" ", "_").replace(",", ""), lambda self: self.check(case))


for each in families.CASES:
    add_case(each)

if __name__ == "__main__":
    unittest.main()
