#!/usr/bin/env python3
"""Writes pytorch_ops.json: values and gradients of single ops, and the initial distributions of
PyTorch's layers, for tests/engine/op_golden_test.cc.

    venv/bin/python tests/golden/make_op_golden.py

Each case is the case of the same name in tests/support/image_cases.cc or sequence_cases.cc, in
double. Attention is scaled_dot_product_attention with an explicit mask. Operands are
Philox numbers drawn by name. The loss is the mean squared error against a target drawn the same
way, so that every element of the result has its own gradient. For each tensor the file has its norm
and its product with another such draw.
"""

import json
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from philox import stream_of, uniform01

SEED = 20240229


def draw(name, shape):
    """Returns what draw() in tests/support/graph_cases.cc returns."""
    count = int(np.prod(shape))
    u = uniform01(SEED, stream_of(name), 0, count) * 2 - 1
    return torch.from_numpy((np.where(u < 0, -0.1, 0.1) + 0.9 * u).reshape(shape))


def operand(name, shape):
    return draw(name, shape).requires_grad_()


def probes(tensor):
    flat = tensor.detach().reshape(-1)
    return [float(flat.norm()), float(flat @ draw("probe", flat.shape))]


def case(name, op, x, image=True, **parameters):
    """`x` and `parameters` are shapes, and op(x, **parameters) returns y. An image is drawn as a
    flat parameter."""
    tensors = {key: operand(key, shape) for key, shape in parameters.items()}
    flat = operand("x_flat" if image else "x", x)
    y = op(flat, **tensors)
    F.mse_loss(y, draw("target", y.shape)).backward()
    gradients = {("x_flat" if image else "x"): probes(flat.grad)}
    gradients.update({key: probes(t.grad) for key, t in tensors.items()})
    return {"case": name, "shape": list(y.shape), "y": probes(y), "gradients": gradients}


def padded(x, top, left, bottom, right, value=0.0):
    return F.pad(x, (left, right, top, bottom), value=value)


def convolutions():
    def conv(pads=(0, 0, 0, 0), **options):
        return lambda x, w, b=None: F.conv2d(padded(x, *pads), w, b, **options)

    return [
        case("Conv/odd", conv(), (2, 3, 5, 7), w=(5, 3, 3, 2), b=(5,)),
        case("Conv/strided_padded", conv((1, 2, 0, 1), stride=(2, 3)), (2, 2, 6, 5), w=(3, 2, 3, 3)),
        case("Conv/dilated", conv((2, 1, 1, 3), dilation=(2, 3)), (2, 3, 9, 8), w=(5, 3, 3, 2), b=(5,)),
        case("Conv/grouped", conv((1, 1, 1, 1), groups=3), (2, 6, 5, 7), w=(9, 2, 3, 3), b=(9,)),
        case("Conv/depthwise", conv((1, 1, 1, 1), groups=17, stride=(2, 1)), (2, 17, 6, 5),
             w=(17, 1, 3, 3), b=(17,)),
        case("Conv/depthwise_multiplied", conv(groups=4, dilation=2), (1, 4, 5, 5), w=(8, 1, 3, 3)),
    ]


def transposed_convolutions():
    def conv(crop=(0, 0, 0, 0), **options):
        """`crop`: the amounts that asymmetric pads remove, [top, left, bottom, right]."""
        def op(x, w, b=None):
            y = F.conv_transpose2d(x, w, b, **options)
            return y[:, :, crop[0]:y.shape[2] - crop[2], crop[1]:y.shape[3] - crop[3]]
        return op

    return [
        case("ConvTranspose/odd", conv(), (2, 3, 3, 5), w=(3, 7, 3, 2), b=(7,)),
        case("ConvTranspose/doubling", conv(stride=2, padding=1, output_padding=1), (2, 4, 3, 4),
             w=(4, 5, 3, 3), b=(5,)),
        case("ConvTranspose/grouped_dilated",
             conv((0, 1, 1, 0), groups=3, dilation=(2, 1), stride=(1, 3), output_padding=(0, 2)),
             (1, 6, 4, 3), w=(6, 2, 2, 3)),
    ]


