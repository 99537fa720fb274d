"""Spec files: a document's tree to the message JobFile or DatasetFile, strictly, by the messages' own descriptors.

The command line reads specs by the same rules (client/lib/spec_message.cc): every field is understood or refused.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Value as AnyValue

from trainyard import v1
from trainyard._document import Document, Entry, Kind, Problem, Value, refusal
from trainyard._onnx import import_onnx
from trainyard._tar import TarFolder
from trainyard._upload import Content, ServerPath
from trainyard.errors import FieldViolation, InvalidArgumentError, TrainyardError

# Descriptors of messages, fields and enums: what their types are called differs between versions of protobuf.
_Descriptor: TypeAlias = Any

Spec: TypeAlias = "str | os.PathLike[str] | Mapping[str, object]"

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?", re.ASCII)
_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)
_WHOLE_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}
# Words of other tools, for the hint alone.
_FAMILIAR = {
    "dense": "gemm", "linear": "gemm", "fc": "gemm", "conv2d": "conv", "maxpool2d": "max_pool",
    "avgpool2d": "average_pool", "batchnorm": "batch_normalization", "batchnorm2d": "batch_normalization",
    "out_features": "units", "filters": "out_channels", "kernel_size": "kernel_shape", "padding": "pads",
    "lr": "learning_rate", "batch": "batch_size", "val_split": "validation_split", "label": "target",
}


def _joined(names: Sequence[str]) -> str:
    return " or ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def _nearest(word: str, names: Sequence[str]) -> str | None:
    found = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return found[0] if found else None


def _child(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _enum_numbers(enum: _Descriptor) -> dict[str, int]:
    return {value.name.lower(): value.number for value in enum.values if value.number != 0}


def _expected(field: _Descriptor) -> str:
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return "true or false"
    if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64:
        return "a whole number from 0"
    if field.cpp_type in _WHOLE_RANGES:
        return "a whole number"
    if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE:
        return "a number"
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return _joined(list(_enum_numbers(field.enum_type)))
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return "text"
    names: list[str] = [f.name for f in field.message_type.fields[:4]]
    return "fields such as " + _joined(names) if names else "nothing after the colon, or {}"


def _shown(value: Value) -> str:
    if value.kind is not Kind.SCALAR:
        return str(value.kind.value)
    text = value.text[:64] + ("..." if len(value.text) > 64 else "")
    return repr(text) + (" (text)" if value.quoted else "")


def _is_repeated(field: _Descriptor) -> bool:
    # `label` is deprecated in new versions of protobuf, `is_repeated` is not there in old ones.
    repeated = getattr(field, "is_repeated", None)
    return bool(repeated if repeated is not None else field.label == FieldDescriptor.LABEL_REPEATED)


def _is_map(field: _Descriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _real_oneof(field: _Descriptor) -> Any:
    """The oneof that the field is in, but for those of `optional` fields, which have one member and a made-up name."""
    oneof = field.containing_oneof
    synthetic = oneof is not None and len(oneof.fields) == 1 and oneof.name == "_" + field.name
    return None if synthetic else oneof


def _is_choice(kind: _Descriptor) -> bool:
    """Whether a message is nothing but a choice of one field: `loss: huber` says as much as `loss: {huber: {}}`."""
    return len(kind.oneofs) == 1 and len(kind.oneofs[0].fields) == len(kind.fields)


class _Reader:
    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def add(self, at: str, reason: str, path: str, description: str) -> None:
        self.problems.append(Problem(reason, FieldViolation(path, description, at)))

    def read_message(self, value: Value, path: str, message: Message) -> None:
        fields: Mapping[str, _Descriptor] = message.DESCRIPTOR.fields_by_name
        chosen: dict[str, str] = {}
        for key, entry in value.entries.items():
            field = fields.get(key)
            if field is None or field.GetOptions().deprecated:  # what only stored specs hold
                self.add(entry.key_at, "FIELD_UNKNOWN", _child(path, key), self._unknown(message.DESCRIPTOR, path, key))
                continue
            oneof = _real_oneof(field)
            if oneof is not None and chosen.setdefault(oneof.name, key) != key:
                self.add(entry.key_at, "FIELD_CONFLICT", _child(path, key),
                         f"stands beside '{chosen[oneof.name]}', only one of them can be given here")
                continue
            self._read_field(entry, _child(path, key), field, message)

    @staticmethod
    def _unknown(kind: _Descriptor, path: str, key: str) -> str:
        names = [f.name for f in kind.fields if not f.GetOptions().deprecated]
        familiar = _FAMILIAR.get(key.lower())
        if familiar in names:
            return f"unknown field, it is called '{familiar}' here"
        near = _nearest(key, names)
        if near:
            return f"unknown field, did you mean '{near}'?"
        for field in kind.fields:  # right name, one level too high
            if field.message_type is not None and not _is_repeated(field) and key in field.message_type.fields_by_name:
                return f"unknown field here, it belongs to '{_child(path, field.name)}'"
        return f"unknown field, expected {_joined(names)}" if names else "unknown field, there are none here"

    def _read_field(self, entry: Entry, path: str, field: _Descriptor, message: Message) -> None:
        value = entry.value
        if field.message_type is not None and field.message_type.full_name == AnyValue.DESCRIPTOR.full_name:
            self._read_any(value, path, getattr(message, field.name), may_be_named=True)
        elif _is_map(field):
            self._read_map(value, path, field, message)
        elif _is_repeated(field):
            self._read_repeated(value, path, field, message)
        elif field.message_type is None:
            number_or_text = self._scalar(value, path, field)
            if number_or_text is not None:
                setattr(message, field.name, number_or_text)
        else:
            # `- relu:` and `lenet5:` say all there is to say; an empty `recipe:` was forgotten.
            may_be_empty = _real_oneof(field) is not None or not field.message_type.fields
            if value.kind is Kind.SCALAR and _is_choice(field.message_type):
                self._read_choice(value, path, getattr(message, field.name))
                return
            if value.kind is Kind.SCALAR and field.message_type.full_name == v1.DatasetFile.DESCRIPTOR.full_name:
                name = self._scalar(value, path, field.message_type.fields_by_name["name"])  # dataset: digits
                if name is not None:
                    getattr(message, field.name).name = name
                    getattr(message, field.name).SetInParent()
                return
            if value.kind is not Kind.MAP and not (value.kind is Kind.NULL and may_be_empty):
                self.add(value.at, "FIELD_TYPE", path, f"{_shown(value)}, expected {_expected(field)}")
                return
            sub = getattr(message, field.name)
            sub.SetInParent()
            self.read_message(value, path, sub)

    def _read_choice(self, value: Value, path: str, message: Message) -> None:
        names = [field.name for field in message.DESCRIPTOR.fields]
        if value.text in names:
            getattr(message, value.text).SetInParent()
            return
        near = _nearest(value.text, names)
        self.add(value.at, "FIELD_UNSUPPORTED", path, f"{value.text[:64]!r} is not known, expected {_joined(names)}"
                 + (f"; did you mean '{near}'?" if near else ""))

    def _read_map(self, value: Value, path: str, field: _Descriptor, message: Message) -> None:
        if value.kind is not Kind.MAP:
            self.add(value.at, "FIELD_TYPE", path, f"{_shown(value)}, expected names with values")
            return
        target = getattr(message, field.name)
        value_field = field.message_type.fields_by_name["value"]
        for key, entry in value.entries.items():
            if value_field.message_type is not None:
                self._read_any(entry.value, _child(path, key), target[key])
            else:
                text = self._scalar(entry.value, _child(path, key), value_field)
                if text is not None:
                    target[key] = text

    def _read_any(self, value: Value, path: str, out: AnyValue, may_be_named: bool = False) -> None:
        """A value of any type: number, truth, text, a list of them, or some with names. Which is right, its reader
        knows."""
        if value.kind is Kind.SEQUENCE:
            out.list_value.SetInParent()
            for i, item in enumerate(value.items):
                self._read_any(item, f"{path}[{i}]", out.list_value.values.add())
        elif value.kind is Kind.MAP and may_be_named:
            out.struct_value.SetInParent()
            for key, entry in value.entries.items():
                self._read_any(entry.value, _child(path, key), out.struct_value.fields[key])
        elif value.kind is not Kind.SCALAR:
            self.add(value.at, "FIELD_TYPE", path, f"{_shown(value)}, expected a number, text, true or false")
        elif not value.quoted and value.text in ("true", "false"):
            out.bool_value = value.text == "true"
        elif not value.quoted and _NUMBER.fullmatch(value.text):
            number = self._scalar(value, path, AnyValue.DESCRIPTOR.fields_by_name["number_value"])
            if isinstance(number, float):
                out.number_value = number
        else:
            out.string_value = value.text

    def _read_repeated(self, value: Value, path: str, field: _Descriptor, message: Message) -> None:
        target = getattr(message, field.name)
        of_messages = field.message_type is not None
        items = [value] if value.kind is Kind.SCALAR and not of_messages else value.items  # kernel_shape: 5
        if value.kind is not Kind.SEQUENCE and items is value.items:
            self.add(value.at, "FIELD_TYPE", path,
                     f"{_shown(value)}, expected a list{' (- item)' if of_messages else ''} of "
                     f"{field.name if of_messages else _expected(field)}")
            return
        for i, item in enumerate(items):
            item_path = path if item is value else f"{path}[{i}]"
            if not of_messages:
                scalar = self._scalar(item, item_path, field)
                if scalar is not None:
                    target.append(scalar)
                continue
            sub = target.add()
            if item.kind is Kind.MAP:
                self.read_message(item, item_path, sub)
            elif item.kind is Kind.SCALAR and item.text in field.message_type.fields_by_name:
                self.add(item.at, "FIELD_TYPE", item_path, f"{_shown(item)} lacks its colon, write '- {item.text}:'")
            else:
                self.add(item.at, "FIELD_TYPE", item_path, f"{_shown(item)}, expected fields (name: value)")

    def _scalar(self, value: Value, path: str, field: _Descriptor) -> bool | int | float | str | None:
        """The value in the field's type, or None after telling what is wrong with it."""
        def refuse(expected: str) -> None:
            self.add(value.at, "FIELD_TYPE", path, f"{_shown(value)}, expected {expected}")

        text = value.text
        kind = field.cpp_type
        if value.kind is not Kind.SCALAR:
            refuse(_expected(field))
        elif kind == FieldDescriptor.CPPTYPE_BOOL:
            if not value.quoted and text in ("true", "false"):
                return text == "true"
            refuse(_expected(field))
        elif kind in _WHOLE_RANGES:
            low, high = _WHOLE_RANGES[kind]
            if value.quoted or not _WHOLE.fullmatch(text):
                leading = not value.quoted and re.fullmatch("0[0-9]+", text)
                refuse(_expected(field) + (" without leading zeros" if leading else ""))
            elif len(text) > 20 or not low <= int(text) <= high:
                self.add(value.at, "FIELD_OUT_OF_RANGE", path, f"{text[:64]} is out of range, expected {low}..{high}")
            else:
                return int(text)
        elif kind == FieldDescriptor.CPPTYPE_DOUBLE:
            if value.quoted or not _NUMBER.fullmatch(text):
                if not value.quoted and text.startswith(".") and _NUMBER.fullmatch("0" + text):
                    refuse(f"a number such as 0{text}")
                else:
                    unbounded = text.lower().lstrip("-.") in ("nan", "inf", "infinity")
                    refuse("a finite number" if unbounded and not value.quoted else "a number")
            elif not math.isfinite(float(text)):
                self.add(value.at, "FIELD_OUT_OF_RANGE", path, f"{text[:64]} is beyond what a 64-bit number can hold")
            else:
                return float(text)
        elif kind == FieldDescriptor.CPPTYPE_ENUM:
            numbers = _enum_numbers(field.enum_type)
            if text in numbers:
                return numbers[text]
            near = _nearest(text, list(numbers))
            self.add(value.at, "FIELD_UNSUPPORTED", path, f"{text[:64]!r} is not known, expected "
                     f"{_joined(list(numbers))}" + (f"; did you mean '{near}'?" if near else ""))
        elif not value.quoted and (_NUMBER.fullmatch(text) or text in ("true", "false")):
            refuse(f'text; put it in quotes: "{text}"')
        else:
            try:
                text.encode()
            except UnicodeEncodeError:
                refuse("text that UTF-8 can hold")
            else:
                return text
        return None


