"""YAML, JSON and Python values as one tree of scalars, lists and maps that remembers where each was written.

The rules of docs/job_spec.md, "How a spec is read": numbers as in JSON, no anchors, aliases and tags, no key twice.
Scalars stay text here; `_message.py` knows which type is wanted. PyYAML's and Python's own types would not do:
PyYAML reads `yes` as true and `1e-3` as text. The command line reads the same (client/lib/spec_parse.cc), and
tests/spec_cases.yaml holds both to it.
"""

from __future__ import annotations

import codecs
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NoReturn

import yaml

from trainyard.errors import FieldViolation, InvalidArgumentError, NotFoundError

BYTES_MAX = 1 << 20
DEPTH_MAX = 32
VALUES_MAX = 100_000
PROBLEMS_MAX = 16

# JSON's grammar of numbers: no leading zeros or plus, digits on both sides of the point.
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?", re.ASCII)
# What YAML calls unprintable.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")


def quoted(text: str | bytes) -> str:
    """For a message: in quotes, at most 64 bytes, and those that are not printable ASCII as \\xNN."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    shown = "".join(chr(byte) if 0x20 <= byte < 0x7f else f"\\x{byte:02x}" for byte in data[:64])
    return f"'{shown}{'...' if len(data) > 64 else ''}'"


class Kind(Enum):
    NULL = "nothing"
    SCALAR = "a value"
    SEQUENCE = "a list"
    MAP = "a group of fields"


@dataclass
class Value:
    kind: Kind
    at: str = ""  # "spec.yaml:3:5", or empty if the document was not text
    text: str = ""  # scalar
    quoted: bool = False  # scalar: certainly text
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
    """Stops reading a document at a problem."""

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
        return cls._build(name, lambda tree: _read_python(fields, tree))

    @classmethod
    def _parse_bytes(cls, data: bytes, name: str) -> Document:
        return cls._build(name, lambda tree: _read_text(data, name, tree))

    @classmethod
    def _build(cls, name: str, read: Callable[[_Tree], None]) -> Document:
        tree = _Tree()
        try:
            read(tree)
        except SpecRefused as refused:
            tree.problems.append(refused.problem)
        if tree.problems:
            raise refusal(tree.problems, name)
        return cls(name, tree.root)

    def locate(self, path: str) -> str:
        """Where the value at `path` was written, or else its nearest ancestor."""
        value, at = self.root, self.root.at
        while path:
            index = re.match(r"\[(\d+)\]", path)
            if index is not None:
                if int(index[1]) >= len(value.items):
                    break
                value = value.items[int(index[1])]
                at = value.at
                path = path[index.end():]
                continue
            path = path.removeprefix(".")
            # A key may have dots and brackets of its own: those of an array are paths.
            keys = [key for key in value.entries if path.startswith(key) and path[len(key):len(key) + 1] in ("", ".", "[")]
            if not keys:
                break
            key = max(keys, key=len)
            entry = value.entries[key]
            value = entry.value
            at = value.at if value.kind is Kind.SCALAR else entry.key_at
            path = path[len(key):]
        return at


@dataclass
class _Open:
    value: Value
    path: str
    key: str | None = None  # of the entry that waits for its value
    key_at: str = ""
    repeated: bool = False  # that key was there before


class _Tree:
    """Puts the tree together from what the readers of YAML, JSON and Python values come across in turn, and holds its
    limits. A stack of open containers."""

    def __init__(self) -> None:
        self.root = Value(Kind.NULL)
        self.problems: list[Problem] = []
        self._stack: list[_Open] = []
        self._values = 0

    def next_path(self) -> str:
        """Of the value that comes next."""
        if not self._stack:
            return ""
        top = self._stack[-1]
        if top.value.kind is Kind.SEQUENCE:
            return f"{top.path}[{len(top.value.items)}]"
        return ".".join(part for part in (top.path, top.key) if part)

    def stop(self, at: str, reason: str, description: str) -> NoReturn:
        raise SpecRefused(reason, description, at, self.next_path())

    def open(self, kind: Kind, at: str) -> None:
        self._count(at, may_be_key=False)
        if len(self._stack) >= DEPTH_MAX:
            self.stop(at, "SPEC_TOO_DEEP", f"nested more than {DEPTH_MAX} levels deep")
        self._stack.append(_Open(Value(kind, at), self.next_path()))

    def close(self) -> None:
        self._add(self._stack.pop().value)

    def null(self, at: str) -> None:
        """Nothing stands where its key stands, or its list."""
        self._count(at, may_be_key=False)
        if self._stack:
            top = self._stack[-1]
            at = top.value.at if top.value.kind is Kind.SEQUENCE else top.key_at
        self._add(Value(Kind.NULL, at))

    def scalar(self, at: str, text: str, quoted: bool) -> None:
        """A value, or a map's next key."""
        self._count(at, may_be_key=True)
        if self._awaits_key():
            self._start_entry(at, text)
        else:
            self._add(Value(Kind.SCALAR, at, text, quoted))

    def _awaits_key(self) -> bool:
        return bool(self._stack) and self._stack[-1].value.kind is Kind.MAP and self._stack[-1].key is None

    def _count(self, at: str, may_be_key: bool) -> None:
        self._values += 1
        if self._values > VALUES_MAX:
            self.stop(at, "SPEC_TOO_LARGE", f"more than {VALUES_MAX} values")
        if not may_be_key and self._awaits_key():
            self.stop(at, "SPEC_MALFORMED", "a key must be plain text")

    def _start_entry(self, at: str, key: str) -> None:
        top = self._stack[-1]
        top.key, top.key_at = key, at
        first = top.value.entries.get(key)
        top.repeated = first is not None
        if first is not None and len(self.problems) < PROBLEMS_MAX:
            line = first.key_at.rsplit(":", 2)[-2]
            # Between braces the commas of `(1, 1, 1)` end values, and its numbers become keys.
            in_tuple = any(entry.value.text.startswith("(") for entry in top.value.entries.values())
            hint = "; a list has square brackets" if in_tuple else ""
            self.problems.append(Problem("FIELD_DUPLICATE", FieldViolation(
                self.next_path(), f"given twice, first in line {line}{hint}", at)))

    def _add(self, value: Value) -> None:
        if not self._stack:
            self.root = value
            return
        top = self._stack[-1]
        if top.value.kind is Kind.SEQUENCE:
            top.value.items.append(value)
        elif top.key is not None:
            if not top.repeated:
                top.value.entries[top.key] = Entry(top.key_at, value)
            top.key = None


