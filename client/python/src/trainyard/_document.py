"""YAML, JSON and Python values as one tree of scalars, lists and maps that remembers where each was written.

The rules of docs/job_spec.md, "How a spec is read": numbers as in JSON, no anchors, aliases and tags, no key twice.
Scalars stay text here; `_spec.py` knows which type is wanted. That is why neither PyYAML's nor Python's own idea of
types is used: PyYAML reads `yes` as true and `1e-3` as text.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import yaml

from trainyard.errors import FieldViolation, InvalidArgumentError, NotFoundError

BYTES_MAX = 1 << 20
DEPTH_MAX = 32
VALUES_MAX = 100_000
PROBLEMS_MAX = 16


class Kind(Enum):
    NULL = "nothing"
    SCALAR = "a value"
    SEQUENCE = "a list"
    MAP = "a group of fields"


@dataclass
class Value:
    kind: Kind
    at: str = ""  # "spec.yaml:3:5", or empty for what was no text
    text: str = ""  # scalar
    quoted: bool = False  # scalar: text for certain
    items: list[Value] = field(default_factory=list)
    entries: dict[str, Entry] = field(default_factory=dict)


@dataclass
class Entry:
    key_at: str
    value: Value


@dataclass(frozen=True)
class Problem:
    reason: str
    violation: FieldViolation


class SpecRefused(Exception):
    """Ends the reading of a document with one problem."""

    def __init__(self, reason: str, description: str, at: str = "", path: str = "") -> None:
        super().__init__(description)
        self.problem = Problem(reason, FieldViolation(path, description, at))


def refusal(problems: Iterable[Problem], name: str) -> InvalidArgumentError:
    """All problems of one document as one error."""
    all_of_them = list(problems)
    message = (str(all_of_them[0].violation) if len(all_of_them) == 1
               else f"{name} has {len(all_of_them)} problems")
    return InvalidArgumentError(message, reason=all_of_them[0].reason,
                                violations=[p.violation for p in all_of_them[:PROBLEMS_MAX]])


@dataclass
class Document:
    name: str  # for messages: the file's name, or "spec"
    root: Value

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Document:
        name = os.fspath(path)
        try:
            with open(path, "rb") as file:
                data = file.read(BYTES_MAX + 1)
        except FileNotFoundError:
            raise NotFoundError(f"{name}: no such file", reason="FILE_NOT_FOUND") from None
        except OSError as error:
            raise NotFoundError(f"{name}: {error.strerror}", reason="FILE_NOT_FOUND") from error
        return cls._parse_bytes(data, name)

    @classmethod
    def parse(cls, text: str, name: str) -> Document:
        return cls._parse_bytes(text.encode("utf-8", "surrogatepass"), name)

    @classmethod
    def of(cls, fields: Mapping[str, object], name: str) -> Document:
        """A document of Python values: dict, list, tuple, str, bool, int, float, None and NumPy's scalars."""
        try:
            return cls(name, _Converter("").convert(fields, "", 0))
        except SpecRefused as refused:
            raise refusal([refused.problem], name) from None

    @classmethod
    def _parse_bytes(cls, data: bytes, name: str) -> Document:
        try:
            root = _parse(data, name)
        except SpecRefused as refused:
            raise refusal([refused.problem], name) from None
        return cls(name, root)

    def locate(self, path: str) -> str:
        """Where the value at `path` was written, or the nearest one above it."""
        value, at = self.root, self.root.at
        for key, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
            if index:
                if int(index) >= len(value.items):
                    break
                value = value.items[int(index)]
                at = value.at
            else:
                entry = value.entries.get(key)
                if entry is None:
                    break
                value = entry.value
                at = value.at if value.kind is Kind.SCALAR else entry.key_at
        return at


def _parse(data: bytes, name: str) -> Value:
    if len(data) > BYTES_MAX:
        raise SpecRefused("SPEC_TOO_LARGE", "larger than 1 MiB, which no spec needs", name)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecRefused("SPEC_MALFORMED", f"not UTF-8 text: byte {error.start}", name) from None
    root = _parse_json(text, name) if text.lstrip().startswith("{") else _YamlBuilder(text, name).build()
    if root.kind is not Kind.MAP:
        raise SpecRefused("SPEC_MALFORMED",
                          "empty, expected fields such as 'dataset:', 'model:' and 'recipe:'"
                          if root.kind is Kind.NULL else "expected fields (name: value), found something else", root.at)
    return root


class _Pairs(list[tuple[str, object]]):
    """A JSON object before its keys are known to differ."""


def _parse_json(text: str, name: str) -> Value:
    try:
        # Numbers keep their text only through float and int, which is what they will be.
        parsed = json.loads(text, object_pairs_hook=_Pairs)
    except json.JSONDecodeError as error:
        raise SpecRefused("SPEC_MALFORMED", f"not valid JSON (a text that begins with '{{' is JSON): {error.msg}",
                          f"{name}:{error.lineno}:{error.colno}") from None
    except RecursionError:
        raise SpecRefused("SPEC_TOO_DEEP", f"nested more than {DEPTH_MAX} levels deep", name) from None
    return _Converter(name).convert(parsed, "", 0)


