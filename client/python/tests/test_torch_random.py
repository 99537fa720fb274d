"""Tests that random networks train as in PyTorch: each is converted by from_torch, then trained here and in PyTorch for
some steps of SGD on the same batches in the same order, and compared weight by weight, running statistics included.
Detects a constant of the exported graph that is trained, a parameter that is not trained, is trained twice or is
misplaced, and weight decay of frozen parameters. Dropout is 0, since PyTorch's random numbers cannot be reproduced
(test_torch_models.py covers dropout). Skipped without PyTorch and its exporter's packages; `scripts/test --torch`
installs them.

    TRAINYARD_TORCH_NETWORKS   the number of networks, default 40
    TRAINYARD_TORCH_SEED       the seed of the first network, default 0; seed N repeats network N
"""

import json
import os
import struct
import subprocess

import numpy as np
import pytest
from conftest import NO_TORCH, PROGRAM

import trainyard

torch = pytest.importorskip("torch", reason=NO_TORCH)
onnx = pytest.importorskip("onnx", reason=NO_TORCH)
pytest.importorskip("onnxscript", reason=NO_TORCH)

from torch import nn  # noqa: E402

from trainyard.torch_models import export_for_training, import_for_training  # noqa: E402

NETWORKS = int(os.environ.get("TRAINYARD_TORCH_NETWORKS", "40"))
SEED = int(os.environ.get("TRAINYARD_TORCH_SEED", "0"))
STEPS, BATCH, CLASSES = 8, 6, 3
# The bound is relative to a tensor's largest number. Measured: 7.2e-6 usually; 4.5e-5 if a normalization cancels the
# effect of a weight, whose gradient is then only rounding; and 6.4e-5 if a group normalization amplifies rounding. A
# parameter that is wrongly trained or wrongly frozen differs by about the learning rate of 0.05 or the decay of 0.01.
BOUND = 1e-4
SMALLEST = 0.01  # tensors whose largest number is smaller are compared relative to this number
LETTERS = "abcdefgh"
FIRST_LETTER = 2  # the token of "a"; 0 is padding, 1 an unknown letter
VOCABULARY = FIRST_LETTER + len(LETTERS)


# --- random networks --------------------------------------------------------------------------------------------------

class Fixed(nn.Module):
    """Adds a buffer, and a tensor that is neither parameter nor buffer."""

    def __init__(self, shape):
        super().__init__()
        self.register_buffer("offset", torch.randn(shape) * 0.3)
        self.plain = torch.randn(shape) * 0.1

    def forward(self, x):
        return x + self.offset * 0.5 + self.plain


class Scale(nn.Module):
    """A learned scale and shift. One parameter is a single number, another is transformed before its use."""

    def __init__(self, shape):
        super().__init__()
        self.log_scale = nn.Parameter(torch.randn(shape) * 0.1)
        self.gain = nn.Parameter(torch.ones(()))
        self.shift = nn.Parameter(torch.zeros(shape))

    def forward(self, x):
        return x * self.log_scale.exp() * self.gain + self.shift


class Residual(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.body = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.body(x)


class Twice(nn.Module):
    """A layer that is used twice, and a second layer with the same weight."""

    def __init__(self, width, bias):
        super().__init__()
        self.first = nn.Linear(width, width, bias=bias)
        self.second = nn.Linear(width, width)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.tanh(self.first(torch.tanh(self.first(x)))))


class Tokens(nn.Module):
    """Inserts a class token before the rows of [N, T, D] and adds positions."""

    def __init__(self, length, width, zeros):
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, width) if zeros else torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, length + 1, width) * 0.1)

    def forward(self, x):
        return torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions


class Attention(nn.Module):
    def __init__(self, width, heads, bias):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, bias=bias, batch_first=True)

    def forward(self, x):
        y = self.norm(x)
        return x + self.attention(y, y, y, need_weights=False)[0]


class Recurrent(nn.Module):
    def __init__(self, kind, features, hidden, layers, bidirectional, bias):
        super().__init__()
        self.rnn = kind(features, hidden, layers, bias=bias, batch_first=True, bidirectional=bidirectional)

    def forward(self, x):
        return self.rnn(x)[0]


class Positions(nn.Module):
    """A table of positions in an nn.Embedding, all rows of which are read."""

    def __init__(self, length, width):
        super().__init__()
        self.table = nn.Embedding(length, width)

    def forward(self, x):
        return x + self.table(torch.arange(x.shape[1]))


class Pick(nn.Module):
    """Reduces each sample of [N, T, D] to one row."""

    def __init__(self, how):
        super().__init__()
        self.how = how

    def forward(self, x):
        return x[:, 0] if self.how == "first" else x[:, -1] if self.how == "last" else x.mean(1)