def pools():
    """PyTorch's pools pad both sides equally, so images are padded first: with -inf for maxima. A
    mean that excludes the padding is the mean of the padded image divided by the mean of padded
    ones. Dilated means are sums of selected cells."""
    def maximum(kernel, stride, pads=(0, 0, 0, 0), **options):
        return lambda x: F.max_pool2d(padded(x, *pads, value=-np.inf), kernel, stride, **options)

    def mean(kernel, stride, pads=(0, 0, 0, 0), dilation=(1, 1), include_pad=False, ceil_mode=False):
        def op(x):
            ones = torch.ones_like(x)
            def total(t):
                t = padded(t, *pads)
                if ceil_mode:
                    return F.avg_pool2d(t, kernel, stride, ceil_mode=True, divisor_override=1)
                t = F.unfold(t, kernel, dilation, 0, stride).reshape(*x.shape[:2], np.prod(kernel), -1).sum(2)
                return t
            cells = float(np.prod(kernel)) if include_pad else total(ones)
            y = total(x) / cells
            if ceil_mode:
                return y
            rows = (x.shape[2] + pads[0] + pads[2] - dilation[0] * (kernel[0] - 1) - 1) // stride[0] + 1
            return y.reshape(*x.shape[:2], rows, -1)
        return op

    overlapping = {"pads": (1, 0, 1, 1)}
    dilated = {"pads": (1, 2, 2, 1), "dilation": (2, 3)}
    return [
        case("MaxPool/halving", maximum((2, 2), (2, 2)), (2, 3, 4, 6)),
        case("MaxPool/overlapping_padded", maximum((3, 2), (2, 1), **overlapping), (1, 2, 5, 7)),
        case("MaxPool/ceil_mode", maximum((2, 3), (4, 2), (1, 0, 0, 1), ceil_mode=True), (2, 3, 6, 5)),
        case("MaxPool/dilated", maximum((3, 2), (2, 1), **dilated), (2, 5, 9, 8)),
        case("MaxPool/dilated_ceil_mode", maximum((2, 2), (2, 2), dilation=(2, 1), ceil_mode=True), (1, 3, 8, 7)),
        case("MaxPool/halving_dilated", maximum((2, 2), (2, 2), dilation=2), (1, 4, 6, 6)),
        case("AveragePool/halving", mean((2, 2), (2, 2)), (2, 3, 4, 6)),
        case("AveragePool/overlapping_padded", mean((3, 2), (2, 1), **overlapping), (1, 2, 5, 7)),
        case("AveragePool/ceil_mode", mean((2, 3), (4, 2), (1, 0, 0, 1), ceil_mode=True), (2, 3, 6, 5)),
        case("AveragePool/dilated", mean((3, 2), (2, 1), **dilated), (2, 5, 9, 8)),
        case("AveragePool/halving_dilated", mean((2, 2), (2, 2), dilation=(2, 2)), (1, 4, 6, 6)),
        case("AveragePool/include_pad", mean((3, 3), (1, 1), (1, 1, 1, 1), include_pad=True), (1, 2, 5, 5)),
    ]


def normalizations():
    def group(groups):
        return lambda x, scale, b: F.group_norm(x, groups, scale, b)

    def instance(x, scale, b):
        return F.instance_norm(x, weight=scale, bias=b)

    def vectors(channels):
        return {"scale": (channels,), "b": (channels,)}

    return [
        case("GroupNormalization/image", group(3), (2, 6, 3, 5), **vectors(6)),
        case("GroupNormalization/one_group", group(1), (3, 5, 2, 3), **vectors(5)),
        case("InstanceNormalization/image", instance, (2, 7, 3, 4), **vectors(7)),
        case("InstanceNormalization/one_row", instance, (1, 1, 1, 5), **vectors(1)),
    ]


def resampled():
    cases = []
    for mode, theirs in {"constant": "constant", "reflect": "reflect", "edge": "replicate"}.items():
        # PyTorch, like ONNX, can reflect only pads that are smaller than the image.
        cases.append(case(f"Pad/{mode}", lambda x, m=theirs: F.pad(x, (3, 4, 1, 2), m), (2, 3, 4, 5)))
        cases.append(case(f"Pad/{mode}_one_side", lambda x, m=theirs: F.pad(x, (0, 5, 0, 0), m), (1, 1, 2, 7)))
    cases.append(case("Pad/value", lambda x: F.pad(x, (2, 1, 1, 0), value=-0.5), (2, 1), image=False))

    def linear(aligned, **size):
        return lambda x: F.interpolate(x, mode="bilinear", align_corners=aligned, **size)

    def nearest(exact, **size):
        return lambda x: F.interpolate(x, mode="nearest-exact" if exact else "nearest", **size)

    larger, one = {"size": (7, 11)}, {"size": (3, 1)}
    smaller = {"scale_factor": 0.6, "recompute_scale_factor": False}
    for kind, aligned in {"half_pixel": False, "align_corners": True}.items():
        cases.append(case(f"Resize/linear_{kind}_larger", linear(aligned, **larger), (2, 3, 3, 5)))
        cases.append(case(f"Resize/linear_{kind}_from_one", linear(aligned, **one), (1, 1, 1, 4)))
    cases.append(case("Resize/linear_half_pixel_smaller", linear(False, **smaller), (1, 2, 7, 9)))
    # PyTorch's "nearest" is ONNX's asymmetric with floor; its "nearest-exact" is half_pixel with
    # round_prefer_ceil.
    cases.append(case("Resize/asymmetric_floor", nearest(False, **larger), (2, 3, 3, 5)))
    cases.append(case("Resize/asymmetric_floor_smaller", nearest(False, **smaller), (1, 2, 7, 9)))
    cases.append(case("Resize/round_prefer_ceil", nearest(True, size=(6, 9)), (1, 2, 4, 3)))
    return cases


