"""Spec files: a text, file or dict to the message JobFile or DatasetFile, and what of it travels.

`_message.py` reads the fields. What belongs together in a dataset is checked here, from the options of the formats.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

from google.protobuf.message import Message

from trainyard import v1
from trainyard._document import Document, quoted, refusal
from trainyard._message import Descriptor, Reader, joined, option, required_fields
from trainyard._onnx import import_onnx
from trainyard._tar import TarFolder
from trainyard._upload import Content, ServerPath
from trainyard.errors import FieldViolation, InvalidArgumentError, TrainyardError

Spec: TypeAlias = "str | os.PathLike[str] | Mapping[str, object]"

# As the command line knows data (client/cli/job_file.cc).
_DATA_ENDINGS = (".csv", ".tsv", ".tab", ".psv", ".jsonl", ".ndjson", ".txt", ".gz", ".npz", ".npy", ".parquet", ".xlsx",
                 ".xls", ".pkl", ".tar", ".zip", ".feather", ".arrow", ".xz", ".safetensors", ".jpg", ".jpeg", ".png")

# The formats of datasets, in the order of the wire's message: what they read, and how specs write it, are options of its
# fields there.
_FORMATS: Mapping[str, v1.DatasetFormat] = {
    field.name: option(field, v1.dataset_format)
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


def _required_of(format: str) -> list[tuple[str, str]]:
    return required_fields(v1.DatasetSpec.DESCRIPTOR.fields_by_name[format].message_type)


def _other_formats() -> str:
    """"jsonl: {target: ...} for JSON lines, text: {} for one text": the formats beside the first one."""
    hints = []
    others = [(name, f) for name, f in _FORMATS.items() if _at_path(f) is not None and name != _FIRST]
    for reads, group in itertools.groupby(others, lambda other: other[1].reads):
        names = [f"{name}: {{{', '.join(field + ': ...' for field, _ in _required_of(name))}}}" for name, _ in group]
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
        """The wire's description, without sources. Texts that are left out are what the file's ending asks for: tabs
        separate a .tsv."""
        name = _format_of(self.file)
        spec = v1.DatasetSpec()
        options = getattr(spec, name)
        options.SetInParent()
        if _is_given(self.file, name):
            options.CopyFrom(getattr(self.file, name))
        path = (self.file.path or self.file.server_path).lower().removesuffix(".gz")
        for field in options.DESCRIPTOR.fields:
            rule = option(field, v1.by_ending)
            if rule.ending and path.endswith(rule.ending) and not getattr(options, field.name):
                setattr(options, field.name, rule.value)
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
        recipe names others. They are in a file in `scratch`. What the file does not train is frozen."""
        if not self.file.model.onnx:
            return self
        file = v1.JobFile()
        file.CopyFrom(self.file)
        folder = scratch / "onnx"
        try:
            report = import_onnx(program, self.dataset.folder / file.model.onnx, folder)
        except TrainyardError as error:
            violation = FieldViolation("model.onnx", error.message)
            raise self.with_positions(type(error)(f"model.onnx: {error.message}", reason=error.reason,
                                                  violations=[violation])) from None
        reader = Reader(file.model.DESCRIPTOR, "model")
        reader.read_message(Document.read(folder / "model.yaml").root, "model", file.model)
        if reader.problems:
            raise refusal(reader.problems, file.model.onnx)
        weights = file.recipe.initial_weights
        imported = None
        if not (weights.job or weights.model or weights.path):
            weights.path = file.model.onnx
            imported = folder / "model.safetensors"
        file.model.ClearField("onnx")
        if not file.recipe.HasField("lora"):  # which freezes all weights
            own = list(file.recipe.parameter_groups)
            del file.recipe.parameter_groups[:]
            for group in report["parameter_groups"]:
                file.recipe.parameter_groups.add(**group)
            file.recipe.parameter_groups.extend(own)
        return JobDocument(file, self.dataset, self.document, imported)

    def job_spec(self) -> v1.JobSpec:
        spec = v1.JobSpec(model=self.file.model, recipe=self.file.recipe, priority=self.file.priority,
                          labels=self.file.labels, after=self.file.after)
        if not self.has_data():
            spec.dataset.name = self.file.dataset.name
        if self.file.HasField("resources"):
            spec.resources.CopyFrom(self.file.resources)
        return spec

    def with_positions(self, error: TrainyardError) -> TrainyardError:
        """The server's refusal with the places in the spec of the fields that it names."""
        placed = []
        for violation in error.violations:
            field = "name" if violation.field in ("job_id", "array_id") else violation.field.removeprefix("spec.")
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


