"""Converts specs (the path of a file, a text or a dict) to the messages that calls take, and finds the files they name.

The server parses specs (ReadSpec), by the rules of docs/job_spec.md.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from trainyard import _rpc as rpc
from trainyard import v1
from trainyard._onnx import import_folder, import_onnx
from trainyard._tar import TarFolder
from trainyard._upload import Content
from trainyard.errors import FieldViolation, InvalidArgumentError, NotFoundError, TrainyardError

Spec: TypeAlias = "str | os.PathLike[str] | Mapping[str, object]"
Kind: TypeAlias = v1.ReadSpecRequest.Kind

BYTES_MAX = 1 << 20
DEPTH_MAX = 32

# The same endings by which the command line recognizes data (client/cli/job_file.cc).
_DATA_ENDINGS = (".csv", ".tsv", ".tab", ".psv", ".jsonl", ".ndjson", ".txt", ".gz", ".npz", ".npy", ".parquet", ".xlsx",
                 ".xls", ".pkl", ".tar", ".zip", ".feather", ".arrow", ".xz", ".safetensors", ".jpg", ".jpeg", ".png")

# The keys are type names, so that pandas need not be installed.
_REMEDIES = {
    "DataFrame": "; Client.upload_frame(frame, target) uploads a frame, and {'name': its name} is a spec's `dataset`",
    "Dataset": "; {'name': dataset.name} is a spec's `dataset`",
}


@dataclass(frozen=True)
class Source:
    """A spec's text, and the folder to which its paths are relative."""

    text: bytes
    name: str  # the prefix of positions; empty for a dict, which has no positions
    folder: Path


def _refuse(path: str, description: str, reason: str = "FIELD_TYPE_INVALID") -> InvalidArgumentError:
    violation = FieldViolation(path, description)
    return InvalidArgumentError(str(violation), reason=reason, violations=[violation])