@dataclass(frozen=True)
class DatasetDocument:
    """The dataset of a spec, by path or by name. Paths are relative to `folder`."""

    file: v1.DatasetFile
    folder: Path

    def sources(self) -> Iterator[tuple[v1.DatasetSource.Role, Path]]:
        """Roles and files, in the order in which they travel."""
        role = v1.DatasetSource.Role
        for which, path in ((role.DATA, self.file.path), (role.TEST, self.file.test_path),
                            (role.TRAIN_IMAGES, self.file.train_images), (role.TRAIN_LABELS, self.file.train_labels),
                            (role.TEST_IMAGES, self.file.test_images), (role.TEST_LABELS, self.file.test_labels),
                            (role.INPUTS, self.file.inputs), (role.TARGETS, self.file.targets),
                            (role.TEST_INPUTS, self.file.test_inputs), (role.TEST_TARGETS, self.file.test_targets)):
            if path:
                yield which, self.folder / path

    def contents(self) -> list[tuple[v1.DatasetSource.Role, Content | ServerPath]]:
        """What to upload: files, and folders where the format may be one; and what the server has."""
        folders = any(self.file.HasField(name) for name in ("images", "cifar", "text", "text_files"))
        here: list[tuple[v1.DatasetSource.Role, Content | ServerPath]] = [
            (role, Content(path.name, TarFolder(path) if folders and path.is_dir() else path))
            for role, path in self.sources()]
        role = v1.DatasetSource.Role
        return here + [(which, ServerPath(path)) for which, path in
                       ((role.DATA, self.file.server_path), (role.TEST, self.file.server_test_path)) if path]

    def format(self) -> v1.DatasetSpec:
        """The wire's description, without sources. The fields of a .tsv are separated by tabs unless the file says
        otherwise."""
        if self.file.HasField("text"):
            return v1.DatasetSpec(text=self.file.text)
        if self.file.HasField("images"):
            return v1.DatasetSpec(images=self.file.images)
        if self.file.HasField("cifar"):
            return v1.DatasetSpec(cifar=self.file.cifar)
        if self.file.HasField("arrays") or self.file.inputs:
            return v1.DatasetSpec(arrays=self.file.arrays)
        if self.file.HasField("jsonl"):
            return v1.DatasetSpec(jsonl=self.file.jsonl)
        if self.file.HasField("text_files"):
            return v1.DatasetSpec(text_files=self.file.text_files)
        if self.file.path or self.file.server_path:
            spec = v1.DatasetSpec(csv=self.file.csv)
            if not spec.csv.delimiter and (self.file.path or self.file.server_path).lower().endswith((".tsv", ".tsv.gz")):
                spec.csv.delimiter = "\t"
            return spec
        return v1.DatasetSpec(idx=v1.IdxFormat())


