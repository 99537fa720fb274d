#!/usr/bin/env python3
"""Writes sampled_softmax.json: PyTorch's results for the runs in
tests/engine/sampled_golden_test.cc and, with the loss over very many classes, in
sampled_head_test.cc.

    python3 -m venv venv && venv/bin/pip install torch numpy
    venv/bin/python tests/golden/make_sampled_golden.py

The script draws the candidates again, from Philox numbers with NumPy's logarithms. The loss follows
the definition of TensorFlow's sampled_softmax_loss: a softmax over the true score and the sampled
ones, each minus the logarithm of its expected count, without accidental hits. The head's Adam is
torch.optim.SparseAdam, which updates only the rows of a sparse gradient. It adds epsilon before it
corrects the second moment, Adam adds it afterwards; epsilon is too small here for a visible effect.
"""

import json
import pathlib

import numpy as np
import torch
from philox import initial_uniform, philox_u32, stream_of, uniform01
from torch import nn
from torch.nn import functional as F

SEED, STEPS, BATCH, FEATURES, HIDDEN, CLASSES, SAMPLES = 20261127, 20, 16, 12, 16, 300, 24
IGNORED = 1
RATE = {"sgd": 0.5, "adam": 0.01}
EPSILON = 1e-14


def probability(k, distribution):
    if distribution == "uniform":
        return np.full(len(k), 1 / CLASSES)
    return np.log1p(1 / (k + 1.0)) / np.log(CLASSES + 1.0)


def candidates(step, distribution):
    """Returns the first SAMPLES distinct draws, and the number of draws that were needed."""
    words = philox_u32(SEED, stream_of("head/sample"), step, 40 * SAMPLES).astype(np.uint64).reshape(-1, 2)
    u = ((words[:, 0] << np.uint64(32) | words[:, 1]) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    if distribution == "uniform":
        drawn = np.floor(u * CLASSES).astype(int)
    else:
        drawn = np.floor(np.exp(u * np.log(CLASSES + 1.0))).astype(int) - 1
    classes = []
    for tries, k in enumerate(np.minimum(drawn, CLASSES - 1), 1):
        if k not in classes:
            classes.append(int(k))
        if len(classes) == SAMPLES:
            return np.array(classes), tries
    raise ValueError("too few draws")


def batch(step, classes=CLASSES):
    u = uniform01(SEED, stream_of("sampled/label"), step, BATCH)
    label = (classes * u * u * u).astype(np.int64)
    x = 2 * uniform01(SEED, stream_of("sampled/x"), step, BATCH * FEATURES).reshape(BATCH, FEATURES) - 1
    for n in range(BATCH):
        x[n, label[n] % FEATURES] += 0.75
    return x.astype(np.float32), label


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(FEATURES, HIDDEN)
        self.weight = nn.Embedding(CLASSES, HIDDEN, sparse=True)
        self.bias = nn.Embedding(CLASSES, 1, sparse=True)
        with torch.no_grad():
            for p, name, fan_in in [(self.fc1.weight, "fc1.weight", FEATURES), (self.fc1.bias, "fc1.bias", FEATURES),
                                    (self.weight.weight, "head.weight", HIDDEN), (self.bias.weight, "head.bias", HIDDEN)]:
                p.copy_(torch.from_numpy(initial_uniform(SEED, name, tuple(p.shape), fan_in)))

    def forward(self, x):
        return torch.tanh(self.fc1(x))


def sampled_softmax(model, h, label, classes, tries, distribution):
    def log_expected(k):
        return torch.from_numpy(np.log(-np.expm1(tries * np.log1p(-probability(k, distribution)))).astype(np.float32))

    rows = torch.from_numpy(classes)
    true = (h * model.weight(label)).sum(1) + model.bias(label)[:, 0] - log_expected(label.numpy())
    drawn = h @ model.weight(rows).T + model.bias(rows)[:, 0] - log_expected(classes)
    drawn = drawn.masked_fill(label[:, None] == rows[None, :], torch.finfo(torch.float32).min)
    return F.cross_entropy(torch.cat([true[:, None], drawn], 1), torch.zeros(len(label), dtype=torch.long))


def train(optimizer, distribution, ignored):
    model = Model()
    head = [model.weight.weight, model.bias.weight]
    rate = RATE[optimizer]
    if optimizer == "sgd":
        optimizers = [torch.optim.SGD(model.parameters(), lr=rate)]
    else:
        optimizers = [torch.optim.Adam(model.fc1.parameters(), lr=rate, eps=EPSILON),
                      torch.optim.SparseAdam(head, lr=rate, eps=EPSILON)]
    losses, drawn = [], []
    for step in range(STEPS):
        x, label = batch(step)
        classes, tries = candidates(step, distribution)
        drawn.append(classes.tolist())
        keep = label != ignored if ignored is not None else np.full(len(label), True)
        for o in optimizers:
            o.zero_grad()
        h = model(torch.from_numpy(x))[torch.from_numpy(keep)]
        loss = sampled_softmax(model, h, torch.from_numpy(label[keep]), classes, tries, distribution)
        loss.backward()
        for o in optimizers:
            o.step()
        losses.append(loss.item())
    return {"losses": losses, "drawn": drawn[:3], "weight": model.weight.weight.detach().numpy()[::37].tolist(),
            "bias": model.bias.weight.detach().numpy()[::37, 0].tolist()}


def train_exactly(classes, steps):
    """Trains with the loss over all classes, more classes than the engine reads scores back for."""
    model = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, classes))
    with torch.no_grad():
        for p, name, fan_in in zip(model.parameters(), ["fc1.weight", "fc1.bias", "head.weight", "head.bias"],
                                   [FEATURES, FEATURES, HIDDEN, HIDDEN]):
            p.copy_(torch.from_numpy(initial_uniform(SEED, name, tuple(p.shape), fan_in)))
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE["adam"])
    losses = []
    for step in range(steps):
        x, label = batch(step % 2, classes)  # two batches repeat, so that the loss falls
        optimizer.zero_grad()
        loss = F.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(label))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"classes": classes, "learning_rate": RATE["adam"], "losses": losses}


def main():
    cases = []
    for name, optimizer, distribution, ignored in [("sgd", "sgd", "log_uniform", None),
                                                   ("uniform", "sgd", "uniform", None),
                                                   ("ignored", "sgd", "log_uniform", IGNORED),
                                                   ("adam", "adam", "log_uniform", None)]:
        cases.append({"name": name, "optimizer": optimizer, "distribution": distribution,
                      "ignored": -1 if ignored is None else ignored, "learning_rate": RATE[optimizer],
                      **train(optimizer, distribution, ignored)})
    out = {"seed": SEED, "batch": BATCH, "features": FEATURES, "hidden": HIDDEN, "classes": CLASSES,
           "samples": SAMPLES, "row_step": 37, "epsilon": EPSILON, "torch": torch.__version__, "cases": cases,
           "exact": train_exactly(70001, 10)}
    path = pathlib.Path(__file__).parent / "sampled_softmax.json"
    path.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
