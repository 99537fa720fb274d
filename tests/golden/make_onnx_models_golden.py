#!/usr/bin/env python3
"""Writes onnx_models.safetensors: models exported by PyTorch itself, for
tests/onnx/import_model_test.cc.

    pip install torch==2.15.* 'onnx==1.22.*' onnxscript && tests/golden/make_onnx_models_golden.py

For each model, with a dynamic batch:

    <model>/model       the bytes of the ONNX file (U8)
    <model>/input       [N, ...] F32, or I32 tokens
    <model>/output      PyTorch's output
    <model>/target      [N] I32 classes, of classifiers
    <model>/losses      F32 cross-entropy before each of STEPS steps of SGD on that batch

For the losses, models are in training mode (batch statistics; they have no dropout), with PyTorch's
momentum of batch normalization.
"""

import io
import pathlib
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from make_onnx_node_golden import write  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
STEPS, RATE = 30, 0.05


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.conv1 = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 2)
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return self.fc(F.adaptive_avg_pool2d(F.relu(x + y), 1).flatten(1))


class Depthwise(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU6(),
            nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Hardswish(),
            nn.Conv2d(8, 12, 1), nn.SiLU())
        self.squeeze = nn.Linear(12, 12)
        self.head = nn.Linear(12 * 25, 4)

    def forward(self, x):
        x = self.features(x)
        x = x * torch.sigmoid(self.squeeze(x.mean((2, 3))))[:, :, None, None]
        return self.head(x.reshape(x.shape[0], -1))


class Encoder(nn.Module):
    """PyTorch's own encoder on tokens, with positions and a class token."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(20, 16)
        self.positions = nn.Parameter(torch.randn(1, 7, 16) * 0.02)
        self.class_token = nn.Parameter(torch.randn(1, 1, 16) * 0.02)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, activation="gelu",
                                           batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 3)

    def forward(self, tokens):
        x = self.tokens(tokens)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        return self.head(self.encoder(x)[:, 0])


class Decoder(nn.Module):
    """A decoder block with a causal mask, whose head shares the embedding's table."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 12)
        self.norm = nn.LayerNorm(12)
        self.qkv = nn.Linear(12, 36)
        self.out = nn.Linear(12, 12)

    def forward(self, tokens):
        x = self.embedding(tokens)
        n, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(n, t, 3, 3, d // 3).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, d))
        return x @ self.embedding.weight.t()


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 10, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(20, 8, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x, _ = self.lstm(x)
        _, last = self.gru(x)
        return self.head(last[0])


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(),
                         nn.Linear(16, 5))


def numbers(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(7))


def tokens(*shape, below):
    return torch.randint(below, shape, generator=torch.Generator().manual_seed(7))


# name: model, input, classes or None, arguments of the exporter
MODELS = {
    "mlp": (mlp, numbers(6, 4, 6), 5, {}),
    # the exporter merges batch normalization into conv
    "residual_cnn": (Residual, numbers(4, 3, 12, 12), None, {}),
    "residual_unoptimized": (Residual, numbers(4, 3, 12, 12), 5, {"optimize": False}),
    "depthwise_cnn": (Depthwise, numbers(5, 1, 10, 10), 4, {}),
    "encoder": (Encoder, tokens(5, 6, below=20), 3, {}),
    "decoder": (Decoder, tokens(3, 7, below=11), None, {}),
    "recurrent": (Recurrent, numbers(3, 5, 6), 4, {}),
    "encoder_opset18": (Encoder, tokens(5, 6, below=20), None, {"opset_version": 18}),
    "mlp_torchscript": (mlp, numbers(6, 4, 6), 5, {"dynamo": False, "opset_version": 11}),
    "residual_torchscript": (Residual, numbers(4, 3, 12, 12), None,
                             {"dynamo": False, "opset_version": 9}),
    "encoder_torchscript": (Encoder, tokens(5, 6, below=20), None,
                            {"dynamo": False, "opset_version": 14}),
    "recurrent_torchscript": (Recurrent, numbers(3, 5, 6), None,
                              {"dynamo": False, "opset_version": 13}),
}


def export(model, x, arguments):
    buffer = io.BytesIO()
    if arguments.get("dynamo", True):
        shapes = ({0: torch.export.Dim("batch", min=1, max=1024)},)
        program = torch.onnx.export(model, (x,), dynamo=True, verbose=False,
                                    dynamic_shapes=shapes, **arguments)
        return program.model_proto.SerializeToString()
    torch.onnx.export(model, (x,), buffer, input_names=["x"], output_names=["y"],
                      dynamic_axes={"x": {0: "N"}, "y": {0: "N"}}, **arguments)
    return buffer.getvalue()


def train(model, x, target):
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    losses = []
    for _ in range(STEPS):
        loss = F.cross_entropy(model(x), target)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


def main():
    torch.set_num_threads(1)
    tensors = {}
    for name, (build, x, classes, arguments) in MODELS.items():
        torch.manual_seed(1)
        model = build().eval()
        with torch.no_grad():
            # Makes the parameters look trained, since the exporter omits zeros.
            for p in model.parameters():
                p.add_(torch.randn_like(p) * 0.05)
        for m in model.modules():
            if isinstance(m, nn.BatchNorm2d):
                with torch.no_grad():
                    m.running_mean.copy_(torch.randn(m.num_features) * 0.1)
                    m.running_var.copy_(torch.rand(m.num_features) + 0.5)
        try:
            file = export(model, x, arguments)
        except Exception as error:  # the installed PyTorch no longer has this exporter
            print(f"{name}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
            continue
        with torch.no_grad():
            y = model(x)
        tensors[f"{name}/model"] = np.frombuffer(file, np.uint8)
        tensors[f"{name}/input"] = x.numpy().astype(np.int32 if x.dtype == torch.int64
                                                    else np.float32)
        tensors[f"{name}/output"] = y.numpy()
        if classes is not None:
            target = tokens(len(x), below=classes)
            tensors[f"{name}/target"] = target.numpy().astype(np.int32)
            tensors[f"{name}/losses"] = np.array(train(model, x, target), np.float32)
        print(f"{name}: {len(file)} bytes", file=sys.stderr)
    write(HERE / "onnx_models.safetensors", tensors)


if __name__ == "__main__":
    main()