def _plain(value: object, path: str, depth: int = 1) -> object:
    """Converts `value` to what json.dumps accepts. Takes dict, list, tuple, str, bool, int, float, None, paths, and
    NumPy's scalars and small arrays."""
    if isinstance(value, (Mapping, list, tuple)) and depth > DEPTH_MAX:
        raise _refuse(path, f"nested more than {DEPTH_MAX} levels deep", "SPEC_TOO_DEEP")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise _refuse(path, f"the key {key!r} is not text")
        return {key: _plain(item, f"{path}.{key}" if path else key, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
    if isinstance(value, (str, os.PathLike)):
        text = os.fspath(value)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _refuse(path, f"{text!r}, expected text that UTF-8 can encode") from None
        return text
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _refuse(path, f"{value}, expected a finite number")
        return float(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if callable(tolist := getattr(value, "tolist", None)):
        return _plain(tolist(), path, depth)
    raise _refuse(path, f"a value of type {type(value).__name__}, expected text, a number, True or False, None, a list or a "
                  f"dict{_REMEDIES.get(type(value).__name__, '')}")


def _open_file(path: str | os.PathLike[str]) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(BYTES_MAX + 1)  # the server refuses a text with one byte too many
    except FileNotFoundError:
        raise NotFoundError(f"{os.fspath(path)}: no such file", reason="FILE_NOT_FOUND") from None
    except OSError as error:
        raise NotFoundError(f"{os.fspath(path)}: {error.strerror}", reason="FILE_NOT_FOUND") from error


def open_spec(spec: Spec, folder: str | os.PathLike[str] | None) -> Source:
    if isinstance(spec, Mapping):
        return Source(json.dumps(_plain(spec, "")).encode(), "", Path(folder or "."))
    if isinstance(spec, str) and ("\n" in spec or spec.lstrip().startswith("{")):
        return Source(spec.encode("utf-8", "surrogatepass"), "spec", Path(folder or "."))
    if not isinstance(spec, (str, os.PathLike)):
        raise InvalidArgumentError(f"spec: a {type(spec).__name__}, expected the path of a spec file, its text "
                                   "(several lines, or JSON) or a dict", reason="FIELD_TYPE_INVALID")
    return Source(_open_file(spec), os.fspath(spec), Path(folder) if folder is not None else Path(spec).parent)


def read(channel: rpc.Channel, kind: Kind, source: Source, locate: Sequence[str] = ()) -> v1.ReadSpecResponse:
    """Lets the server parse the text; raises an error with all its problems, up to 16."""
    found = channel.call(rpc.READ_SPEC, v1.ReadSpecRequest(kind=kind, text=source.text, name=source.name, locate=locate))
    if not found.problems:
        return found
    violations = [FieldViolation(p.field, p.description, p.position) for p in found.problems]
    message = str(violations[0]) if found.problem_count == 1 else f"{source.name or 'spec'} has {found.problem_count} problems"
    raise InvalidArgumentError(message, reason=found.problems[0].reason, violations=violations)


@dataclass(frozen=True)
class Document:
    """A spec that the server has parsed."""

    source: Source
    read: v1.ReadSpecResponse
    # Of model.onnx or model.pretrained, once it is imported, unless the recipe names other weights.
    imported_weights: Path | None = None

    def path(self, field: str) -> Path | None:
        """Returns the file on this machine that the spec names in `field`."""
        return next((self.source.folder / file.path for file in self.read.files if file.field == field), None)

    def weights(self) -> Path | None:
        """Returns the file with the job's initial weights."""
        return self.imported_weights or self.path("recipe.initial_weights.path")

    def contents(self) -> list[Content | None]:
        """Returns the content to upload for each of the dataset's sources, or None for a path on the server."""
        contents: list[Content | None] = [None] * len(self.read.dataset.sources)
        for file in self.read.files:
            if file.HasField("source"):
                path = self.source.folder / file.path
                contents[file.source] = Content(path.name, TarFolder(path) if file.may_be_folder and path.is_dir() else path)
        return contents

    def with_tokenizer(self) -> Document:
        """Returns the document with the files of the tokenizer that the dataset names, which is one file or a model's
        folder, as sources."""
        found = next((file for file in self.read.files
                      if file.field.endswith(("documents.tokenizer", ".tokenizer_of"))), None)
        if found is None:
            return self
        named = found.path
        path = self.source.folder / named
        option: Any = v1.tokenizer_file  # the stubs of Protobuf have no type for extensions of enum values
        roles: dict[str, int] = {v.GetOptions().Extensions[option]: v.number
                                 for v in v1.DatasetSource.Role.DESCRIPTOR.values}
        files = ({"": v1.DatasetSource.TOKENIZER} if path.is_file() else
                 {name: role for name, role in roles.items() if name and (path / name).is_file()})
        if not files:
            problem = "the folder has no tokenizer, such as tokenizer.json" if path.is_dir() else "no such file or folder"
            raise NotFoundError(f"{path}: {problem}", reason="FILE_NOT_FOUND")
        changed = v1.ReadSpecResponse()
        changed.CopyFrom(self.read)
        for name, role in files.items():
            changed.files.add(field=found.field, path=os.path.join(named, name) if name else named,
                              source=len(changed.dataset.sources))
            changed.dataset.sources.add(role=role, filename=name or path.name)
        return Document(self.source, changed, self.imported_weights)

    def with_onnx(self, channel: rpc.Channel, program: str, scratch: Path) -> Document:
        """Returns the document with model.onnx imported: the model gets its layers, and its weights become the initial
        weights unless the recipe names others. They are in a file in `scratch`. Parameters that the ONNX file does not
        train are frozen."""
        path = self.path("model.onnx")
        if path is None:
            return self
        folder = scratch / "onnx"
        try:
            report = import_onnx(program, path, folder)
        except TrainyardError as error:
            raise self.with_positions(channel, type(error)(
                f"model.onnx: {error.message}", reason=error.reason,
                violations=[FieldViolation("model.onnx", error.message)])) from None
        file = self.read.spec.model.onnx
        changed = v1.ReadSpecResponse()
        changed.CopyFrom(self.read)
        model, recipe = changed.spec.model, changed.spec.recipe
        model.ClearField("onnx")
        model.MergeFrom(read(channel, Kind.MODEL, Source(_open_file(folder / "model.yaml"), file, folder)).model)
        weights = recipe.initial_weights
        imported = None if weights.job or weights.model or weights.path else folder / "model.safetensors"
        if not recipe.HasField("lora"):  # lora freezes all weights anyway
            own = list(recipe.parameter_groups)
            del recipe.parameter_groups[:]
            for group in report["parameter_groups"]:
                recipe.parameter_groups.add(**group)
            recipe.parameter_groups.extend(own)
        return Document(self.source, changed, imported)

    def with_pretrained(self, channel: rpc.Channel, program: str, scratch: Path) -> Document:
        """Returns the document with model.pretrained imported. A folder becomes the model's network, and its weights the
        initial weights unless the recipe names others; they are in a file in `scratch`. A safetensors file becomes the
        initial weights of the network that stands beside it."""
        path = self.path("model.pretrained")
        if path is None:
            return self
        name = self.read.spec.model.pretrained
        changed = v1.ReadSpecResponse()
        changed.CopyFrom(self.read)
        model, weights = changed.spec.model, changed.spec.recipe.initial_weights
        model.ClearField("pretrained")
        has_network = model.WhichOneof("preset") is not None or len(model.layers) > 0
        is_free = not (weights.job or weights.model or weights.path)
        try:
            is_weights = path.is_file() and path.suffix == ".safetensors"
            if is_weights and not has_network:
                raise InvalidArgumentError(f"{name} is a file, which does not say the network; expected a preset beside it, "
                                           "such as resnet50: {stem: imagenet}, or the folder of a language model",
                                           reason="FIELD_REQUIRED")
            if is_weights:
                if is_free:
                    weights.title = name
                return Document(self.source, changed, path if is_free else self.imported_weights)
            if has_network:
                raise InvalidArgumentError("describes the network itself; remove the preset or layers beside it",
                                           reason="FIELD_CONFLICT")
            folder = scratch / "pretrained"
            report = import_folder(program, path, folder)
        except TrainyardError as error:
            raise self.with_positions(channel, type(error)(
                f"model.pretrained: {error.message}", reason=error.reason,
                violations=[FieldViolation("model.pretrained", error.message)])) from None
        model.MergeFrom(read(channel, Kind.MODEL, Source(_open_file(folder / "model.yaml"), name, folder)).model)
        if not is_free:
            return Document(self.source, changed, self.imported_weights)
        weights.title = weights.title or (path.name if path.is_file() else report["title"])
        return Document(self.source, changed, folder / "model.safetensors")

    def with_positions(self, channel: rpc.Channel, error: TrainyardError) -> TrainyardError:
        """Adds the positions in the spec to the fields that the server's error names."""
        if not error.violations:
            return error
        fields = ["name" if v.field in ("job_id", "array_id") else v.field.removeprefix("spec.") for v in error.violations]
        positions: Mapping[str, str] = {}
        if self.source.name:
            try:
                positions = read(channel, Kind.JOB, self.source, fields).positions
            except TrainyardError:
                pass  # the error is clear enough without positions
        placed = [FieldViolation(field, v.description, positions.get(field, ""))
                  for field, v in zip(fields, error.violations, strict=True)]
        # the server's message is kept, because it may say more than the field, such as a layer's name
        if len(placed) == 1:
            message = error.message.removeprefix("spec.")
            message = f"{placed[0].position}: {message}" if placed[0].position else message
        else:
            message = f"{self.source.name or 'spec'} has {len(placed)} problems"
        return type(error)(message, reason=error.reason, code=error.code, metadata=error.metadata, violations=placed)


def _is_data(spec: Spec) -> bool:
    """Returns whether the spec is a folder, or a file with a typical ending of data files."""
    if not isinstance(spec, (str, os.PathLike)):
        return False
    return os.path.isdir(spec) or (os.path.exists(spec) and os.fspath(spec).lower().endswith(_DATA_ENDINGS))


def read_document(channel: rpc.Channel, kind: Kind, spec: Spec, folder: str | os.PathLike[str] | None = None) -> Document:
    try:
        source = open_spec(spec, folder)
        return Document(source, read(channel, kind, source))
    except TrainyardError as error:
        if kind != Kind.JOB or not _is_data(spec) or not isinstance(error, (InvalidArgumentError, NotFoundError)):
            raise
    # New users often pass their data instead of a job file.
    name = os.fspath(spec)  # type: ignore[arg-type]
    raise InvalidArgumentError(f"{name} is data, expected a job file; in a shell, 'trainyard init {name}' writes one",
                               reason="SPEC_IS_DATA")
