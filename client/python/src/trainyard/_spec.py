"""Spec files: a document's tree to the message JobFile or DatasetFile, strictly, by the messages' own descriptors.

The command line reads specs by the same rules (client/lib/spec_message.cc): every field is understood or refused.
"""

from __future__ import annotations

import difflib
import itertools
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

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


def _option(field: _Descriptor, extension: Any) -> Any:
    return field.GetOptions().Extensions[extension]


# The formats of datasets, in the order of the wire's message: what they read, and how specs write it, are options of its
# fields there.
_FORMATS: Mapping[str, v1.DatasetFormat] = {
    field.name: _option(field, v1.dataset_format)
    for field in v1.DatasetSpec.DESCRIPTOR.oneofs_by_name["format"].fields}
_FIRST = next(iter(_FORMATS))  # what a path without a format means


def _file_field(role: str) -> str:
    """The field of a spec that holds a role's file."""
    return {"DATA": "path", "TEST": "test_path"}.get(role, role.lower())


def _fields_of(roles: Iterable[int]) -> list[str]:
    return [_file_field(v1.DatasetSource.Role.Name(role)) for role in roles]


def _text_at(file: Message, field: str) -> str:
    return str(getattr(file, field, ""))


def _names_files(file: v1.DatasetFile, sources: v1.DatasetFormat.Sources) -> bool:
    """Whether any file of such sources, named one by one, is given."""
    return bool(sources.named) and any(_text_at(file, field) for field in _fields_of([*sources.train, *sources.test]))


def _at_path(format: v1.DatasetFormat) -> v1.DatasetFormat.Sources | None:
    return next((sources for sources in format.sources if not sources.named), None)


def _is_given(file: v1.DatasetFile, name: str) -> bool:
    return name in file.DESCRIPTOR.fields_by_name and file.HasField(name)


def _format_of(file: v1.DatasetFile) -> str:
    """The format that the file names, by itself or by its files; the first one where it names none."""
    given = [name for name in _FORMATS if _is_given(file, name)]
    by_files = [name for name, format in _FORMATS.items() if any(_names_files(file, s) for s in format.sources)]
    return (given + by_files + [_FIRST])[0]


def _required_fields(name: str) -> list[tuple[str, str]]:
    """Fields that a format's options have to give, and what each is."""
    format: _Descriptor = v1.DatasetSpec.DESCRIPTOR.fields_by_name[name]
    return [(f.name, _option(f, v1.required)) for f in format.message_type.fields if _option(f, v1.required)]


def _other_formats() -> str:
    """"jsonl: {target: ...} for JSON lines, text: {} for one text": the formats beside the first one."""
    hints = []
    others = [(name, f) for name, f in _FORMATS.items() if _at_path(f) is not None and name != _FIRST]
    for reads, group in itertools.groupby(others, lambda other: other[1].reads):
        names = [f"{name}: {{{', '.join(field + ': ...' for field, _ in _required_fields(name))}}}" for name, _ in group]
        hints.append(" or ".join(names) + (f" for {reads}" if reads else ""))
    return ", ".join(hints)