def _read_text(data: bytes, name: str, tree: _Tree) -> None:
    if len(data) > BYTES_MAX:
        raise SpecRefused("SPEC_TOO_LARGE", "larger than 1 MiB, the limit for a spec", name)
    text = _decode(data.removeprefix(codecs.BOM_UTF8), name)
    if text.lstrip(" \t\r\n").startswith("{"):
        _JsonReader(text, name, tree).read()
    else:
        _read_yaml(text, name, tree)
    if not tree.problems and tree.root.kind is Kind.NULL:
        raise SpecRefused("SPEC_MALFORMED", "empty, expected fields (name: value)", f"{name}:1:1")
    if not tree.problems and tree.root.kind is not Kind.MAP:
        raise SpecRefused("SPEC_MALFORMED", "expected fields (name: value), found something else", tree.root.at)


def _decode(data: bytes, name: str) -> str:
    def at(before: str) -> str:
        return f"{name}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"

    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        start = error.start
        raise SpecRefused("SPEC_MALFORMED", f"not UTF-8 text: byte {quoted(data[start:start + 1])}",
                          at(data[:start].decode())) from None
    control = _CONTROL.search(text)
    if control:
        raise SpecRefused("SPEC_MALFORMED", f"the character {quoted(control[0])} is not text", at(text[:control.start()]))
    return text


# By the type's name: pandas need not be there.
_REMEDIES = {
    "DataFrame": "; Client.upload_frame(frame, target) uploads a frame, and {'name': its name} is a spec's `dataset`",
    "Dataset": "; {'name': dataset.name} is a spec's `dataset`",
}


def _read_python(value: object, tree: _Tree) -> None:
    if isinstance(value, Mapping):
        tree.open(Kind.MAP, "")
        for key, item in value.items():
            if not isinstance(key, str):
                tree.stop("", "FIELD_TYPE", f"the key {key!r} is not text")
            tree.scalar("", key, quoted=True)
            _read_python(item, tree)
        tree.close()
    elif isinstance(value, (list, tuple)):
        tree.open(Kind.SEQUENCE, "")
        for item in value:
            _read_python(item, tree)
        tree.close()
    elif value is None:
        tree.null("")
    elif isinstance(value, (str, os.PathLike)):
        tree.scalar("", os.fspath(value), quoted=True)
    elif isinstance(value, bool):
        tree.scalar("", "true" if value else "false", quoted=False)
    elif isinstance(value, int):
        tree.scalar("", str(value), quoted=False)
    elif isinstance(value, float):
        tree.scalar("", repr(float(value)) if math.isfinite(value) else str(float(value)), quoted=False)
    elif callable(tolist := getattr(value, "tolist", None)):  # NumPy's scalars and small arrays
        _read_python(tolist(), tree)
    else:
        remedy = _REMEDIES.get(type(value).__name__, "")
        tree.stop("", "FIELD_TYPE", f"a value of type {type(value).__name__}, expected text, a number, True or False, None, "
                  f"a list or a dict{remedy}")