@dataclass(frozen=True)
class JobDocument:
    file: v1.JobFile
    dataset: DatasetDocument
    document: Document
    imported_weights: Path | None = None  # of model.onnx, once it is imported: what initial_weights.path stands for

    def has_data(self) -> bool:
        file = self.dataset.file
        return bool(file.server_path or file.server_test_path) or any(True for _ in self.dataset.sources())

    def weights(self) -> Path | None:
        """The file whose weights the job begins with. None where the spec names another source beside it, which the
        server refuses."""
        weights = self.file.recipe.initial_weights
        if not weights.path or weights.job or weights.model:
            return None
        return self.imported_weights or self.dataset.folder / weights.path

    def with_onnx(self, program: str, scratch: Path) -> JobDocument:
        """The same with model.onnx imported: its layers are the model's, and its weights the initial ones, unless the
        recipe names others. They are in a file in `scratch`."""
        if not self.file.model.onnx:
            return self
        file = v1.JobFile()
        file.CopyFrom(self.file)
        folder = scratch / "onnx"
        try:
            import_onnx(program, self.dataset.folder / file.model.onnx, folder)
        except TrainyardError as error:
            violation = FieldViolation("model.onnx", error.message)
            raise self.with_positions(type(error)(f"model.onnx: {error.message}", reason=error.reason,
                                                  violations=[violation])) from None
        reader = _Reader()
        reader.read_message(Document.read(folder / "model.yaml").root, "model", file.model)
        if reader.problems:
            raise refusal(reader.problems, file.model.onnx)
        weights = file.recipe.initial_weights
        imported = None
        if not (weights.job or weights.model or weights.path):
            weights.path = file.model.onnx
            imported = folder / "model.safetensors"
        file.model.ClearField("onnx")
        return JobDocument(file, self.dataset, self.document, imported)

    def job_spec(self) -> v1.JobSpec:
        spec = v1.JobSpec(model=self.file.model, recipe=self.file.recipe, priority=self.file.priority,
                          labels=self.file.labels)
        if not self.has_data():
            spec.dataset.name = self.file.dataset.name
        if self.file.HasField("resources"):
            spec.resources.CopyFrom(self.file.resources)
        return spec

    def with_positions(self, error: TrainyardError) -> TrainyardError:
        """The server's refusal with the places in the spec of the fields that it names."""
        placed = []
        for violation in error.violations:
            field = "name" if violation.field == "job_id" else violation.field.removeprefix("spec.")
            placed.append(FieldViolation(field, violation.description, self.document.locate(field)))
        if not placed:
            return error
        if len(placed) == 1:  # the server's sentence stays: it may say more than its field, such as a layer's name
            message = error.message.removeprefix("spec.")
            message = f"{placed[0].position}: {message}" if placed[0].position else message
        else:
            message = f"{self.document.name} has {len(placed)} problems"
        return type(error)(message, reason=error.reason, code=error.code, metadata=error.metadata, violations=placed)


