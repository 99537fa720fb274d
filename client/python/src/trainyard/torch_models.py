"""A torch.nn.Module as a job's model: PyTorch exports it as ONNX, and `trainyard model import` converts that to a layer
list and weights. Needs PyTorch with the packages that its exporter needs (onnx, onnxscript), and the command line."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import yaml

from trainyard._onnx import import_onnx


def from_torch(module: Any, example: Any, folder: str | os.PathLike[str], *,
               program: str = "trainyard") -> dict[str, Any]:
    """The parts of a job's spec that continue training `module` from its current weights:

        parts = from_torch(module, torch.zeros(2, 3, 32, 32), "resnet")
        client.submit({"dataset": {"name": "cifar10"}, "model": parts["model"],
                       "recipe": {"epochs": 3, "optimizer": {"type": "adam", "learning_rate": 1e-3},
                                  "initial_weights": parts["initial_weights"]}})

    module   takes one tensor whose first dimension is the batch; it is exported in evaluation mode, without merging
             layers
    example  an input of the right shape and type, with any number of samples
    folder   a new one, for model.yaml (the layers, to be read and edited) and model.safetensors
    program  the command line: a name on the PATH or a file

    Without "initial_weights" in "recipe", the job trains the same network from scratch. InvalidArgumentError /
    ONNX_UNSUPPORTED names the operations that no layer can represent; NotFoundError if there is no command line.
    """
    import torch

    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "model.onnx"
        training = module.training
        module.eval()
        try:
            torch.onnx.export(module, (example,), str(file), input_names=["input"], output_names=["output"],
                              dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=1 << 16)},), dynamo=True,
                              optimize=False, external_data=False, verbose=False)
        finally:
            module.train(training)
        import_onnx(program, file, folder)
    layers = yaml.safe_load((Path(folder) / "model.yaml").read_text())
    return {"model": layers, "initial_weights": {"path": str(Path(folder).resolve() / "model.safetensors")}}