def positions_of(kind, n, queries, keys):
    """Returns the positions of the cases in tests/support/sequence_cases.cc, [n, queries]."""
    if kind == "cached":
        i = np.arange(n * queries)
        return ((i * i + i + 1) % (keys + 2)).reshape(n, queries)
    rows = np.zeros((n, queries), dtype=np.int64)
    for row in range(n):
        at, length = 0, row + 1
        for i in range(queries):
            rows[row, i] = 0 if i >= queries - queries // 4 else at
            at += 1
            if at == length:
                at, length = 0, 2 * length
    return rows


def seen_keys(kind, n, queries, keys, causal, window):
    """Returns the mask [n, 1, queries, keys] of the keys that each query sees."""
    own = np.broadcast_to(np.arange(queries), (n, queries))  # the newest key of a query
    first = np.zeros((n, queries), dtype=np.int64)
    if kind == "cached":
        own = positions_of(kind, n, queries, keys)
    elif kind == "documents":
        first = own - positions_of(kind, n, queries, keys)
    elif not causal:
        own = np.full((n, queries), keys)
    if kind == "counts":
        i = np.arange(n)
        count = (i * i + i + 1) % (keys + 2)
        count[0] = 0
        own = np.broadcast_to(count[:, None] - 1, (n, queries))
    if window:
        first = np.maximum(first, own - window + 1)
    j = np.arange(keys)
    return torch.from_numpy((j >= first[..., None]) & (j <= own[..., None]))[:, None]


def attention(name, n, queries, keys, heads, width, causal=False, key_heads=None, window=0, kind="", packed=False):
    key_heads = key_heads or heads
    if packed:
        x = operand("qkv", (n, queries, (heads + 2 * key_heads) * width))
        tensors = {"qkv": x}
        q, k, v = x.split([heads * width, key_heads * width, key_heads * width], dim=2)
    else:
        tensors = {"q": operand("q", (n, queries, heads * width))}
        tensors.update({t: operand(t, (n, keys, key_heads * width)) for t in ("k", "v")})
        q, k, v = tensors.values()
    by_head = lambda t: t.unflatten(2, (-1, width)).transpose(1, 2)
    y = F.scaled_dot_product_attention(
        by_head(q), by_head(k), by_head(v), attn_mask=seen_keys(kind, n, queries, keys, causal, window),
        scale=None if packed else 0.75, enable_gqa=True).transpose(1, 2).flatten(2)
    F.mse_loss(y, draw("target", y.shape)).backward()
    return {"case": f"Attention/{name}", "shape": list(y.shape), "y": probes(y),
            "gradients": {key: probes(t.grad) for key, t in tensors.items()}}


def attentions():
    return [
        attention("odd", 2, 3, 5, 3, 5),
        attention("packed_causal", 1, 5, 5, 2, 5, True, packed=True),
        attention("grouped", 2, 3, 5, 6, 5, key_heads=2),
        attention("grouped_causal", 1, 7, 7, 4, 4, True, key_heads=1),
        attention("grouped_packed", 2, 5, 5, 4, 3, True, key_heads=2, packed=True),
        attention("window", 1, 9, 9, 2, 3, True, window=3),
        attention("documents", 2, 12, 12, 2, 3, True, kind="documents"),
        attention("cached", 2, 3, 7, 4, 4, True, key_heads=2, kind="cached"),
        attention("cached_window", 2, 3, 9, 2, 5, True, key_heads=1, window=4, kind="cached"),
        attention("counts", 4, 5, 7, 2, 3, kind="counts"),
    ]


def starts():
    """Returns, for each parameter of a layer that is large enough for statistics, its largest absolute value and its
    deviation."""
    torch.manual_seed(1)
    nn = torch.nn
    # name, PyTorch's layer, and the engine's names of its parameters where they differ
    layers = {
        "gemm": nn.Linear(400, 300),
        "linear": nn.Linear(400, 300),
        "conv": nn.Conv2d(40, 64, (3, 5), groups=4),
        "conv_transpose": nn.ConvTranspose2d(40, 64, (3, 5), groups=4),
        "embedding": nn.Embedding(700, 60),
        "embedding_bag": nn.EmbeddingBag(700, 60),
        "lstm": nn.LSTM(50, 70),
        "gru": nn.GRU(50, 70),
        "batch_normalization": nn.BatchNorm2d(40),
        "group_normalization": nn.GroupNorm(4, 40),
        "instance_normalization": nn.InstanceNorm2d(40, affine=True),
        "layer_normalization": nn.LayerNorm(400),
        "rms_normalization": nn.RMSNorm(400),
        "p_relu": nn.PReLU(40),
    }
    result = {}
    for name, layer in layers.items():
        result[name] = {key.removesuffix("_l0"): [float(p.detach().abs().max()), float(p.detach().std())]
                        for key, p in layer.named_parameters()}
    return result


def main():
    torch.set_num_threads(1)
    cases = convolutions() + transposed_convolutions() + pools() + normalizations() + resampled() + attentions()
    out = {"torch": torch.__version__, "cases": cases, "starts": starts()}
    path = pathlib.Path(__file__).with_name("pytorch_ops.json")
    text = json.dumps(out, separators=(",", ":"))
    path.write_text(text.replace('{"case"', '\n{"case"').replace('"starts"', '\n"starts"') + "\n")
    print(f"{path.name}: {len(cases)} cases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
