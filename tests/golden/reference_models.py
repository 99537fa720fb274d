"""MLP 784-512-512-10, LeNet-5 and autoencoders of images in PyTorch, with the engine's initial weights and test batches."""

import math

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


def make_conv_autoencoder(image, channels, latent):
    """Each encoder stage halves the image's sides, rounding up; the decoder restores the sides that
    the stage read."""
    model = nn.Sequential()
    sizes = [image]  # the input of each stage, and the output of the last one
    for i, count in enumerate(channels, 1):
        read, height, width = sizes[-1]
        model.add_module(f"conv{i}", nn.Conv2d(read, count, 3, stride=2, padding=1))
        model.add_module(f"relu{i}", nn.ReLU())
        sizes.append((count, (height + 1) // 2, (width + 1) // 2))
    elements = math.prod(sizes[-1])
    model.add_module("flatten", nn.Flatten())
    model.add_module("code", nn.Linear(elements, latent))
    model.add_module("fc1", nn.Linear(latent, elements))
    model.add_module("relu", nn.ReLU())
    model.add_module("image", nn.Unflatten(1, sizes[-1]))
    stages = len(channels)
    for i in range(stages, 0, -1):
        count, height, width = sizes[i - 1]
        if i < stages:
            model.add_module(f"relu_back{stages - i}", nn.ReLU())
        model.add_module(f"deconv{stages - i + 1}", nn.ConvTranspose2d(
            sizes[i][0], count, 3, stride=2, padding=1, output_padding=(1 - height % 2, 1 - width % 2)))
    return model


def initialize(model, seed):
    """Draws weights and biases as the engine does: by parameter name and element index."""
    fan_in = {}
    for name, p in model.named_parameters():
        if name.endswith(".weight"):
            fan_in[name.rsplit(".", 1)[0]] = int(np.prod(p.shape[1:]))
    with torch.no_grad():
        for name, p in model.named_parameters():
            values = initial_uniform(seed, name, tuple(p.shape), fan_in[name.rsplit(".", 1)[0]])
            p.copy_(torch.from_numpy(values))


def golden_batch(seed, step, batch):
    """Labels are random; about three quarters of an image, in [-1, 1), is the pattern of its class,
    the rest noise."""
    pixels = SIDE * SIDE
    labels = philox_u32(seed, stream_of("golden/label"), step, batch) % CLASSES
    noise = uniform01(seed, stream_of("golden/noise"), step, batch * pixels).reshape(batch, pixels)
    pattern = uniform01(seed, stream_of("golden/pattern"), 0, CLASSES * pixels)
    x = 0.5 * (noise - 0.5) + 1.5 * (pattern.reshape(CLASSES, pixels)[labels] - 0.5)
    return x.astype(np.float32), labels.astype(np.int64)
