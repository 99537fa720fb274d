"""ONNX files as layers and weights. Only the command line can read them, so this runs `trainyard model import`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from trainyard.errors import InvalidArgumentError, NotFoundError


def import_onnx(program: str, file: Path, folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Creates the folder with model.yaml (layers) and model.safetensors (weights). Returns what the command line tells
    about it, such as the `parameter_groups` that freeze what the file does not train. InvalidArgumentError /
    ONNX_UNSUPPORTED names the operations that no layer can represent; NotFoundError if there is no command line or no
    file."""
    try:
        done = subprocess.run([program, "model", "import", os.path.abspath(file), "--out", os.fspath(folder),
                               "-o", "json"], capture_output=True, text=True)
    except FileNotFoundError:
        raise NotFoundError(f"program: {program!r} was not found; expected the trainyard command line: a name on the "
                            "PATH or a file", reason="FILE_NOT_FOUND") from None
    if done.returncode != 0:
        raise _error(done.stderr)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _error(text: str) -> InvalidArgumentError | NotFoundError:
    """The command line's error: a JSON object if it knows the reason."""
    try:
        error = yaml.safe_load(text)["error"]  # JSON is YAML
        kind = NotFoundError if error["code"] == "NOT_FOUND" else InvalidArgumentError
        return kind(error["message"], reason=error["reason"])
    except (yaml.YAMLError, KeyError, TypeError):
        return InvalidArgumentError(text.strip() or "the import failed", reason="ONNX_UNSUPPORTED")
