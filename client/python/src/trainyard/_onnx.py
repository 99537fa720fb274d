"""ONNX files in and out. Only the command line can read and write them, so this runs it."""

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
    report: dict[str, Any] = json.loads(_run(program, "model", "import", os.path.abspath(file), "--out",
                                             os.fspath(folder)))
    return report


def export_onnx(program: str, folder: Path, file: Path) -> None:
    """Writes the model of a folder of `model export` as an ONNX file. Errors as those of `import_onnx`."""
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
    """The command line's error: a JSON object if it knows the reason."""
    try:
        error = yaml.safe_load(text)["error"]  # JSON is YAML
        kind = NotFoundError if error["code"] == "NOT_FOUND" else InvalidArgumentError
        return kind(error["message"], reason=error["reason"])
    except (yaml.YAMLError, KeyError, TypeError):
        return InvalidArgumentError(text.strip() or "the program failed", reason="ONNX_UNSUPPORTED")
