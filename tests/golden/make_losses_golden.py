#!/usr/bin/env python3
"""Writes losses.json: PyTorch's results for the runs in tests/engine/losses_golden_test.cc.

    python3 -m venv venv && venv/bin/pip install torch numpy
    venv/bin/python tests/golden/make_losses_golden.py

Every loss with its options, the autoencoders, and tables with embedded categories train a small
model for 50 steps. Initial weights and batches are Philox numbers (philox.py), so the file has only
models and results.
"""

import json
import pathlib

import numpy as np
import torch
from philox import initial_normal, philox_u32, stream_of, uniform01
from reference_models import initialize, make_conv_autoencoder
from torch import nn
from torch.nn import functional as F

SEED = 20260314
STEPS = 50
BATCH = 20
FEATURES = 12
CLASSES = 4
TOKENS, VOCABULARY = 7, 5
IMAGE = (2, 9, 6)  # an odd and an even side, both of which the decoder must restore
NUMBERS = 4
CATEGORIES = {"Cut of stone": 5, "cut_of_stone": 12}  # both columns' layers would get one name
CLASS_COUNTS = [50, 10, 30, 110]
RATE = 0.05
RATES = {"autoencoder_binary": 1.0}  # the loss is a mean over all pixels, so gradients are small


def uniform(name, step, count):
    return uniform01(SEED, stream_of("losses/" + name), step, count)


def integers(name, step, count):
    return philox_u32(SEED, stream_of("losses/" + name), step, count).astype(np.int64)


def features(step):
    return (2 * uniform("x", step, BATCH * FEATURES) - 1).astype(np.float32).reshape(BATCH, FEATURES)


def class_batch(classes):
    def batch(step):
        x, label = features(step), integers("label", step, BATCH) % classes
        for n in range(BATCH):
            x[n, label[n] * 3:label[n] * 3 + 3] += np.float32(0.75)
        return x, label
    return batch


def number_batch(step):
    """The targets go up to 5, so that they reach the linear part of Huber's loss."""
    x = features(step)
    a, b, c = (x[:, i].astype(np.float64) for i in range(3))
    return x, (3 * a - 2 * b + 4 * (a * c)).astype(np.float32).reshape(BATCH, 1)


