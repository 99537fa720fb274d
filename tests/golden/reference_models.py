"""MLP 784-512-512-10 and LeNet-5 in PyTorch, with the engine's initial weights and test batches."""

import numpy as np
import torch
from philox import initial_uniform, philox_u32, stream_of, uniform01
from torch import nn

CLASSES = 10
SIDE = 28


def make_mlp(hidden=(512, 512)):
    layers = []
    features = SIDE * SIDE
    sizes = list(hidden) + [CLASSES]
    for i, units in enumerate(sizes):
        layers.append((f"fc{i + 1}", nn.Linear(features, units)))
        if i + 1 < len(sizes):
            layers.append((f"relu{i + 1}", nn.ReLU()))
        features = units
    model = nn.Sequential()
    for name, layer in layers:
        model.add_module(name, layer)
    return model


def make_lenet5():
    model = nn.Sequential()
    for name, layer in [
        ("conv1", nn.Conv2d(1, 20, 5)),
        ("pool1", nn.MaxPool2d(2)),
        ("relu1", nn.ReLU()),
        ("conv2", nn.Conv2d(20, 50, 5)),
        ("pool2", nn.MaxPool2d(2)),
        ("relu2", nn.ReLU()),
        ("flatten", nn.Flatten()),
        ("fc1", nn.Linear(800, 500)),
        ("relu3", nn.ReLU()),
        ("fc2", nn.Linear(500, CLASSES)),
    ]:
        model.add_module(name, layer)
    return model


def initialize(model, seed):
    """Weights and biases as the engine draws them: by parameter name and element index."""
    fan_in = {}
    for name, p in model.named_parameters():
        if name.endswith(".weight"):
            fan_in[name.rsplit(".", 1)[0]] = int(np.prod(p.shape[1:]))
    with torch.no_grad():
        for name, p in model.named_parameters():
            values = initial_uniform(seed, name, tuple(p.shape), fan_in[name.rsplit(".", 1)[0]])
            p.copy_(torch.from_numpy(values))


def golden_batch(seed, step, batch):
    """Labels at random; an image, in [-1, 1), is three quarters its class's pattern, else noise."""
    pixels = SIDE * SIDE
    labels = philox_u32(seed, stream_of("golden/label"), step, batch) % CLASSES
    noise = uniform01(seed, stream_of("golden/noise"), step, batch * pixels).reshape(batch, pixels)
    pattern = uniform01(seed, stream_of("golden/pattern"), 0, CLASSES * pixels)
    x = 0.5 * (noise - 0.5) + 1.5 * (pattern.reshape(CLASSES, pixels)[labels] - 0.5)
    return x.astype(np.float32), labels.astype(np.int64)
