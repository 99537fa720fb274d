"""The text presets in PyTorch, with the engine's names and initial weights."""

import numpy as np
import torch
from philox import stream_of, uniform01
from torch import nn

SEED = 20241107


def uniform(name, shape, fan_in):
    bound = 1.0 / np.sqrt(float(fan_in))
    u = uniform01(SEED, stream_of(name), 0, int(np.prod(shape)))
    return torch.from_numpy((-bound + (bound - -bound) * u).astype(np.float32).reshape(shape))


def normal(name, shape):
    """Returns normal numbers as in src/train/initialize.cc: element i uses draws 2i and 2i + 1
    (Box-Muller)."""
    u = uniform01(SEED, stream_of(name), 0, 2 * int(np.prod(shape))).reshape(-1, 2)
    z = np.sqrt(-2 * np.log(1 - u[:, 0])) * np.cos(2 * np.pi * u[:, 1])
    return torch.from_numpy(z.astype(np.float32).reshape(shape))


class Bag(nn.Module):
    def __init__(self, vocabulary, mode, size, classes):
        super().__init__()
        self.embedding = nn.EmbeddingBag(vocabulary, size, mode=mode, padding_idx=0)
        self.fc = nn.Linear(size, classes)
        with torch.no_grad():
            self.embedding.weight.copy_(normal("embedding.weight", (vocabulary, size)))
            self.fc.weight.copy_(uniform("fc.weight", (classes, size), size))
            self.fc.bias.copy_(uniform("fc.bias", (classes,), size))

    def forward(self, x):
        return self.fc(self.embedding(x))


class Classifier(nn.Module):
    """lstm_classifier: averages over the positions without padding, or uses the last of them."""

    def __init__(self, kind, vocabulary, size, hidden, layers, both_ways, last, classes):
        super().__init__()
        self.last = last
        self.embedding = nn.Embedding(vocabulary, size)
        self.rnn = nn.ModuleList()
        for i in range(layers):
            width = size if i == 0 else hidden * (2 if both_ways else 1)
            self.rnn.append(kind(width, hidden, batch_first=True, bidirectional=both_ways))
        features = hidden * (2 if both_ways else 1)
        self.fc = nn.Linear(features, classes)
        with torch.no_grad():
            self.embedding.weight.copy_(normal("embedding.weight", (vocabulary, size)))
            for i, rnn in enumerate(self.rnn):
                for name, p in rnn.named_parameters():
                    way = ("_reverse" if "reverse" in name else "_forward") if both_ways else ""
                    suffix = name.removesuffix("_reverse").removesuffix("_l0")
                    p.copy_(uniform(f"rnn{i + 1}{way}.{suffix}", tuple(p.shape), hidden))
            self.fc.weight.copy_(uniform("fc.weight", (classes, features), features))
            self.fc.bias.copy_(uniform("fc.bias", (classes,), features))

    def forward(self, x):
        y = self.embedding(x)
        lengths = (x != 0).sum(1)  # the reverse direction begins at the last token
        for rnn in self.rnn:
            packed = nn.utils.rnn.pack_padded_sequence(y, lengths, True, enforce_sorted=False)
            y, _ = nn.utils.rnn.pad_packed_sequence(rnn(packed)[0], True, total_length=x.shape[1])
        if self.last:  # forward: after the last token; backward: after the first
            at = (x != 0).sum(1) - 1
            rows = torch.arange(len(x))
            hidden = y.shape[2] // 2
            return self.fc(torch.cat([y[rows, at, :hidden], y[:, 0, hidden:]], dim=1))
        mask = (x != 0).to(y.dtype)[:, :, None]
        return self.fc((y * mask).sum(1) / mask.sum(1))


class TextCnn(nn.Module):
    """The maximum is over the windows without padding, and the first."""

    def __init__(self, vocabulary, size, filters, widths, classes):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size)
        self.conv = nn.ModuleList(nn.Conv2d(1, filters, (w, size)) for w in widths)
        features = filters * len(widths)
        self.fc = nn.Linear(features, classes)
        with torch.no_grad():
            self.embedding.weight.copy_(normal("embedding.weight", (vocabulary, size)))
            for i, conv in enumerate(self.conv):
                fan_in = int(np.prod(conv.weight.shape[1:]))
                conv.weight.copy_(uniform(f"conv{i + 1}.weight", tuple(conv.weight.shape), fan_in))
                conv.bias.copy_(uniform(f"conv{i + 1}.bias", (filters,), fan_in))
            self.fc.weight.copy_(uniform("fc.weight", (classes, features), features))
            self.fc.bias.copy_(uniform("fc.bias", (classes,), features))

    def forward(self, x):
        y = self.embedding(x)[:, None]
        features = []
        for conv in self.conv:
            counts = x[:, conv.kernel_size[0] - 1:] != 0
            counts[:, 0] = True
            windows = conv(y).squeeze(3).masked_fill(~counts[:, None], -torch.inf)
            features.append(windows.amax(2).relu())
        return self.fc(torch.cat(features, dim=1))