def token_batch(step):
    """In three of four cases the next token follows from the last one."""
    count = BATCH * TOKENS
    tokens = integers("token", step, count) % VOCABULARY
    draw = integers("next", step, count)
    following = np.where(draw % 4 == 0, draw // 4 % VOCABULARY, (tokens + 1) % VOCABULARY)
    return tokens.reshape(BATCH, TOKENS), following


def table_batch(step):
    """Returns four numbers and two codes. The first code determines the class, and the first number correlates with
    it."""
    x = (2 * uniform("numbers", step, BATCH * NUMBERS) - 1).reshape(BATCH, NUMBERS)
    codes = [integers(f"codes{i}", step, BATCH) % (count + 1)
             for i, count in enumerate(CATEGORIES.values())]
    label = codes[0] % CLASSES
    x[:, 0] += 0.5 * label
    return np.column_stack([x, *codes]).astype(np.float32), label


def table_number_batch(step):
    x, label = table_batch(step)
    return x, (label - x[:, 1]).astype(np.float32).reshape(BATCH, 1)


def row_batch(step):
    """Returns twelve columns that are derived from three numbers plus noise."""
    code = 2 * uniform("code", step, BATCH * 3).reshape(BATCH, 3) - 1
    noise = uniform("noise", step, BATCH * FEATURES).reshape(BATCH, FEATURES) - 0.5
    x = np.empty((BATCH, FEATURES))
    for f in range(FEATURES):
        x[:, f] = code[:, f % 3] * (1 + f // 3) * 0.5 + 0.25 * noise[:, f]
    return x.astype(np.float32), None


def pixel_batch(step):
    """Returns pixels in [0, 1): a bright half, left or right, and noise."""
    channels, rows, columns = IMAGE
    side = integers("side", step, BATCH) % 2
    noise = uniform("pixel", step, BATCH * channels * rows * columns)
    x = 0.25 * noise.reshape(BATCH, channels, rows, columns)
    for n in range(BATCH):
        half = columns // 2
        x[n, :, :, side[n] * half:(side[n] + 1) * half] += 0.75
    return x.astype(np.float32), None


BATCHES = {"class": class_batch(CLASSES), "two_classes": class_batch(2), "number": number_batch,
           "token": token_batch, "table": table_batch, "table_number": table_number_batch, "row": row_batch, "pixel": pixel_batch}


def stack(*layers):
    model = nn.Sequential()
    for name, layer in layers:
        model.add_module(name, layer)
    return model


def mlp(outputs):
    return stack(("fc1", nn.Linear(FEATURES, 16)), ("relu1", nn.ReLU()),
                 ("fc2", nn.Linear(16, outputs)))


def token_model():
    return stack(("embedding", nn.Embedding(VOCABULARY, 8)), ("head", nn.Linear(8, VOCABULARY)))


class TableModel(nn.Module):
    """An embedding for each categorical column, concatenated after the numbers, and an MLP."""

    def __init__(self, widths, outputs):
        super().__init__()
        self.embedding_cut_of_stone, self.embedding_cut_of_stone_2 = (
            nn.Embedding(count + 1, width) for count, width in zip(CATEGORIES.values(), widths))
        self.fc1 = nn.Linear(NUMBERS + sum(widths), 16)
        self.fc2 = nn.Linear(16, outputs)

    def forward(self, x):
        codes = x[:, NUMBERS:].long()
        columns = torch.cat([x[:, :NUMBERS], self.embedding_cut_of_stone(codes[:, 0]),
                             self.embedding_cut_of_stone_2(codes[:, 1])], 1)
        return self.fc2(F.relu(self.fc1(columns)))


def fastai_width(categories):
    return min(600, round(1.6 * (categories + 1) ** 0.56))


def dense_autoencoder():
    return stack(("fc1", nn.Linear(FEATURES, 10)), ("tanh1", nn.Tanh()), ("code", nn.Linear(10, 3)),
                 ("fc2", nn.Linear(3, 10)), ("tanh2", nn.Tanh()), ("fc3", nn.Linear(10, FEATURES)))


def conv_autoencoder():
    return make_conv_autoencoder(IMAGE, (4, 6), 5)


def initialize_all(model):
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.startswith("embedding"):
                # deviation for tokens, for categories
                std = 1.0 if name == "embedding.weight" else 0.01
                p.copy_(torch.from_numpy(initial_normal(SEED, name, tuple(p.shape), std)))
    initialize_others = {n: p for n, p in model.named_parameters() if not n.startswith("embedding")}
    holder = nn.Module()
    holder.named_parameters = lambda: initialize_others.items()
    initialize(holder, SEED)


def kl_divergence(z, y, smoothing, ignored=None):
    keep = torch.ones_like(y, dtype=torch.bool) if ignored is None else y != ignored
    z, y = z[keep], y[keep]
    q = F.one_hot(y, z.shape[1]) * (1 - smoothing) + smoothing / z.shape[1]
    return F.kl_div(F.log_softmax(z, 1), q.to(z.dtype), reduction="batchmean")


MLP = {"preset": "mlp", "parameters": {"hidden": [16]}}
TOKEN_LAYERS = {"layers": [{"op": "Embedding", "name": "embedding", "attributes": {"embedding_dim": 8}},
                           {"op": "Linear", "name": "head", "attributes": {}}]}
DENSE = {"preset": "autoencoder",
         "parameters": {"hidden": [10], "latent": 3, "activation": "tanh"}}
CONV = {"preset": "autoencoder", "parameters": {"channels": [4, 6], "latent": 5}}
WEIGHTS = [0.5, 2.0, 1.0, 0.25]
BALANCED = [sum(CLASS_COUNTS) / (CLASSES * count) for count in CLASS_COUNTS]
XENT, KL = "SoftmaxCrossEntropyLoss", "KullbackLeiblerDivergence"
MSE, MAE, HUBER, BCE = "MeanSquaredError", "MeanAbsoluteError", "HuberLoss", "BinaryCrossEntropyLoss"


def embedded(widths):
    return {"preset": "mlp", "parameters": {"hidden": [16], "embedding": widths}}


def xent(z, y, weights=None, **options):
    return F.cross_entropy(z, y, weight=None if weights is None else torch.tensor(weights), **options)


def bce(z, y, pos_weight=1.0):
    return F.binary_cross_entropy_with_logits(
        z, y.to(z.dtype).reshape(z.shape), pos_weight=torch.tensor(pos_weight))


# name, form of the batch, the engine's model, the loss's op and attributes, PyTorch's model and
# loss
CASES = [
    ("softmax", "class", MLP, XENT, {}, lambda: mlp(CLASSES), xent),
    ("smoothing", "class", MLP, XENT, {"label_smoothing": 0.2}, lambda: mlp(CLASSES),
     lambda z, y: xent(z, y, label_smoothing=0.2)),
    ("weights", "class", MLP, XENT, {"class_weights": WEIGHTS}, lambda: mlp(CLASSES),
     lambda z, y: xent(z, y, WEIGHTS)),
    ("balanced", "class", MLP, XENT, {"class_weights": "balanced", "label_smoothing": 0.1},
     lambda: mlp(CLASSES), lambda z, y: xent(z, y, BALANCED, label_smoothing=0.1)),
    ("ignored", "class", MLP, XENT, {"ignore_index": 2}, lambda: mlp(CLASSES),
     lambda z, y: xent(z, y, ignore_index=2)),
    ("all_options", "class", MLP, XENT,
     {"label_smoothing": 0.1, "class_weights": WEIGHTS, "ignore_index": 0}, lambda: mlp(CLASSES),
     lambda z, y: xent(z, y, WEIGHTS, label_smoothing=0.1, ignore_index=0)),
    ("divergence", "class", MLP, KL, {"label_smoothing": 0.3}, lambda: mlp(CLASSES),
     lambda z, y: kl_divergence(z, y, 0.3)),
    ("divergence_ignored", "class", MLP, KL, {"label_smoothing": 0.3, "ignore_index": 3},
     lambda: mlp(CLASSES), lambda z, y: kl_divergence(z, y, 0.3, 3)),
    ("tokens", "token", TOKEN_LAYERS, XENT,
     {"label_smoothing": 0.1, "ignore_index": 1, "class_weights": [1.0, 3.0, 0.5, 2.0, 1.5]},
     token_model, lambda z, y: xent(z.reshape(-1, VOCABULARY), y, [1.0, 3.0, 0.5, 2.0, 1.5],
                                    label_smoothing=0.1, ignore_index=1)),
    ("tokens_divergence", "token", TOKEN_LAYERS, KL, {"label_smoothing": 0.1}, token_model,
     lambda z, y: kl_divergence(z.reshape(-1, VOCABULARY), y, 0.1)),
    ("binary", "two_classes", MLP, BCE, {}, lambda: mlp(1), bce),
    ("binary_weighted", "two_classes", MLP, BCE, {"pos_weight": 2.5}, lambda: mlp(1),
     lambda z, y: bce(z, y, 2.5)),
    ("squared", "number", MLP, MSE, {}, lambda: mlp(1), F.mse_loss),
    ("absolute", "number", MLP, MAE, {}, lambda: mlp(1), F.l1_loss),
    ("huber", "number", MLP, HUBER, {}, lambda: mlp(1), F.huber_loss),
    ("huber_delta", "number", MLP, HUBER, {"delta": 0.3}, lambda: mlp(1),
     lambda y, t: F.huber_loss(y, t, delta=0.3)),
    ("embedding", "table", embedded("auto"), XENT, {},
     lambda: TableModel([fastai_width(c) for c in CATEGORIES.values()], CLASSES), xent),
    ("embedding_width", "table", embedded(3), XENT, {}, lambda: TableModel([3, 3], CLASSES), xent),
    ("embedding_widths", "table_number", embedded({"cut_of_stone": 2}), MSE, {},
     lambda: TableModel([fastai_width(CATEGORIES["Cut of stone"]), 2], 1), F.mse_loss),
    ("autoencoder", "row", DENSE, "", {}, dense_autoencoder, F.mse_loss),
    ("autoencoder_huber", "row", DENSE, HUBER, {"delta": 0.5}, dense_autoencoder,
     lambda y, t: F.huber_loss(y, t, delta=0.5)),
    ("autoencoder_conv", "pixel", CONV, MSE, {}, conv_autoencoder, F.mse_loss),
    ("autoencoder_binary", "pixel", CONV, BCE, {}, conv_autoencoder, bce),
    ("autoencoder_absolute", "pixel", CONV, MAE, {}, conv_autoencoder, F.l1_loss),
]


def train(form, make_model, loss_function, rate):
    model = make_model()
    initialize_all(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    losses = []
    for step in range(STEPS):
        x, y = BATCHES[form](step)
        x = torch.from_numpy(x)
        y = x if y is None else torch.from_numpy(y)
        optimizer.zero_grad()
        loss = loss_function(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    cases = []
    for name, form, model, op, attributes, make_model, loss_function in CASES:
        spec = dict(model)
        if op:
            spec["loss"] = {"op": op, "attributes": attributes} if attributes else op
        rate = RATES.get(name, RATE)
        losses = train(form, make_model, loss_function, rate)
        assert losses[-1] < losses[0], name
        cases.append({"name": name, "form": form, "model": spec, "learning_rate": rate,
                      "losses": losses})
    out = {"seed": SEED, "batch": BATCH, "features": FEATURES, "classes": CLASSES, "tokens": TOKENS,
           "vocabulary": VOCABULARY, "image": list(IMAGE),
           "numbers": NUMBERS, "categories": [{"name": n, "count": c} for n, c in CATEGORIES.items()],
           "class_counts": CLASS_COUNTS, "cases": cases}
    path = pathlib.Path(__file__).parent / "losses.json"
    path.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
