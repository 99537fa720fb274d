#!/usr/bin/env python3
"""Writes pytorch_text.json: PyTorch's losses for the runs in tests/engine/text_golden_test.cc.

    venv/bin/python tests/golden/make_text_golden.py

Initial weights and batches are Philox numbers (philox.py), so the file has only the losses.
"""

import json
import pathlib
import sys

import numpy as np
import torch
from philox import philox_u32, stream_of, uniform01
from reference_text import SEED, Bag, Classifier, TextCnn, uniform
from torch import nn

STEPS = 50
BATCH = 16
CLASSES = 4
STEPS_IN_ROW, FEATURES = 11, 7  # the shape of a sequence of numbers
VOCABULARY, LENGTH = 50, 13  # the tokens of a row; token 0 is the padding


def numbers(step):
    """Labels are random; about three quarters of a row is the pattern of its class, the rest noise.
    """
    size = STEPS_IN_ROW * FEATURES
    labels = philox_u32(SEED, stream_of("golden/label"), step, BATCH) % CLASSES
    noise = uniform01(SEED, stream_of("golden/noise"), step, BATCH * size).reshape(BATCH, size)
    pattern = uniform01(SEED, stream_of("golden/pattern"), 0, CLASSES * size)
    x = 0.5 * (noise - 0.5) + 1.5 * (pattern.reshape(CLASSES, size)[labels] - 0.5)
    return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(labels.astype(np.int64))


def tokens(step):
    """Returns rows of 1 to LENGTH tokens, drawn from a part of the vocabulary that depends on the label."""
    labels = philox_u32(SEED, stream_of("golden/label"), step, BATCH) % CLASSES
    lengths = 1 + philox_u32(SEED, stream_of("golden/length"), step, BATCH) % LENGTH
    draw = philox_u32(SEED, stream_of("golden/token"), step, BATCH * LENGTH).reshape(BATCH, LENGTH)
    rows = 1 + (draw % 20 + labels[:, None] * 9) % (VOCABULARY - 1)
    rows[np.arange(LENGTH)[None, :] >= lengths[:, None]] = 0
    return torch.from_numpy(rows.astype(np.int64)), torch.from_numpy(labels.astype(np.int64))


class Recurrent(nn.Module):
    """A recurrent layer over the numbers, in one of the two directions, and a linear layer on its
    last step."""

    def __init__(self, kind, hidden, reverse):
        super().__init__()
        self.reverse = reverse
        self.rnn = kind(FEATURES, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, CLASSES)
        with torch.no_grad():
            for name, p in self.rnn.named_parameters():
                p.copy_(uniform("rnn." + name.removesuffix("_l0"), tuple(p.shape), hidden))
            self.fc.weight.copy_(uniform("fc.weight", (CLASSES, hidden), hidden))
            self.fc.bias.copy_(uniform("fc.bias", (CLASSES,), hidden))

    def forward(self, x):
        x = x.reshape(-1, STEPS_IN_ROW, FEATURES)
        y, _ = self.rnn(torch.flip(x, [1]) if self.reverse else x)
        return self.fc(y[:, -1])


CASES = [
    # name, model, batch, optimizer
    ("lstm", lambda: Recurrent(nn.LSTM, 24, False), numbers, ("adam", 0.003)),
    ("lstm_reverse", lambda: Recurrent(nn.LSTM, 17, True), numbers, ("sgd", 0.1)),
    ("gru", lambda: Recurrent(nn.GRU, 24, False), numbers, ("adam", 0.003)),
    ("gru_reverse", lambda: Recurrent(nn.GRU, 17, True), numbers, ("sgd", 0.1)),
    ("lstm_classifier", lambda: Classifier(nn.LSTM, VOCABULARY, 12, 16, 2, True, False, CLASSES), tokens,
     ("adam", 0.003)),
    ("gru_classifier", lambda: Classifier(nn.GRU, VOCABULARY, 12, 16, 1, True, True, CLASSES), tokens, ("adam", 0.003)),
    ("text_cnn", lambda: TextCnn(VOCABULARY, 12, 10, [3, 4, 5], CLASSES), tokens, ("adam", 0.003)),
    ("bag_mean", lambda: Bag(VOCABULARY, "mean", 16, CLASSES), tokens, ("adam", 0.01)),
    ("bag_sum", lambda: Bag(VOCABULARY, "sum", 16, CLASSES), tokens, ("sgd", 0.02)),
]


def run(make_model, batch_of, optimizer, dtype):
    model = make_model().to(dtype)
    make = torch.optim.Adam if optimizer[0] == "adam" else torch.optim.SGD
    update = make(model.parameters(), lr=optimizer[1])
    losses = []
    for step in range(STEPS):
        x, y = batch_of(step)
        update.zero_grad()
        loss = nn.functional.cross_entropy(model(x.to(dtype) if x.is_floating_point() else x), y)
        loss.backward()
        update.step()
        losses.append(loss.item())
    return losses


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    out = {"torch": torch.__version__, "seed": SEED, "batch_size": BATCH, "cases": []}
    for name, make_model, batch_of, optimizer in CASES:
        losses = run(make_model, batch_of, optimizer, torch.float32)
        exact = run(make_model, batch_of, optimizer, torch.float64)
        noise = max(abs(a - b) / b for a, b in zip(losses, exact))
        print(f"{name}: loss {losses[0]:.4f} -> {losses[-1]:.4f}; fp32 against fp64: {noise:.1e}")
        out["cases"].append({
            "name": name,
            "optimizer": {"type": optimizer[0], "learning_rate": optimizer[1]},
            "losses": [float(f"{v:.9g}") for v in losses],
        })
    path = pathlib.Path(__file__).with_name("pytorch_text.json")
    path.write_text(json.dumps(out, separators=(",", ":")).replace('{"name"', '\n{"name"') + "\n")
    print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    sys.exit(main())