class _Converter:
    """Python values to the tree. `name` is the position that problems get: Python's own values have none."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._values = 0

    def convert(self, value: object, path: str, depth: int) -> Value:
        self._values += 1
        if self._values > VALUES_MAX:
            raise SpecRefused("SPEC_TOO_LARGE", f"more than {VALUES_MAX} values", self._name)
        if depth > DEPTH_MAX:
            raise SpecRefused("SPEC_TOO_DEEP", f"nested more than {DEPTH_MAX} levels deep", self._name, path)
        at = self._name
        if isinstance(value, (_Pairs, Mapping)):
            out = Value(Kind.MAP, at)
            for key, item in value if isinstance(value, _Pairs) else value.items():
                if not isinstance(key, str):
                    raise SpecRefused("FIELD_TYPE", f"the key {key!r} is no text", at, path)
                child = f"{path}.{key}" if path else key
                if key in out.entries:
                    raise SpecRefused("FIELD_DUPLICATE", "given twice", at, child)
                out.entries[key] = Entry(at, self.convert(item, child, depth + 1))
            return out
        if value is None:
            return Value(Kind.NULL, at)
        if isinstance(value, str):
            return Value(Kind.SCALAR, at, value, quoted=True)
        if isinstance(value, os.PathLike):
            return Value(Kind.SCALAR, at, os.fspath(value), quoted=True)
        if isinstance(value, bool):
            return Value(Kind.SCALAR, at, "true" if value else "false")
        if isinstance(value, int):
            return Value(Kind.SCALAR, at, str(value))
        if isinstance(value, float):
            return Value(Kind.SCALAR, at, repr(float(value)) if math.isfinite(value) else str(float(value)))
        if isinstance(value, (list, tuple)):
            return Value(Kind.SEQUENCE, at,
                         items=[self.convert(v, f"{path}[{i}]", depth + 1) for i, v in enumerate(value)])
        tolist = getattr(value, "tolist", None)  # NumPy's scalars and small arrays
        if callable(tolist):
            return self.convert(tolist(), path, depth)
        raise SpecRefused("FIELD_TYPE", f"a value of type {type(value).__name__}, expected text, a number, True or "
                          "False, None, a list or a dict", at, path)


@dataclass
class _Open:
    value: Value
    path: str
    key: str | None = None
    key_at: str = ""


class _YamlBuilder:
    """PyYAML's events to the tree: a stack of open containers, no recursion."""

    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._name = name
        self._stack: list[_Open] = []
        self._root: Value | None = None
        self._documents = 0
        self._values = 0

    def build(self) -> Value:
        try:
            for event in self._events():
                self._take(event)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            raise SpecRefused("SPEC_MALFORMED", f"not valid YAML: {error.problem or error.context}",
                              self._at(mark) if mark else self._name) from None
        except yaml.YAMLError as error:
            raise SpecRefused("SPEC_MALFORMED", "not valid YAML: " + str(error).splitlines()[0], self._name) from None
        return self._root or Value(Kind.NULL, f"{self._name}:1:1")

    def _events(self) -> Iterator[Any]:
        return iter(yaml.parse(self._text, Loader=yaml.SafeLoader))

    def _at(self, mark: Any) -> str:
        return f"{self._name}:{mark.line + 1}:{mark.column + 1}"

    def _next_path(self) -> str:
        if not self._stack:
            return ""
        top = self._stack[-1]
        if top.value.kind is Kind.SEQUENCE:
            return f"{top.path}[{len(top.value.items)}]"
        return ".".join(part for part in (top.path, top.key) if part)

    def _awaits_key(self) -> bool:
        return bool(self._stack) and self._stack[-1].value.kind is Kind.MAP and self._stack[-1].key is None

    def _take(self, event: Any) -> None:
        at = self._at(event.start_mark)

        def stop(reason: str, description: str) -> SpecRefused:
            return SpecRefused(reason, description, at, self._next_path())

        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise SpecRefused("SPEC_MALFORMED", "a second document; one file holds one spec", at)
        elif isinstance(event, yaml.AliasEvent):
            raise stop("SPEC_ALIAS", "aliases (*name) are not supported, write the value out")
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._add(self._stack.pop().value)
        elif isinstance(event, yaml.NodeEvent):
            if event.anchor is not None:
                raise stop("SPEC_ALIAS", "anchors (&name) are not supported")
            tag = getattr(event, "tag", None)
            if tag not in (None, "!"):
                raise stop("SPEC_TAG", f"tags are not supported, found '{tag}'")
            self._values += 1
            if self._values > VALUES_MAX:
                raise stop("SPEC_TOO_LARGE", f"more than {VALUES_MAX} values")
            if isinstance(event, yaml.ScalarEvent):
                self._scalar(event, at)
                return
            if self._awaits_key():
                raise stop("SPEC_MALFORMED", "a key must be plain text")
            if len(self._stack) >= DEPTH_MAX:
                raise stop("SPEC_TOO_DEEP", f"nested more than {DEPTH_MAX} levels deep")
            kind = Kind.MAP if isinstance(event, yaml.MappingStartEvent) else Kind.SEQUENCE
            self._stack.append(_Open(Value(kind, at), self._next_path()))

    def _scalar(self, event: Any, at: str) -> None:
        text, quoted = str(event.value), event.style is not None
        if self._awaits_key():
            top = self._stack[-1]
            if text in top.value.entries:
                first = top.value.entries[text].key_at
                raise SpecRefused("FIELD_DUPLICATE", f"given twice, first at {first}", at,
                                  f"{top.path}.{text}" if top.path else text)
            top.key, top.key_at = text, at
        elif not quoted and text in ("", "~", "null", "Null", "NULL"):
            self._add(Value(Kind.NULL, at))
        else:
            self._add(Value(Kind.SCALAR, at, text, quoted))

    def _add(self, value: Value) -> None:
        if not self._stack:
            self._root = value
            return
        top = self._stack[-1]
        if top.value.kind is Kind.SEQUENCE:
            top.value.items.append(value)
        elif top.key is not None:
            top.value.entries[top.key] = Entry(top.key_at, value)
            top.key = None
