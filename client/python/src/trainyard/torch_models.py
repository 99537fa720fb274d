"""Converts a torch.nn.Module to a job's model: PyTorch exports it as ONNX, and `trainyard model import` converts that
to layers and weights. Needs the command line, and PyTorch with the packages of its exporter (onnx, onnxscript)."""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from trainyard._onnx import import_onnx
from trainyard.errors import InvalidArgumentError

# Defined in src/onnx/trained_parameters.h: if the ONNX file has it, the import trains only these initializers.
_TRAINED_PARAMETERS = "trainyard.trained_parameters"


def from_torch(module: Any, example: Any, folder: str | os.PathLike[str], *,
               program: str = "trainyard") -> dict[str, Any]:
    """Returns the parts of a job's spec that continue training `module` from its current weights:

        parts = from_torch(module, torch.zeros(2, 3, 32, 32), "resnet")
        client.submit({"dataset": {"name": "cifar10"}, "model": parts["model"],
                       "recipe": {**parts["recipe"], "epochs": 3,
                                  "optimizer": {"type": "adam", "learning_rate": 1e-3}}})

    module   a module that takes one tensor, whose first dimension is the batch
    example  an input with the right shape and type, and any number of samples
    folder   a new folder for model.yaml (the layers, for reading and editing) and model.safetensors
    program  the command line, as a name on the PATH or a file

    The job trains what PyTorch would train after module.train(): exactly the parameters that require a gradient.
    "recipe" has `initial_weights`, without which the job trains the same network from scratch, and `parameter_groups`
    if layers have parameters that must be frozen: those that require no gradient, and those that the module lacks
    (BatchNorm2d(affine=False)). Dropout is part of the model.

    InvalidArgumentError / ONNX_UNSUPPORTED names the operations that no layer can represent, and the parameters that
    layers would train differently from PyTorch; MODULE_UNSUPPORTED names submodules with a setting that ONNX does not
    express. NotFoundError if the command line is missing.
    """
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "model.onnx"
        export_for_training(module, example, file)
        return import_for_training(file, folder, program=program)


def import_for_training(file: Path, folder: str | os.PathLike[str], *, program: str = "trainyard") -> dict[str, Any]:
    """Returns what from_torch() returns, from the file of export_for_training()."""
    report = import_onnx(program, file, folder)
    recipe: dict[str, Any] = {"initial_weights": {"path": str(Path(folder).resolve() / "model.safetensors")}}
    if report["parameter_groups"]:
        recipe["parameter_groups"] = report["parameter_groups"]
    return {"model": yaml.safe_load((Path(folder) / "model.yaml").read_text()), "recipe": recipe}


def export_for_training(module: Any, example: Any, file: Path) -> None:
    """Exports the module to an ONNX file as it trains, with the names of the trained parameters. Batch normalization is
    exported in evaluation mode, because ONNX would otherwise lose the running statistics; so are recurrent layers,
    which then become one node and train the same way."""
    import torch
    from torch.nn.modules.batchnorm import _BatchNorm

    _check_settings(module)
    modes = {part: part.training for part in module.modules()}
    for part in modes:
        part.training = not isinstance(part, (_BatchNorm, torch.nn.RNNBase))
    try:
        with warnings.catch_warnings(), _recurrent_layers_of_fixed_length():
            warnings.filterwarnings("ignore", ".*in training mode.*")
            program = torch.onnx.export(module, (example,), None, input_names=["input"], output_names=["output"],
                                        dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=1 << 16)},),
                                        dynamo=True, optimize=False, verbose=False)
    finally:
        for part, training in modes.items():
            part.training = training
    changed = sorted(program.exported_program.graph_signature.buffers_to_mutate.values())
    if changed:
        raise _unsupported(f"buffer {changed[0]!r} changes in training; expected this only of batch normalization")
    # A shared parameter has several names, of which the exporter keeps one.
    trained = [name for name, parameter in module.named_parameters(remove_duplicate=False) if parameter.requires_grad]
    program.model.metadata_props[_TRAINED_PARAMETERS] = json.dumps(trained)
    program.save(str(file), external_data=False)


def _recurrent_layers_of_fixed_length() -> AbstractContextManager[object]:
    """If a dimension is dynamic, PyTorch 2.15 traces recurrent layers as loops over sequences of any length, which
    fails for a GRU with several layers. Only the batch is dynamic here, so the context manager turns that off."""
    try:
        from torch.onnx._internal.exporter import _capture_strategies
    except ImportError:  # an internal module, which other versions have elsewhere
        return nullcontext()
    return patch.object(_capture_strategies, "patch_dynamic_shape_rnn_decompositions", nullcontext, create=True)


def _check_settings(module: Any) -> None:
    """Refuses settings that affect training but are not stored in an ONNX file."""
    from torch import nn

    for name, part in module.named_modules():
        what = ""
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            if part.running_mean is None:
                what = "track_running_stats=False, expected running statistics"
            elif part.momentum is None:
                what = "momentum=None, expected a number"
        elif isinstance(part, nn.modules.instancenorm._InstanceNorm) and part.running_mean is not None:
            what = "track_running_stats=True, expected statistics of each sample"
        elif isinstance(part, nn.RNNBase) and part.dropout > 0 and part.num_layers > 1:
            what = f"dropout={part.dropout} between its layers, expected layers of their own and nn.Dropout"
        elif isinstance(part, (nn.Embedding, nn.EmbeddingBag)):
            if part.padding_idx is not None and part.weight.requires_grad:
                what = f"padding_idx={part.padding_idx}, a row that is not trained"
            elif part.max_norm is not None:
                what = f"max_norm={part.max_norm}, which changes the table in use"
            elif part.scale_grad_by_freq:
                what = "scale_grad_by_freq=True"
        if what:
            raise _unsupported(f"{name or 'the module'}: {type(part).__name__} has {what}")


def _unsupported(message: str) -> InvalidArgumentError:
    return InvalidArgumentError(message, reason="MODULE_UNSUPPORTED")
