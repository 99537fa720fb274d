#!/usr/bin/env python3
"""Writes sparse_embedding.json: PyTorch's results for the runs of
tests/engine/sparse_lookup_test.cc.

    python3 -m venv venv && venv/bin/pip install torch numpy
    venv/bin/python tests/golden/make_sparse_golden.py

The runs train nn.Embedding(sparse=True) with SGD, and with SparseAdam, which updates only the rows
of a sparse gradient; the next layer has a dense gradient and Adam. SparseAdam adds epsilon before
it corrects the second moment, Adam adds it afterwards; epsilon is too small here for a visible
effect.
"""

import json
import pathlib

import numpy as np
import torch
from philox import initial_normal, initial_uniform, stream_of, uniform01
from torch import nn
from torch.nn import functional as F

SEED, STEPS, BATCH, LENGTH, VOCABULARY, WIDTH, CLASSES = 20261128, 50, 12, 5, 300, 8, 4
RATE = {"sgd": 0.3, "adam": 0.02}
EPSILON = 1e-14


def batch(step):
    u = uniform01(SEED, stream_of("sparse/token"), step, BATCH * LENGTH)
    tokens = np.floor(VOCABULARY * u * u * u).astype(np.int64).reshape(BATCH, LENGTH)
    return torch.from_numpy(tokens), torch.from_numpy(tokens[:, 0] % CLASSES)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, sparse=True)
        self.head = nn.Linear(LENGTH * WIDTH, CLASSES)
        with torch.no_grad():
            self.embedding.weight.copy_(torch.from_numpy(
                initial_normal(SEED, "embedding.weight", (VOCABULARY, WIDTH), 1)))
            for p, name in [(self.head.weight, "head.weight"), (self.head.bias, "head.bias")]:
                p.copy_(torch.from_numpy(initial_uniform(SEED, name, tuple(p.shape), LENGTH * WIDTH)))

    def forward(self, tokens):
        return self.head(self.embedding(tokens).flatten(1))


def train(optimizer):
    model = Model()
    rate = RATE[optimizer]
    if optimizer == "sgd":
        optimizers = [torch.optim.SGD(model.parameters(), lr=rate)]
    else:
        optimizers = [torch.optim.Adam(model.head.parameters(), lr=rate, eps=EPSILON),
                      torch.optim.SparseAdam(model.embedding.parameters(), lr=rate, eps=EPSILON)]
    losses = []
    for step in range(STEPS):
        tokens, label = batch(step)
        for o in optimizers:
            o.zero_grad()
        loss = F.cross_entropy(model(tokens), label)
        loss.backward()
        assert model.embedding.weight.grad.is_sparse
        for o in optimizers:
            o.step()
        losses.append(loss.item())
    return {"optimizer": optimizer, "learning_rate": rate, "losses": losses,
            "rows": model.embedding.weight.detach().numpy()[::37].tolist()}


def main():
    out = {"seed": SEED, "batch": BATCH, "length": LENGTH, "vocabulary": VOCABULARY, "width": WIDTH,
           "classes": CLASSES, "row_step": 37, "epsilon": EPSILON, "torch": torch.__version__,
           "cases": [train("sgd"), train("adam")]}
    path = pathlib.Path(__file__).parent / "sparse_embedding.json"
    path.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
