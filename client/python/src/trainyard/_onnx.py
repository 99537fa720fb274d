"""Imports and exports ONNX files, and imports folders of language models, by running the command line, which alone can
read and write them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from trainyard.errors import InvalidArgumentError, NotFoundError


def import_onnx(program: str, file: Path, folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Creates the folder with model.yaml (layers) and model.safetensors (weights). Returns the command line's report,
    such as the `parameter_groups` that freeze the parameters which the file does not train. InvalidArgumentError /
    ONNX_UNSUPPORTED names the operations that no layer can represent; NotFoundError if the command line or the file is
    missing."""
    report: dict[str, Any] = json.loads(_run(program, "model", "import", os.path.abspath(file), "--out",
                                             os.fspath(folder)))
    return report


def import_folder(program: str, model: Path, folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Creates the folder with model.yaml (the network) and model.safetensors from a language model's folder. Returns the
    command line's report, such as the `title` of the model. Errors: MODEL_UNSUPPORTED or MODEL_FILE_INVALID names what is
    not supported; NotFoundError if the command line, the folder or its weights are missing."""
    report: dict[str, Any] = json.loads(_run(program, "model", "import", os.path.abspath(model), "--out",
                                             os.fspath(folder)))
    return report


def export_onnx(program: str, folder: Path, file: Path) -> None:
    """Converts the model in a folder that `model export` wrote to an ONNX file. Errors as for `import_onnx`."""
    _run(program, "local", "export", os.path.abspath(folder), "--out", os.path.abspath(file))


def _run(program: str, *arguments: str) -> str:
    try:
        done = subprocess.run([program, *arguments, "-o", "json"], capture_output=True, text=True)
    except FileNotFoundError:
        raise NotFoundError(f"program: {program!r} was not found; expected the trainyard command line: a name on the "
                            "PATH or a file", reason="FILE_NOT_FOUND") from None
    if done.returncode != 0:
        raise _error(done.stderr)
    return done.stdout


def _error(text: str) -> InvalidArgumentError | NotFoundError:
    """Converts the command line's error output, which is a JSON object if the reason is known."""
    try:
        error = yaml.safe_load(text)["error"]  # JSON is YAML
        kind = NotFoundError if error["code"] == "NOT_FOUND" else InvalidArgumentError
        return kind(error["message"], reason=error["reason"])
    except (yaml.YAMLError, KeyError, TypeError):
        return InvalidArgumentError(text.strip() or "the program failed", reason="ONNX_UNSUPPORTED")