def open_document(spec: Spec, folder: str | os.PathLike[str] | None) -> tuple[Document, Path]:
    """The document that `spec` is or names, and the folder that its paths are relative to."""
    if isinstance(spec, Mapping):
        return Document.of(spec, "spec"), Path(folder or ".")
    if isinstance(spec, str) and ("\n" in spec or spec.lstrip().startswith("{")):
        return Document.parse(spec, "spec"), Path(folder or ".")
    if not isinstance(spec, (str, os.PathLike)):
        raise InvalidArgumentError(f"spec: a {type(spec).__name__}, expected the path of a spec file, its text "
                                   "(several lines, or JSON) or a dict", reason="FIELD_TYPE")
    return Document.read(spec), Path(folder) if folder is not None else Path(spec).parent


def _check_layers(layers: Sequence[v1.Layer], where: str, document: Document, reader: _Reader) -> None:
    for i, layer in enumerate(layers):
        path = f"{where}[{i}]"
        told = any(p.violation.field.startswith(path) for p in reader.problems)  # an unknown field says it better
        if layer.WhichOneof("op") is None and not told:
            reader.add(document.locate(path), "FIELD_REQUIRED", path, "names no operation such as conv, gemm or relu")


def _check_onnx(model: v1.ModelSpec, document: Document, reader: _Reader) -> None:
    rival = "a preset" if model.WhichOneof("preset") else "layers" if model.layers else "blocks" if model.blocks else ""
    if model.onnx and rival:
        reader.add(document.locate("model"), "FIELD_CONFLICT", "model", f"has onnx and {rival}, expected one of them")