class _JsonReader:
    """Strict JSON, with the place of each value."""

    _SPACE = re.compile(r"[ \t\r\n]*")
    # A sign, a string with its quotes (which may not be a valid one), or a word.
    _TOKEN = re.compile(r'[{}\[\],:]|"(?:[^"\\]|\\.)*"|"|[^ \t\r\n{}\[\],:"]+', re.DOTALL)

    def __init__(self, text: str, name: str, tree: _Tree) -> None:
        self._text = text
        self._name = name
        self._tree = tree
        self._end = 0  # of the token
        self._line, self._line_begin = 1, 0
        self._at = ""
        self._token = ""
        self._next()

    def read(self) -> None:
        self._value()
        if self._token:
            self._refuse("expected the end")

    def _next(self) -> None:
        space = self._SPACE.match(self._text, self._end)
        assert space is not None
        begin = space.end()
        lines = self._text.count("\n", self._end, begin)
        if lines:
            self._line += lines
            self._line_begin = self._text.rindex("\n", self._end, begin) + 1
        self._at = f"{self._name}:{self._line}:{begin - self._line_begin + 1}"
        token = self._TOKEN.match(self._text, begin)
        self._token = token[0] if token else ""
        self._end = begin + len(self._token)

    def _refuse(self, problem: str) -> NoReturn:
        found = f", found {quoted(self._token) if self._token else 'the end of the text'}"
        raise SpecRefused("SPEC_MALFORMED",
                          f"not valid JSON (a text that begins with '{{' is JSON): {problem}{found}", self._at)

    def _string(self) -> str:
        try:
            text = json.loads(self._token)
            assert isinstance(text, str)
            text.encode()
        except (ValueError, AssertionError):
            self._refuse("expected a string that is closed and has only JSON's escapes")
        return text

    def _value(self) -> None:
        tree, token, at = self._tree, self._token, self._at
        if token in ("{", "["):
            self._container(token == "{")
            return
        if token.startswith('"'):
            tree.scalar(at, self._string(), quoted=True)
        elif token == "null":
            tree.null(at)
        elif token in ("true", "false") or NUMBER.fullmatch(token):
            tree.scalar(at, token, quoted=False)
        else:
            self._refuse("expected a value")
        self._next()

    def _container(self, is_map: bool) -> None:
        end = "}" if is_map else "]"
        self._tree.open(Kind.MAP if is_map else Kind.SEQUENCE, self._at)
        self._next()
        if self._token != end:
            while True:
                if is_map:
                    self._key()
                self._value()
                if self._token != ",":
                    break
                self._next()
        if self._token != end:
            self._refuse(f"expected ',' or '{end}'")
        self._tree.close()
        self._next()

    def _key(self) -> None:
        if not self._token.startswith('"'):
            self._refuse("expected a name in double quotes")
        self._tree.scalar(self._at, self._string(), quoted=True)
        self._next()
        if self._token != ":":
            self._refuse("expected ':'")
        self._next()


def _read_yaml(text: str, name: str, tree: _Tree) -> None:
    def at(mark: Any) -> str:
        return f"{name}:{mark.line + 1}:{mark.column + 1}"

    documents = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    tree.stop(at(event.start_mark), "SPEC_MALFORMED", "a second document; one file holds one spec")
            else:
                _take_yaml(event, at(event.start_mark), tree)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise SpecRefused("SPEC_MALFORMED", f"not valid YAML: {error.problem or error.context}",
                          at(mark) if mark else name) from None
    except yaml.YAMLError as error:
        raise SpecRefused("SPEC_MALFORMED", "not valid YAML: " + str(error).splitlines()[0], name) from None


def _take_yaml(event: Any, at: str, tree: _Tree) -> None:
    """An event of PyYAML's parser."""
    if isinstance(event, yaml.AliasEvent):
        tree.stop(at, "SPEC_ALIAS", "aliases (*name) are not supported; write out the value")
    if isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
        tree.close()
    if not isinstance(event, yaml.NodeEvent):
        return
    if event.anchor is not None:
        tree.stop(at, "SPEC_ALIAS", "anchors (&name) are not supported")
    tag = getattr(event, "tag", None)
    if tag not in (None, "!"):
        tree.stop(at, "SPEC_TAG", f"tags are not supported, found {quoted(tag)}")
    if isinstance(event, yaml.MappingStartEvent):
        tree.open(Kind.MAP, at)
    elif isinstance(event, yaml.SequenceStartEvent):
        tree.open(Kind.SEQUENCE, at)
    elif isinstance(event, yaml.ScalarEvent):
        text, is_text = str(event.value), event.style is not None or tag == "!"
        if not is_text and text in ("", "~", "null", "Null", "NULL"):
            tree.null(at)
        else:
            tree.scalar(at, text, is_text)
