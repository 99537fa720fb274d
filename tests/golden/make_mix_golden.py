#!/usr/bin/env python3
"""Writes mix.json: batches mixed by torchvision's MixUp and CutMix, and PyTorch's losses on mixed
batches.

    python3 tests/golden/make_mix_golden.py     # needs torch and torchvision

`draws`: a batch mixed with a given share and rectangle, which replace torchvision's own draws.
`runs`: the losses of 30 steps of a small CNN on batches that are mixed in each step with the
engine's draws for those steps (Philox numbers, philox.py); also with smoothed labels, and for the
divergence.
"""

import json
import math
import pathlib
from unittest import mock

import torch
from philox import philox_u32, stream_of, uniform01
from reference_models import initialize
from torch import nn
from torch.nn import functional as F
from torchvision.transforms import v2

HERE = pathlib.Path(__file__).resolve().parent
SEED, STEPS, BATCH, CLASSES, IMAGE = 20240711, 30, 12, 5, (2, 6, 8)
DRAWN = 3  # rows in each batch of `draws`


class Draws:
    """Draws the numbers of a stream one after another, as in src/data/load/mix.cc."""

    def __init__(self, step):
        self.numbers = iter(philox_u32(SEED, stream_of("mix"), step, 4096))

    def uniform(self):
        return (float(next(self.numbers)) + 0.5) * 2.0**-32

    def normal(self):
        radius = math.sqrt(-2 * math.log(self.uniform()))
        return radius * math.cos(2 * math.pi * self.uniform())

    def below(self, count):
        return min(int(self.uniform() * count), count - 1)

    def log_gamma(self, alpha):
        if alpha < 1:
            factor = math.log(self.uniform()) / alpha
            return factor + self.log_gamma(alpha + 1)
        d = alpha - 1 / 3
        while True:
            x, u = self.normal(), self.uniform()
            root = 1 + x / math.sqrt(9 * d)
            if root > 0 and math.log(u) < x * x / 2 + d * (1 - root**3 + math.log(root**3)):
                return math.log(d * root**3)

    def beta(self, alpha):
        first, second = self.log_gamma(alpha), self.log_gamma(alpha)
        return 1 / (1 + math.exp(second - first))


def mix(cuts, share, centre, images, labels):
    """Applies torchvision's transform with these draws. `centre` is CutMix's (x, y)."""
    transform = (v2.CutMix if cuts else v2.MixUp)(num_classes=CLASSES)
    transform._dist = mock.Mock(sample=lambda size: torch.tensor([share], dtype=torch.float64))
    with mock.patch("torch.randint", side_effect=[torch.tensor([c]) for c in centre]):
        return transform(images, labels)


def batch(step):
    """Returns images whose brightest channel and column identify the class."""
    count = BATCH * math.prod(IMAGE)
    x = torch.from_numpy(uniform01(SEED, stream_of("mix/x"), step, count)).float().reshape(BATCH, *IMAGE)
    y = torch.from_numpy((philox_u32(SEED, stream_of("mix/label"), step, BATCH) % CLASSES).astype("int64"))
    for n, label in enumerate(y):
        x[n, :, :, label] += 1.5
    return x, y


def small_cnn():
    model = nn.Sequential()
    for name, layer in [("conv1", nn.Conv2d(IMAGE[0], 4, 3, padding=1)), ("relu1", nn.ReLU()),
                        ("flatten", nn.Flatten()), ("fc", nn.Linear(4 * IMAGE[1] * IMAGE[2], CLASSES))]:
        model.add_module(name, layer)
    initialize(model, SEED)
    return model


def divergence(z, t, smoothing):
    q = t * (1 - smoothing) + smoothing / CLASSES
    return F.kl_div(F.log_softmax(z, 1), q, reduction="batchmean")


LOSSES = {
    "softmax_cross_entropy": lambda z, t, s: F.cross_entropy(z, t, label_smoothing=s),
    "kl_divergence": divergence,
}


def run(loss, smoothing, kinds):
    model = small_cnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(STEPS):
        draws = Draws(step)
        cuts, alpha = kinds[draws.below(len(kinds))]
        share = draws.beta(alpha)
        x, y = batch(step)
        centre = (draws.below(IMAGE[2]), draws.below(IMAGE[1])) if cuts else ()
        x, t = mix(cuts, share, centre, x, y)
        optimizer.zero_grad()
        value = LOSSES[loss](model(x), t, smoothing)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


def main():
    torch.set_num_threads(1)
    draws = []
    for cuts, share, centre in [(False, 0.7, ()), (False, 0.0, ()), (False, 0.25, ()), (True, 0.3, (4, 3)),
                                (True, 0.9, (0, 0)), (True, 0.05, (7, 5)), (True, 1.0, (2, 2)), (True, 0.5, (6, 0))]:
        x, y = (t[:DRAWN] for t in batch(100))
        images, shares = mix(cuts, share, centre, x, y)
        draws.append({"cuts": cuts, "share": share, "centre": list(centre),
                      "images": [round(v, 7) for v in images.flatten().tolist()],
                      "shares": [round(v, 7) for v in shares.flatten().tolist()]})
    runs = []
    for loss, smoothing, kinds in [("softmax_cross_entropy", 0.0, [(False, 0.2)]),
                                   ("softmax_cross_entropy", 0.1, [(True, 1.0)]),
                                   ("kl_divergence", 0.2, [(False, 2.5), (True, 0.5)])]:
        names = [{"kind": "cutmix" if cuts else "mixup", "alpha": alpha} for cuts, alpha in kinds]
        runs.append({"loss": loss, "label_smoothing": smoothing, "mixings": names,
                     "losses": run(loss, smoothing, kinds)})
    out = {"seed": SEED, "batch": BATCH, "classes": CLASSES, "image": IMAGE, "draws": draws, "runs": runs}
    (HERE / "mix.json").write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main()
