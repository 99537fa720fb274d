#!/usr/bin/env python3
"""Writes pytorch_text.json: what PyTorch computes for the runs in tests/engine/text_golden_test.cc.

    venv/bin/python tests/golden/make_text_golden.py

Initial weights and batches are Philox numbers (philox.py), so the file holds the losses alone.
"""

import json
import pathlib
import sys

import numpy as np
import torch
from philox import philox_u32, stream_of, uniform01
from torch import nn

SEED = 20241107
STEPS = 50
BATCH = 16
CLASSES = 4
STEPS_IN_ROW, FEATURES = 11, 7  # of a sequence of numbers
VOCABULARY, LENGTH = 50, 13  # of a row of tokens; 0 is the padding


def numbers(step):
    """Labels at random; a row is three quarters its class's pattern, else noise."""
    size = STEPS_IN_ROW * FEATURES
    labels = philox_u32(SEED, stream_of("golden/label"), step, BATCH) % CLASSES
    noise = uniform01(SEED, stream_of("golden/noise"), step, BATCH * size).reshape(BATCH, size)
    pattern = uniform01(SEED, stream_of("golden/pattern"), 0, CLASSES * size)
    x = 0.5 * (noise - 0.5) + 1.5 * (pattern.reshape(CLASSES, size)[labels] - 0.5)
    return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(labels.astype(np.int64))


def tokens(step):
    """Rows of 1 to LENGTH tokens, drawn from a part of the vocabulary that the label decides."""
    labels = philox_u32(SEED, stream_of("golden/label"), step, BATCH) % CLASSES
    lengths = 1 + philox_u32(SEED, stream_of("golden/length"), step, BATCH) % LENGTH
    draw = philox_u32(SEED, stream_of("golden/token"), step, BATCH * LENGTH).reshape(BATCH, LENGTH)
    rows = 1 + (draw % 20 + labels[:, None] * 9) % (VOCABULARY - 1)
    rows[np.arange(LENGTH)[None, :] >= lengths[:, None]] = 0
    return torch.from_numpy(rows.astype(np.int64)), torch.from_numpy(labels.astype(np.int64))


def uniform(name, shape, fan_in):
    bound = 1.0 / np.sqrt(float(fan_in))
    u = uniform01(SEED, stream_of(name), 0, int(np.prod(shape)))
    return torch.from_numpy((-bound + (bound - -bound) * u).astype(np.float32).reshape(shape))


def normal(name, shape):
    """As src/train/initialise.cc: element i takes draws 2i and 2i + 1 (Box and Muller)."""
    u = uniform01(SEED, stream_of(name), 0, 2 * int(np.prod(shape))).reshape(-1, 2)
    z = np.sqrt(-2 * np.log(1 - u[:, 0])) * np.cos(2 * np.pi * u[:, 1])
    return torch.from_numpy(z.astype(np.float32).reshape(shape))


class Recurrent(nn.Module):
    """A recurrent layer over the numbers, in either direction, and a linear layer on its last step."""

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


class Bag(nn.Module):
    def __init__(self, mode, size):
        super().__init__()
        self.embedding = nn.EmbeddingBag(VOCABULARY, size, mode=mode, padding_idx=0)
        self.fc = nn.Linear(size, CLASSES)
        with torch.no_grad():
            self.embedding.weight.copy_(normal("embedding.weight", (VOCABULARY, size)))
            self.fc.weight.copy_(uniform("fc.weight", (CLASSES, size), size))
            self.fc.bias.copy_(uniform("fc.bias", (CLASSES,), size))

    def forward(self, x):
        return self.fc(self.embedding(x))


class Classifier(nn.Module):
    """lstm_classifier: the mean over the positions that are no padding, or behind the last of them."""

    def __init__(self, kind, size, hidden, layers, both_ways, last):
        super().__init__()
        self.last = last
        self.embedding = nn.Embedding(VOCABULARY, size)
        self.rnn = nn.ModuleList()
        for i in range(layers):
            width = size if i == 0 else hidden * (2 if both_ways else 1)
            self.rnn.append(kind(width, hidden, batch_first=True, bidirectional=both_ways))
        features = hidden * (2 if both_ways else 1)
        self.fc = nn.Linear(features, CLASSES)
        with torch.no_grad():
            self.embedding.weight.copy_(normal("embedding.weight", (VOCABULARY, size)))
            for i, rnn in enumerate(self.rnn):
                for name, p in rnn.named_parameters():
                    way = ("_reverse" if "reverse" in name else "_forward") if both_ways else ""
                    suffix = name.removesuffix("_reverse").removesuffix("_l0")
                    p.copy_(uniform(f"rnn{i + 1}{way}.{suffix}", tuple(p.shape), hidden))
            self.fc.weight.copy_(uniform("fc.weight", (CLASSES, features), features))
            self.fc.bias.copy_(uniform("fc.bias", (CLASSES,), features))

    def forward(self, x):
        y = self.embedding(x)
        for rnn in self.rnn:
            y, _ = rnn(y)
        if self.last:  # forward behind the last token, backward behind the first
            at = (x != 0).sum(1) - 1
            rows = torch.arange(len(x))
            hidden = y.shape[2] // 2
            return self.fc(torch.cat([y[rows, at, :hidden], y[:, 0, hidden:]], dim=1))
        mask = (x != 0).to(y.dtype)[:, :, None]
        return self.fc((y * mask).sum(1) / mask.sum(1))


class TextCnn(nn.Module):
    def __init__(self, size, filters, widths):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, size)
        self.conv = nn.ModuleList(nn.Conv2d(1, filters, (w, size)) for w in widths)
        features = filters * len(widths)
        self.fc = nn.Linear(features, CLASSES)
        with torch.no_grad():
            self.embedding.weight.copy_(normal("embedding.weight", (VOCABULARY, size)))
            for i, conv in enumerate(self.conv):
                fan_in = int(np.prod(conv.weight.shape[1:]))
                conv.weight.copy_(uniform(f"conv{i + 1}.weight", tuple(conv.weight.shape), fan_in))
                conv.bias.copy_(uniform(f"conv{i + 1}.bias", (filters,), fan_in))
            self.fc.weight.copy_(uniform("fc.weight", (CLASSES, features), features))
            self.fc.bias.copy_(uniform("fc.bias", (CLASSES,), features))

    def forward(self, x):
        y = self.embedding(x)[:, None]
        return self.fc(torch.cat([c(y).relu().amax((2, 3)) for c in self.conv], dim=1))


CASES = [
    # name, model, batch, optimizer
    ("lstm", lambda: Recurrent(nn.LSTM, 24, False), numbers, ("adam", 0.003)),
    ("lstm_reverse", lambda: Recurrent(nn.LSTM, 17, True), numbers, ("sgd", 0.1)),
    ("gru", lambda: Recurrent(nn.GRU, 24, False), numbers, ("adam", 0.003)),
    ("gru_reverse", lambda: Recurrent(nn.GRU, 17, True), numbers, ("sgd", 0.1)),
    ("lstm_classifier", lambda: Classifier(nn.LSTM, 12, 16, 2, True, False), tokens,
     ("adam", 0.003)),
    ("gru_classifier", lambda: Classifier(nn.GRU, 12, 16, 1, True, True), tokens, ("adam", 0.003)),
    ("text_cnn", lambda: TextCnn(12, 10, [3, 4, 5]), tokens, ("adam", 0.003)),
    ("bag_mean", lambda: Bag("mean", 16), tokens, ("adam", 0.01)),
    ("bag_sum", lambda: Bag("sum", 16), tokens, ("sgd", 0.02)),
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
