#!/usr/bin/env python3
"""Writes examples/digits_0_to_4.onnx: a small CNN trained by PyTorch on digits below 5, for
training it further.

    pip install torch==2.15.* 'onnx==1.22.*' onnxscript && python3 tests/golden/make_example_onnx.py

Its inputs are pixels as in a job: standardized with the mean and deviation of all images of the
file. It has ten scores, of which the last five have only learned to be low.
"""

import gzip
import io
import pathlib
from collections import OrderedDict

import numpy as np
import onnx
import torch
from torch import nn
from torch.nn import functional as F

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
EPOCHS = 30


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    with gzip.open(EXAMPLES / "digits.csv.gz") as file:
        rows = np.loadtxt(file, delimiter=",", dtype=np.float32)
    pixels = (rows[:, :64] - rows[:, :64].mean()) / rows[:, :64].std()
    known = rows[:, 64] < 5
    x = torch.from_numpy(pixels[known]).reshape(-1, 1, 8, 8)
    y = torch.from_numpy(rows[known, 64].astype(np.int64))
    model = nn.Sequential(OrderedDict(conv1=nn.Conv2d(1, 8, 3, padding=1), relu1=nn.ReLU(),
                                      conv2=nn.Conv2d(8, 16, 3, padding=1), relu2=nn.ReLU(), pool=nn.MaxPool2d(2),
                                      flatten=nn.Flatten(), fc=nn.Linear(256, 10)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for _ in range(EPOCHS):
        for part in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            F.cross_entropy(model(x[part]), y[part]).backward()
            optimizer.step()
    model.eval()
    print("right of its own digits:", (model(x).argmax(1) == y).float().mean().item())
    out = io.BytesIO()
    torch.onnx.export(model, (x[:2],), out, input_names=["image"], output_names=["scores"],
                      dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=1 << 16)},), dynamo=True, optimize=False,
                      external_data=False, verbose=False)
    # The locations of the nodes in PyTorch's source code would take more space than the weights.
    file = onnx.load_from_string(out.getvalue())
    for part in [file, file.graph, *file.graph.node, *file.graph.initializer, *file.graph.value_info,
                 *file.graph.input, *file.graph.output]:
        del part.metadata_props[:]
    path = EXAMPLES / "digits_0_to_4.onnx"
    path.write_bytes(file.SerializeToString(deterministic=True))
    print(path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