def _check_dataset(file: v1.DatasetFile, prefix: str, document: Document, reader: _Reader) -> None:
    def add(reason: str, name: str, description: str) -> None:
        field = ".".join(part for part in (prefix, name) if part)
        reader.add(document.locate(field), reason, field, description)

    npy = bool(file.inputs or file.targets or file.test_inputs or file.test_targets)
    formats = [name for name in ("csv", "text", "images", "cifar", "jsonl", "text_files", "arrays")
               if file.HasField(name)]
    if npy and "arrays" in formats:
        formats.remove("arrays")
    on_server = bool(file.server_path or file.server_test_path)
    at_path = bool(file.path or file.test_path or formats or on_server)
    named = bool(file.path or file.server_path)
    images = bool(file.train_images or file.train_labels or file.test_images or file.test_labels)
    if at_path + images + npy > 1:
        add("FIELD_CONFLICT", "", "has fields of several kinds: path and its formats (csv, jsonl, text, text_files, "
            "images, cifar, arrays), IDX files (train_images) or NPY files (inputs); expected one kind")
    elif (at_path or images or npy) and "@" in file.name:
        add("NAME_MALFORMED", "name", f"{file.name[:64]!r}: new content gets its version from the server, expected a name "
            "without @")
    elif len(formats) > 1:
        add("FIELD_CONFLICT", "", f"has {formats[0]} and {formats[1]}, expected one of them")
    elif on_server and (file.path or file.test_path):
        add("FIELD_CONFLICT", "server_path" if file.server_path else "server_test_path",
            "there are files of this machine too (path, test_path), expected one kind")
    elif file.HasField("text"):
        if not named:
            add("FIELD_REQUIRED", "path", "required with text: the file that holds it")
    elif file.HasField("jsonl"):
        if not named:
            add("FIELD_REQUIRED", "path", "required with jsonl: the file that holds the rows")
        if not file.jsonl.target:
            add("FIELD_REQUIRED", "jsonl.target", "the member to learn")
    elif file.HasField("images") or file.HasField("cifar") or file.HasField("text_files"):
        if not named:
            add("FIELD_REQUIRED", "path", f"required with {formats[0]}: the folder or archive that holds them")
        if file.HasField("cifar") and (file.test_path or file.server_test_path):
            add("FIELD_UNUSED", "test_path", "has no effect with cifar: its test set is beside the rest")
    elif npy:
        for name in ("inputs", "targets"):
            if not getattr(file, name):
                add("FIELD_REQUIRED", name, "required for NPY files")
        if bool(file.test_inputs) != bool(file.test_targets):
            add("FIELD_REQUIRED", "test_targets" if file.test_inputs else "test_inputs",
                "required: a test set is inputs and targets")
    elif file.HasField("arrays"):
        if not named:
            add("FIELD_REQUIRED", "path", "required with arrays: a NPZ or safetensors file; or name NPY files by "
                "inputs and targets")
    elif at_path:
        if not named:
            add("FIELD_REQUIRED", "path", "required with csv: the file that holds the rows")
        if not file.csv.target:
            add("FIELD_REQUIRED", "csv.target", "required with path: the column to learn (or jsonl: {target: ...} for JSON "
                "lines, text: {} for one text, text_files: {} or images: {} for a folder or archive, cifar: {}, "
                "arrays: {} for NPZ and safetensors)")
        if len(file.csv.delimiter.encode()) > 1:
            add("FIELD_OUT_OF_RANGE", "csv.delimiter", f"{file.csv.delimiter!r}, expected one character such as \",\" "
                "or \";\"")
    elif images:
        for name in ("train_images", "train_labels"):
            if not getattr(file, name):
                add("FIELD_REQUIRED", name, "required for IDX data")
        if bool(file.test_images) != bool(file.test_labels):
            add("FIELD_REQUIRED", "test_labels" if file.test_images else "test_images",
                "required: a test set is images and labels")
    elif not file.name:
        add("FIELD_REQUIRED", "", "says nothing, expected a name, or path with csv, jsonl, text, text_files, images, "
            "cifar or arrays, or train_images and train_labels, or inputs and targets")