def _check_dataset(file: v1.DatasetFile, prefix: str, document: Document, reader: Reader) -> None:
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
        add("FIELD_CONFLICT", "", f"mixes several kinds of fields: {joined(kinds)}; expected only one kind")
    elif (at_path or named) and "@" in file.name:
        add("NAME_MALFORMED", "name", f"{quoted(file.name)}: new content gets its version from the server, expected a name "
            "without @")
    elif len(formats) > 1:
        add("FIELD_CONFLICT", "", f"has {formats[0]} and {formats[1]}, expected only one of them")
    elif on_server and (file.path or file.test_path):
        add("FIELD_CONFLICT", "server_path" if file.server_path else "server_test_path",
            "combined with files on this machine (path, test_path), expected only one kind")
    elif named:
        for field in _fields_of(named[0].train):
            if not _text_at(file, field):
                add("FIELD_REQUIRED", field, f"required for {named[0].named}")
        test = _fields_of(named[0].test)
        missing = [field for field in test if not _text_at(file, field)]
        if missing and len(missing) < len(test):
            parts = " and ".join(field.partition("_")[2] for field in test)
            add("FIELD_REQUIRED", missing[0], f"required: a test set consists of {parts}")
    elif at_path:
        name = _format_of(file)
        sources = _at_path(_FORMATS[name])
        if not (file.path or file.server_path):
            add("FIELD_REQUIRED", "path", f"required with {name}: {_FORMATS[name].path}")
        second = "test_path" if file.test_path else "server_test_path" if file.server_test_path else ""
        if sources is not None and not sources.test and second:
            add("FIELD_UNUSED", second, f"has no effect with {name}: its test set is stored with the training data")
        for field, what in _required_of(name):
            if not _text_at(getattr(file, name), field):
                add("FIELD_REQUIRED", f"{name}.{field}",
                    f"required with path: {what} (or {_other_formats()})" if name == _FIRST else what)
    elif not file.name:
        kinds = ["a name", f"or path with {joined(path_formats)}",
                 *("or " + " and ".join(_fields_of(sources.train)) for sources in all_named)]
        add("FIELD_REQUIRED", "", f"is empty, expected {', '.join(kinds)}")


def _is_data(spec: Spec) -> bool:
    """A folder, or a file whose ending is one of data."""
    if not isinstance(spec, (str, os.PathLike)):
        return False
    return os.path.isdir(spec) or (os.path.exists(spec) and os.fspath(spec).lower().endswith(_DATA_ENDINGS))


def read_job(spec: Spec, folder: str | os.PathLike[str] | None = None) -> JobDocument:
    """A whole spec. All problems are told at once, up to 16."""
    try:
        return _read_job(spec, folder)
    except TrainyardError:
        if not _is_data(spec):
            raise
    # Data in place of a job file is a newcomer's first try.
    name = os.fspath(cast(str, spec))
    raise InvalidArgumentError(f"{name} is data, expected a job file; in a shell, 'trainyard init {name}' writes one",
                               reason="SPEC_IS_DATA")


def _read_job(spec: Spec, folder: str | os.PathLike[str] | None) -> JobDocument:
    document, base = open_document(spec, folder)
    file = v1.JobFile()
    reader = Reader(file.DESCRIPTOR)
    reader.read_message(document.root, "", file)
    for field, says in required_fields(file.DESCRIPTOR):
        if field not in document.root.entries:
            reader.add(document.root.at, "FIELD_REQUIRED", field, says)
    if file.HasField("dataset"):
        _check_dataset(file.dataset, "dataset", document, reader)
    if reader.problems:
        raise refusal(reader.problems, document.name)
    return JobDocument(file, DatasetDocument(file.dataset, base), document)


def read_dataset(spec: Spec, folder: str | os.PathLike[str] | None = None) -> DatasetDocument:
    """The dataset of a whole spec, or a spec of a dataset alone (the fields below `dataset`)."""
    document, base = open_document(spec, folder)
    whole = not {"model", "dataset"}.isdisjoint(document.root.entries)
    job = v1.JobFile()
    file = job.dataset
    read = job if whole else file
    reader = Reader(read.DESCRIPTOR)
    reader.read_message(document.root, "", read)
    _check_dataset(file, "dataset" if whole else "", document, reader)
    if reader.problems:
        raise refusal(reader.problems, document.name)
    return DatasetDocument(file, base)