@dataclass(frozen=True)
class DatasetDocument:
    """The dataset of a spec, by path or by name. Paths are relative to `folder`."""

    file: v1.DatasetFile
    folder: Path

    def sources(self) -> Iterator[tuple[v1.DatasetSource.Role, Path]]:
        """Roles and files, in the order in which they travel."""
        for name, number in v1.DatasetSource.Role.items():
            path = _text_at(self.file, _file_field(name))
            if path:
                yield cast(v1.DatasetSource.Role, number), self.folder / path

    def contents(self) -> list[tuple[v1.DatasetSource.Role, Content | ServerPath]]:
        """What to upload: files, and folders where the format may be one; and what the server has."""
        folders = _FORMATS[_format_of(self.file)].folder
        here: list[tuple[v1.DatasetSource.Role, Content | ServerPath]] = [
            (role, Content(path.name, TarFolder(path) if folders and path.is_dir() else path))
            for role, path in self.sources()]
        role = v1.DatasetSource.Role
        return here + [(which, ServerPath(path)) for which, path in
                       ((role.DATA, self.file.server_path), (role.TEST, self.file.server_test_path)) if path]

    def format(self) -> v1.DatasetSpec:
        """The wire's description, without sources. The fields of a .tsv are separated by tabs unless the file says
        otherwise."""
        name = _format_of(self.file)
        spec = v1.DatasetSpec()
        getattr(spec, name).SetInParent()
        if _is_given(self.file, name):
            getattr(spec, name).CopyFrom(getattr(self.file, name))
        if name == "csv" and not spec.csv.delimiter and \
                (self.file.path or self.file.server_path).lower().endswith((".tsv", ".tsv.gz")):
            spec.csv.delimiter = "\t"
        return spec


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

    named = [sources for format in _FORMATS.values() for sources in format.sources if _names_files(file, sources)]
    formats = [name for name, format in _FORMATS.items() if _is_given(file, name) and _at_path(format) is not None
               and not any(_names_files(file, sources) for sources in format.sources)]
    on_server = bool(file.server_path or file.server_test_path)
    at_path = bool(file.path or file.test_path or formats or on_server)
    path_formats = [name for name, format in _FORMATS.items() if _at_path(format) is not None]
    all_named = [sources for format in _FORMATS.values() for sources in format.sources if sources.named]
    if at_path + len(named) > 1:
        kinds = [f"path and its formats ({', '.join(path_formats)})",
                 *(f"{sources.named} ({_fields_of(sources.train)[0]})" for sources in all_named)]
        add("FIELD_CONFLICT", "", f"has fields of several kinds: {_joined(kinds)}; expected one kind")
    elif (at_path or named) and "@" in file.name:
        add("NAME_MALFORMED", "name", f"{file.name[:64]!r}: new content gets its version from the server, expected a name "
            "without @")
    elif len(formats) > 1:
        add("FIELD_CONFLICT", "", f"has {formats[0]} and {formats[1]}, expected one of them")
    elif on_server and (file.path or file.test_path):
        add("FIELD_CONFLICT", "server_path" if file.server_path else "server_test_path",
            "there are files of this machine too (path, test_path), expected one kind")
    elif named:
        for field in _fields_of(named[0].train):
            if not _text_at(file, field):
                add("FIELD_REQUIRED", field, f"required for {named[0].named}")
        test = _fields_of(named[0].test)
        missing = [field for field in test if not _text_at(file, field)]
        if missing and len(missing) < len(test):
            parts = " and ".join(field.partition("_")[2] for field in test)
            add("FIELD_REQUIRED", missing[0], f"required: a test set is {parts}")
    elif at_path:
        name = _format_of(file)
        sources = _at_path(_FORMATS[name])
        if not (file.path or file.server_path):
            add("FIELD_REQUIRED", "path", f"required with {name}: {_FORMATS[name].path}")
        if sources is not None and not sources.test and (file.test_path or file.server_test_path):
            add("FIELD_UNUSED", "test_path", f"has no effect with {name}: its test set is beside the rest")
        for field, what in _required_fields(name):
            if not _text_at(getattr(file, name), field):
                add("FIELD_REQUIRED", f"{name}.{field}",
                    f"required with path: {what} (or {_other_formats()})" if name == _FIRST else what)
        if len(file.csv.delimiter.encode()) > 1:
            add("FIELD_OUT_OF_RANGE", "csv.delimiter", f"{file.csv.delimiter!r}, expected one character such as \",\" "
                "or \";\"")
    elif not file.name:
        kinds = ["a name", f"or path with {_joined(path_formats)}",
                 *("or " + " and ".join(_fields_of(sources.train)) for sources in all_named)]
        add("FIELD_REQUIRED", "", f"says nothing, expected {', '.join(kinds)}")


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