def read_job(spec: Spec, folder: str | os.PathLike[str] | None = None) -> JobDocument:
    """A whole spec. All problems are told at once, up to 16."""
    document, base = open_document(spec, folder)
    reader = _Reader()
    file = v1.JobFile()
    reader.read_message(document.root, "", file)
    for name, example in (("dataset", "'dataset: digits'"), ("model", "'model: {lenet5: {}}'"),
                          ("recipe", "'recipe: {epochs: 5, optimizer: {learning_rate: 0.1}}'")):
        if name not in document.root.entries:
            reader.add(document.root.at, "FIELD_REQUIRED", name, f"required and not there, for example {example}")
    _check_onnx(file.model, document, reader)
    _check_layers(file.model.layers, "model.layers", document, reader)
    for i, block in enumerate(file.model.blocks):
        _check_layers(block.layers, f"model.blocks[{i}].layers", document, reader)
    if file.HasField("dataset"):
        _check_dataset(file.dataset, "dataset", document, reader)
    if reader.problems:
        raise refusal(reader.problems, document.name)
    return JobDocument(file, DatasetDocument(file.dataset, base), document)


def read_dataset(spec: Spec, folder: str | os.PathLike[str] | None = None) -> DatasetDocument:
    """The dataset of a whole spec, or a spec of a dataset alone (the fields below `dataset`)."""
    document, base = open_document(spec, folder)
    reader = _Reader()
    whole = not {"model", "dataset"}.isdisjoint(document.root.entries)
    job = v1.JobFile()
    file = job.dataset
    reader.read_message(document.root, "", job if whole else file)
    _check_dataset(file, "dataset" if whole else "", document, reader)
    if reader.problems:
        raise refusal(reader.problems, document.name)
    return DatasetDocument(file, base)
