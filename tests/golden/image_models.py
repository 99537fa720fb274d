"""VGG and ResNet in PyTorch with torchvision's module names, with the sizes of the engine's
presets."""

import numpy as np
import torch
from philox import initial_normal, initial_uniform
from torch import nn

VGG = {"vgg11": (1, 1, 2, 2, 2), "vgg13": (2, 2, 2, 2, 2),
       "vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}
RESNET = {"resnet18": ((2, 2, 2, 2), 1), "resnet34": ((3, 4, 6, 3), 1),
          "resnet50": ((3, 4, 6, 3), 4)}


class Vgg(nn.Module):
    """VGG for images whose feature map is at most 7x7."""

    def __init__(self, name, side, classes, width=64, hidden=None, batch_norm=False,
                 dropout=0.5):
        super().__init__()
        layers, channels = [], 3
        for stage, count in enumerate(VGG[name]):
            out = width << min(stage, 3)
            for _ in range(count):
                layers.append(nn.Conv2d(channels, out, 3, padding=1))
                if batch_norm:
                    layers.append(nn.BatchNorm2d(out))
                layers.append(nn.ReLU(inplace=True))
                channels = out
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        cells = side // 32
        hidden = hidden or (64 * width if cells == 7 else 8 * width)
        self.classifier = nn.Sequential(
            nn.Linear(channels * cells * cells, hidden), nn.ReLU(inplace=True),
            nn.Dropout(dropout), nn.Linear(hidden, hidden), nn.ReLU(inplace=True),
            nn.Dropout(dropout), nn.Linear(hidden, classes))

    def forward(self, x):
        return self.classifier(torch.flatten(self.features(x), 1))


class Block(nn.Module):
    def __init__(self, channels, width, stride, expansion):
        super().__init__()
        out = width * expansion
        if expansion == 1:
            convs = [(width, 3, stride), (width, 3, 1)]
        else:
            convs = [(width, 1, 1), (width, 3, stride), (out, 1, 1)]
        self.count = len(convs)
        c = channels
        for i, (k, size, s) in enumerate(convs):
            setattr(self, f"conv{i + 1}", nn.Conv2d(c, k, size, s, size // 2, bias=False))
            setattr(self, f"bn{i + 1}", nn.BatchNorm2d(k))
            c = k
        self.downsample = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False),
                                            nn.BatchNorm2d(out))

    def forward(self, x):
        y = x
        for i in range(1, self.count + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            if i < self.count:
                y = torch.relu_(y)
        return torch.relu_(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, name, side, classes, width=64):
        super().__init__()
        blocks, expansion = RESNET[name]
        self.small = side <= 64
        self.conv1 = nn.Conv2d(3, width, 3 if self.small else 7, 1 if self.small else 2,
                               1 if self.small else 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        channels = width
        for stage, count in enumerate(blocks):
            layers = []
            for i in range(count):
                stride = 2 if stage > 0 and i == 0 else 1
                layers.append(Block(channels, width << stage, stride, expansion))
                channels = (width << stage) * expansion
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        x = torch.relu_(self.bn1(self.conv1(x)))
        if not self.small:
            x = nn.functional.max_pool2d(x, 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))


def make_image_model(name, side, classes, width=64, **options):
    if name in VGG:
        return Vgg(name, side, classes, width, **options)
    return ResNet(name, side, classes, width)


def engine_name(name):
    """Converts torchvision's "layer1.0.conv1.weight" to the engine's "layer1/0/conv1.weight"."""
    layer, tensor = name.rsplit(".", 1)
    return layer.replace(".", "/") + "." + tensor


def initialize_images(model, seed):
    """Sets torchvision's initial weights, drawn as the engine draws them."""
    vgg = isinstance(model, Vgg)
    with torch.no_grad():
        for name, m in model.named_modules():
            if not isinstance(m, (nn.Conv2d, nn.Linear)):
                continue
            weight = engine_name(name + ".weight")
            shape = tuple(m.weight.shape)
            fan_in = int(np.prod(shape[1:]))
            if isinstance(m, nn.Conv2d):
                std = np.sqrt(2.0 / (shape[0] * shape[2] * shape[3]))
                values = initial_normal(seed, weight, shape, std)
            elif vgg:
                values = initial_normal(seed, weight, shape, 0.01)
            else:
                values = initial_uniform(seed, weight, shape, fan_in)
            m.weight.copy_(torch.from_numpy(values))
            if m.bias is None:
                continue
            if vgg:
                m.bias.zero_()
            else:
                m.bias.copy_(torch.from_numpy(initial_uniform(
                    seed, engine_name(name + ".bias"), tuple(m.bias.shape), fan_in)))