class Shape(nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.sizes = sizes

    def forward(self, x):
        return x.reshape(x.shape[0], *self.sizes)


class Generator:
    """Creates random networks from a seed: for images, sequences, tokens and rows. They are small and shallow, so that
    rounding differences are not amplified."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)

    def chance(self, share=0.5):
        return bool(self.random.random() < share)

    def pick(self, *options):
        return options[self.random.integers(len(options))]

    def activation(self, channels):
        return self.pick(
            nn.ReLU, nn.Sigmoid, nn.Tanh, nn.ReLU6, nn.Hardswish, nn.Hardsigmoid, nn.SiLU, nn.Mish, nn.Softsign,
            nn.SELU, nn.PReLU, nn.Softplus, lambda: nn.PReLU(channels), lambda: nn.LeakyReLU(0.2), lambda: nn.ELU(0.7),
            lambda: nn.CELU(1.3), nn.GELU, lambda: nn.GELU("tanh"), lambda: nn.Softplus(2.0), lambda: nn.Dropout(0.0))()

    def image(self):
        channels, rows, columns = shape = self.pick(1, 2, 3), self.pick(6, 7, 8), self.pick(6, 7, 8)
        layers: list[nn.Module] = []
        for _ in range(self.random.integers(2, 5)):
            layers += self.image_layers(channels, min(rows, columns))
            with torch.no_grad():
                _, channels, rows, columns = nn.Sequential(*layers).eval()(torch.zeros(2, *shape)).shape
        if self.chance():
            layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES)]
        else:
            layers += [nn.Flatten(), nn.Linear(channels * rows * columns, CLASSES, bias=self.chance())]
        return nn.Sequential(*layers), shape

    def norm(self, channels, dimensions=2):
        batch = nn.BatchNorm1d if dimensions == 1 else nn.BatchNorm2d
        instance = nn.InstanceNorm1d if dimensions == 1 else nn.InstanceNorm2d
        groups = self.pick(*(g for g in range(1, channels + 1) if channels % g == 0))
        affine = self.chance(0.7)
        return self.pick(batch(channels, affine=affine, momentum=self.pick(0.1, 0.3)),
                         nn.GroupNorm(groups, channels, affine=affine),
                         nn.GroupNorm(groups, channels, affine=affine), instance(channels, affine=affine))

    def image_layers(self, channels, side):
        kind = self.pick("conv", "conv", "norm", "norm", "transposed", "pool", "residual", "scale", "fixed", "resize",
                         "pad", "shuffle")
        if kind == "conv":
            groups = self.pick(1, channels)
            wide = groups * self.pick(2, 4)
            pads = 1 if side > 3 else 2
            return [nn.Conv2d(channels, wide, self.pick(3, (3, 2)), self.pick(1, 1, 2) if side > 4 else 1, pads,
                              dilation=self.pick(1, 2) if side > 4 else 1, groups=groups, bias=self.chance(),
                              padding_mode="zeros"), self.activation(wide)]
        if kind == "transposed" and side <= 8:
            return [nn.ConvTranspose2d(channels, 4, 3, 2, 1, self.pick(0, 1), bias=self.chance()), self.activation(4)]
        if kind == "pool" and side > 3:
            ceil = self.chance()
            return [self.pick(nn.MaxPool2d(2, ceil_mode=ceil), nn.MaxPool2d(3, 2, 1, ceil_mode=ceil),
                              nn.AvgPool2d(3, 2, 1, ceil_mode=ceil, count_include_pad=self.chance()),
                              nn.AvgPool2d(2, 1, ceil_mode=ceil))]
        if kind == "residual":
            return [Residual(nn.Conv2d(channels, channels, 3, padding=1, bias=self.chance()), self.norm(channels),
                             self.activation(channels))]
        if kind == "scale":
            return [Scale((channels, 1, 1))]
        if kind == "fixed":
            return [Fixed((channels, 1, 1)), self.activation(channels)]
        if kind == "resize" and side <= 6:
            return [nn.Upsample(scale_factor=2, mode=self.pick("nearest", "bilinear"))]
        if kind == "pad" and side > 2:
            return [self.pick(nn.ReflectionPad2d(1), nn.ReplicationPad2d(1), nn.ZeroPad2d((1, 0, 2, 1)))]
        if kind == "shuffle" and channels % 4 == 0 and side <= 4:
            return [nn.PixelShuffle(2)]
        return [nn.Conv2d(channels, 4, 1, bias=self.chance()), self.norm(4)]

    def sequence(self):
        length, width = self.pick(4, 5), self.pick(4, 6, 8)
        return self.of_sequences([Shape(length, width)], length, width), (length * width,)

    def tokens(self):
        length, width = self.pick(4, 5), self.pick(4, 6, 8)
        layers = [nn.Embedding(VOCABULARY, width)]
        if self.chance():
            layers.append(Positions(length, width))
        return self.of_sequences(layers, length, width), (length,)

    def of_sequences(self, layers, length, width):
        """Extends `layers`, whose output is [N, length, width], by more layers."""
        features = width
        if self.chance(0.4):
            layers.append(Tokens(length, width, zeros=self.chance()))
        for _ in range(self.random.integers(1, 4)):
            kind = self.pick("attention", "block", "lstm", "gru", "norm", "linear", "scale")
            heads = self.pick(*(h for h in (1, 2, 3, 4) if features % h == 0))
            if kind == "attention":
                layers.append(Attention(features, heads, bias=self.chance(0.7)))
            elif kind == "block":
                layers.append(nn.TransformerEncoderLayer(features, heads, 8, dropout=0.0, batch_first=True,
                                                         activation=self.pick("relu", "gelu"),
                                                         norm_first=self.chance()))
            elif kind in ("lstm", "gru"):
                both, hidden = self.chance(0.3), self.pick(4, 6)
                layers.append(Recurrent(nn.LSTM if kind == "lstm" else nn.GRU, features, hidden, self.pick(1, 1, 2),
                                        both, bias=self.chance(0.7)))
                features = hidden * (2 if both else 1)
            elif kind == "norm":
                layers.append(nn.LayerNorm(features, elementwise_affine=self.chance(), bias=self.chance()))
            elif kind == "scale":
                layers.append(Scale((features,)))
            else:
                layers += [nn.Linear(features, 6, bias=self.chance()), self.activation_of_rows()]
                features = 6
        layers += [Pick(self.pick("first", "last", "mean")), nn.Linear(features, CLASSES)]
        return nn.Sequential(*layers)

    def activation_of_rows(self):
        return self.pick(nn.ReLU, nn.Tanh, nn.GELU, nn.SiLU, nn.Softplus, nn.PReLU)()

    def rows(self):
        width = self.pick(5, 8)
        shape, layers = (width,), []
        for _ in range(self.random.integers(2, 5)):
            kind = self.pick("linear", "linear", "norm", "layer_norm", "twice", "scale", "fixed", "residual")
            if kind == "linear":
                wide = self.pick(4, 6, 8)
                layers += [nn.Linear(width, wide, bias=self.chance()), self.activation(wide)]
                width = wide
            elif kind == "norm":
                groups = self.pick(*(g for g in range(1, width) if width % g == 0))
                layers += [self.pick(nn.BatchNorm1d(width, affine=self.chance(0.7)),
                                     nn.GroupNorm(groups, width, affine=self.chance(0.7)))]
            elif kind == "layer_norm":
                layers += [nn.LayerNorm(width, elementwise_affine=self.chance(), bias=self.chance())]
            elif kind == "twice":
                layers += [Twice(width, bias=self.chance())]
            elif kind == "residual":
                layers += [Residual(nn.Linear(width, 8, bias=self.chance()), self.activation(8), nn.Linear(8, width))]
            else:
                layers += [Scale((width,)) if kind == "scale" else Fixed((width,)), self.activation(width)]
        layers.append(nn.Linear(width, CLASSES, bias=self.chance()))
        return nn.Sequential(*layers), shape

    def network(self):
        module, shape = self.pick(self.image, self.image, self.sequence, self.tokens, self.rows)()
        if self.chance(0.4):  # freezes parameters at random, but not in the last layer
            for part in list(module)[:-1]:
                for parameter in part.parameters():
                    if self.chance(0.3):
                        parameter.requires_grad_(False)
        return module, shape


# --- training ---------------------------------------------------------------------------------------------------------

def samples(module, shape, random):
    """Returns targets, and inputs that are correlated with them. All classes and all tokens occur."""
    targets = random.integers(0, CLASSES, STEPS * BATCH)
    targets[:CLASSES] = range(CLASSES)
    if isinstance(module[0], nn.Embedding):
        letters = (random.integers(0, len(LETTERS), (len(targets), *shape)) + targets[:, None]) % len(LETTERS)
        letters.flat[:len(LETTERS)] = range(len(LETTERS))
        return letters + FIRST_LETTER, targets
    inputs = random.standard_normal((len(targets), *shape)) + 0.5 * targets.reshape(-1, *[1] * len(shape))
    return inputs.astype(np.float32), targets


def write_dataset(folder, inputs, targets):
    """Writes the samples to files, and returns the `dataset` of a job's spec."""
    if inputs.dtype == np.int64:
        rows = ("".join(LETTERS[token - FIRST_LETTER] for token in row) for row in inputs)
        (folder / "data.csv").write_text("text,class\n" + "".join(f"{x},{y}\n" for x, y in zip(rows, targets)))
        return {"path": str(folder / "data.csv"),
                "csv": {"target": "class", "target_kind": "class", "text": ["text"], "tokenizer": "char",
                        "max_length": inputs.shape[1]}}
    np.save(folder / "x.npy", inputs)
    np.save(folder / "y.npy", targets)
    return {"inputs": str(folder / "x.npy"), "targets": str(folder / "y.npy"), "arrays": {"target_kind": "class"}}


def standardized(inputs):
    """Returns the inputs as a job preprocesses them: tokens unchanged, columns and image channels standardized."""
    if inputs.dtype == np.int64:
        return inputs
    axes = (0,) if inputs.ndim == 2 else (0, 2, 3)
    x = inputs.astype(np.float64)
    return ((x - x.mean(axes, keepdims=True)) / x.std(axes, keepdims=True)).astype(np.float32)


def train_in_pytorch(module, inputs, targets, optimizer):
    """Trains the module for STEPS steps, in float32."""
    module.train()
    sgd = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=optimizer["learning_rate"],
                          momentum=optimizer["momentum"], weight_decay=optimizer["weight_decay"])
    for step in range(STEPS):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        sgd.zero_grad()
        loss = nn.functional.cross_entropy(module(torch.from_numpy(inputs[rows])), torch.from_numpy(targets[rows]))
        loss.backward()
        sgd.step()


def train_here(parts, folder, inputs, targets, optimizer):
    spec = {"dataset": write_dataset(folder, inputs, targets),
            "model": parts["model"],
            "recipe": {**parts["recipe"], "steps": STEPS, "batch_size": BATCH, "shuffle": False,
                       "optimizer": {"type": "sgd", **optimizer}}}
    (folder / "job.json").write_text(json.dumps(spec))
    done = subprocess.run([PROGRAM, "local", "run", str(folder / "job.json"), "--out", str(folder / "run"), "--threads",
                           "1"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return read_weights(folder / "run/model/model.safetensors")


def read_weights(path):
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    return {name: np.frombuffer(content[8 + length:], np.float32, int(np.prod(e["shape"])),
                                e["data_offsets"][0]).reshape(e["shape"]) for name, e in header.items()}


def as_imported(module, file, folder):
    """Returns the module's weights under the names of from_torch: imports the same file with the new numbers."""
    model = onnx.load(file)
    state = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers())
    for tensor in model.graph.initializer:
        if tensor.name in state:
            tensor.CopyFrom(onnx.numpy_helper.from_array(state[tensor.name].detach().numpy(), tensor.name))
    onnx.save(model, folder / "after.onnx")
    subprocess.run([PROGRAM, "model", "import", str(folder / "after.onnx"), "--out", str(folder / "after")], check=True,
                   capture_output=True)
    return read_weights(folder / "after/model.safetensors")


def difference(ours, theirs):
    """Returns the largest difference between two numbers, relative to the largest number of their tensor."""
    assert ours.keys() == theirs.keys()
    worst = {name: float(np.abs(ours[name] - theirs[name]).max() / max(np.abs(theirs[name]).max(), SMALLEST))
             for name in theirs}
    return max(worst.items(), key=lambda item: item[1])


def train_both(seed, folder):
    """Returns the name of the tensor that differs most, and the difference. Raises if the network is refused."""
    generator = Generator(seed)
    torch.manual_seed(seed)
    module, shape = generator.network()
    inputs, targets = samples(module, shape, generator.random)
    optimizer = {"learning_rate": 0.05, "momentum": generator.pick(0.0, 0.9), "weight_decay": generator.pick(0.0, 0.01)}
    folder.mkdir()
    file = folder / "model.onnx"
    export_for_training(module, torch.from_numpy(inputs[:2]), file)
    parts = import_for_training(file, folder / "net", program=PROGRAM)  # like from_torch, but keeps the ONNX file
    train_in_pytorch(module, standardized(inputs), targets, optimizer)
    return difference(train_here(parts, folder, inputs, targets, optimizer), as_imported(module, file, folder))


def test_random_networks_train_as_in_pytorch(tmp_path):
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False  # PyTorch's plain loops have smaller rounding errors
    refused, different, worst = {}, {}, 0.0
    for seed in range(SEED, SEED + NETWORKS):
        try:
            name, error = train_both(seed, tmp_path / str(seed))
        except trainyard.TrainyardError as refusal:
            refused[seed] = str(refusal)
            continue
        worst = max(worst, error)
        if not error <= BOUND:
            different[seed] = f"{name} by {error:.1e}"
    print(f"\n{NETWORKS} networks from seed {SEED}: {NETWORKS - len(refused) - len(different)} end with PyTorch's weights "
          f"(differences of at most {worst:.1e}), {len(different)} elsewhere, {len(refused)} were refused")
    for seed, reason in {**different, **refused}.items():
        print(f"  {seed}: {reason}")
    assert not different and not refused
