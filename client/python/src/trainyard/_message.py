"""A document's tree to a message, strictly, by the message's own descriptor: every field is understood or refused.

The command line reads by the same rules (client/lib/spec_message.cc). What names and types leave open, the options of
fields say (proto/trainyard/v1/spec_options.proto). tests/spec_cases.yaml holds both readers to the same answers.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Value as AnyValue

from trainyard import v1
from trainyard._document import NUMBER, Entry, Kind, Problem, Value, quoted
from trainyard.errors import FieldViolation

# Descriptors of messages, fields and enums, whose types are named differently in different versions of
# protobuf.
Descriptor: TypeAlias = Any

_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)
_DIGITS = re.compile(r"[0-9]+", re.ASCII)
_THOUSANDS = re.compile(r"-?[1-9][0-9]{0,2}(,[0-9]{3})+", re.ASCII)
_WHOLE_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}


def joined(names: Sequence[str]) -> str:
    return " or ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


# What other tools call it.
_OTHER_WORDS = (
    ("mse", "mean_squared_error"),
    ("l2", "mean_squared_error"),
    ("mae", "mean_absolute_error"),
    ("l1", "mean_absolute_error"),
    ("smooth_l1", "huber"),
    ("cross_entropy", "softmax_cross_entropy"),
    ("crossentropy", "softmax_cross_entropy"),
    ("categorical_crossentropy", "softmax_cross_entropy"),
    ("sparse_categorical_crossentropy", "softmax_cross_entropy"),
    ("nll", "softmax_cross_entropy"),
    ("bce", "binary_cross_entropy"),
    ("binary_crossentropy", "binary_cross_entropy"),
    ("kl_div", "kl_divergence"),
    ("cuda", "gpu"),
    ("silu", "swish"),
)
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}  # ASCII's alone


def _nearest(word: str, names: Sequence[str]) -> str | None:
    """What the names call what other tools call `word`, or else the name with the smallest edit distance, if it is small
    enough for a typo; capitals count as small letters. The command line has the same rule (nearest_name,
    src/base/text.cc)."""
    word = word.encode("utf-8", "surrogatepass").decode("latin-1").translate(_LOWER)  # a character for each byte
    if len(word) > 64:
        return None
    for other, ours in _OTHER_WORDS:
        if other == word and ours in names:
            return ours
    best, best_distance = None, 2 + len(word) // 3
    for name in names:
        distance = _edit_distance(word, name.translate(_LOWER))
        if distance < best_distance:
            best, best_distance = name, distance
    return best


def _edit_distance(a: str, b: str) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]


def _child(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _enum_numbers(enum: Descriptor) -> dict[str, int]:
    return {value.name.lower(): value.number for value in enum.values if value.number != 0}


def _expected(field: Descriptor) -> str:
    if option(field, v1.word_for_zero):
        return f"a whole number or {option(field, v1.word_for_zero)}"
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return "true or false"
    if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64:
        return "a whole number of at least 0"
    if field.cpp_type in _WHOLE_RANGES:
        return "a whole number"
    if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE:
        return "a number"
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return joined(list(_enum_numbers(field.enum_type)))
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return "text"
    alone = _field_alone(field.message_type)
    if alone is not None and _is_repeated(alone):
        return "fields with values" if _is_map(alone) else "a list of values"
    names: list[str] = [f.name for f in field.message_type.fields[:4]]
    return "fields such as " + joined(names) if names else "nothing after the colon, or {}"


def _shown(value: Value) -> str:
    if value.kind is not Kind.SCALAR:
        return str(value.kind.value)
    return quoted(value.text) + (" (text)" if value.quoted else "")


def _cut(number: str) -> str:
    return number[:64] + ("..." if len(number) > 64 else "")


def _rejoined(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Between braces a comma ends a value: `{learning_rate: 0,01}` has a key `01`, `{hidden: (8, 8)}` a key `8)`. Puts
    such keys back into the value before them, for messages that show what was written."""
    out: dict[str, Entry] = {}
    last: Value | None = None
    for key, entry in entries.items():
        begun = last.text if last is not None and last.kind is Kind.SCALAR and not last.quoted else ""
        is_tuple = begun.startswith("(") and not begun.endswith(")")
        is_number = _WHOLE.fullmatch(begun) or _THOUSANDS.fullmatch(begun)
        if last is not None and entry.value.kind is Kind.NULL and (is_tuple or (_DIGITS.fullmatch(key) and is_number)):
            last.text = begun + (", " if is_tuple else ",") + key
        else:
            last = replace(entry.value)
            out[key] = Entry(entry.key_at, last)
    return out


def _number_expected(text: str) -> str:
    """In place of a text that is no number: "a number with a decimal point: 0.5" for "0,5"."""
    if text.startswith(".") and NUMBER.fullmatch("0" + text):
        return f"a number such as 0{text}"
    if text.lower().lstrip("-.") in ("nan", "inf", "infinity"):
        return "a finite number"
    whole = _without_separators(text)
    point = text.replace(",", ".")
    if text.count(",") != 1 or not NUMBER.fullmatch(point):
        return f"a number{whole}"
    return f"a number{whole}{', or' if whole else ''} with a decimal point: {point}"


def _without_separators(text: str) -> str:
    return f" without separators: {text.replace(',', '')}" if _THOUSANDS.fullmatch(text) else ""


def _whole_number_hint(text: str) -> str:
    """Behind "a whole number": " without separators: 1000" for "1,000"; else empty."""
    leading = " without leading zeros" if re.fullmatch("0[0-9]+", text) else ""
    return _without_separators(text) or leading


def _list_hint(text: str) -> str:
    """"; a list has square brackets: [3, 3]" for "(3, 3)"; else empty."""
    if not text.startswith("("):
        return ""
    whole = re.fullmatch(r"\(([^()]*)\)", text)
    return "; a list has square brackets" + (f": [{whole[1]}]" if whole else "")


def _not_known(text: str, names: Sequence[str]) -> str:
    near = _nearest(text, names)
    return f"{quoted(text)} is not known, expected {joined(names)}" + (f"; did you mean '{near}'?" if near else "")


def option(described: Descriptor, extension: Any) -> Any:
    return described.GetOptions().Extensions[extension]


def _is_repeated(field: Descriptor) -> bool:
    # `label` is deprecated in new versions of protobuf, `is_repeated` is missing in old ones.
    repeated = getattr(field, "is_repeated", None)
    return bool(repeated if repeated is not None else field.label == FieldDescriptor.LABEL_REPEATED)


def _is_map(field: Descriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _is_any(field: Descriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.full_name == AnyValue.DESCRIPTOR.full_name)


def _real_oneof(field: Descriptor) -> Any:
    """The field's oneof, except the synthetic ones of `optional` fields."""
    oneof = field.containing_oneof
    synthetic = oneof is not None and len(oneof.fields) == 1 and oneof.name == "_" + field.name
    return None if synthetic else oneof


def _is_choice(kind: Descriptor) -> bool:
    """Whether a message is nothing but a choice of one field: `loss: huber` says as much as `loss: {huber: {}}`."""
    oneof = _real_oneof(kind.fields[0]) if kind.fields else None
    return oneof is not None and len(oneof.fields) == len(kind.fields)


def _excludes(a: Descriptor, b: Descriptor) -> bool:
    """Whether field `a` cannot be given together with `b`: they are of one oneof, or an option says so."""
    oneof_a, oneof_b = _real_oneof(a), _real_oneof(b)
    if oneof_a is not None and oneof_b is not None and oneof_a.name == oneof_b.name:
        return True
    return any(name == other.name or (oneof is not None and name == oneof.name)
               for field, other, oneof in ((a, b, oneof_b), (b, a, oneof_a)) for name in option(field, v1.excludes))


def _field_alone(kind: Descriptor) -> Any:
    """The field that a message may be written as, if it has such a field."""
    return next((field for field in kind.fields if option(field, v1.alone)), None)


def _stands_alone(value: Value, alone: Any) -> bool:
    """Whether the value is that of the field that its message may be written as."""
    if alone is None:
        return False
    if _is_map(alone):  # `{a: 1}`, unless it is `{values: {a: 1}}`
        by_name = list(value.entries) == [alone.name] and value.entries[alone.name].value.kind is Kind.MAP
        return value.kind is Kind.MAP and not by_name
    return value.kind is Kind.SCALAR or (_is_repeated(alone) and value.kind is Kind.SEQUENCE)


def _json_of(value: Value) -> str:
    """A value of any type as JSON; a number as it is written."""
    if value.kind is Kind.NULL:
        return "null"
    if value.kind is Kind.SEQUENCE:
        return "[" + ", ".join(_json_of(item) for item in value.items) + "]"
    if value.kind is Kind.MAP:
        return "{" + ", ".join(f"{_json_text(key)}: {_json_of(entry.value)}" for key, entry in value.entries.items()) + "}"
    if not value.quoted and (NUMBER.fullmatch(value.text) or value.text in ("true", "false")):
        return value.text
    return _json_text(value.text)


def _json_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _place_of(kind: Descriptor, key: str, path: str, *, in_choices: bool = False) -> str:
    """Where below a message there is a field of this name, or one that others name so; the nearest, else "".
    `in_choices`: also in what the message itself is a choice of, such as models; further down nobody knows which one is
    meant."""
    places = (_place_at(kind, key, path, depth, in_choices) for depth in range(1, 4))
    return next(filter(None, places), "")


def _place_at(kind: Descriptor, key: str, path: str, depth: int, in_choices: bool) -> str:
    for field in kind.fields:
        here = _child(path, field.name)
        if depth == 0:
            if field.name == key or key.translate(_LOWER) in option(field, v1.other_names):
                return here
            continue
        if field.message_type is None or _is_repeated(field) or _is_any(field):
            continue
        if _real_oneof(field) is not None and not in_choices:
            continue
        if field.message_type.full_name == v1.DatasetFile.DESCRIPTOR.full_name:  # a choice, too
            continue
        place = _place_at(field.message_type, key, here, depth - 1, False)
        if place:
            return place
    return ""


class Reader:
    def __init__(self, root: Descriptor, root_path: str = "") -> None:
        """`root`, at `root_path`, is the whole of what is read."""
        self.problems: list[Problem] = []
        self._root = root
        self._root_path = root_path

    def add(self, at: str, reason: str, path: str, description: str) -> None:
        self.problems.append(Problem(reason, FieldViolation(path, description, at)))

    def read_message(self, value: Value, path: str, message: Message) -> None:
        fields: Mapping[str, Descriptor] = message.DESCRIPTOR.fields_by_name
        given: list[Descriptor] = []
        problems = len(self.problems)
        for key, entry in _rejoined(value.entries).items():
            field = fields.get(key)
            if field is None:
                self.add(entry.key_at, "FIELD_UNKNOWN", _child(path, key), self._unknown(message.DESCRIPTOR, path, key))
                continue
            rival = next((other for other in given if _excludes(field, other)), None)
            if rival is not None:
                self.add(entry.key_at, "FIELD_CONFLICT", _child(path, key),
                         f"conflicts with '{rival.name}', expected only one of them")
                continue
            given.append(field)
            self._read_field(entry, _child(path, key), field, message)
        for oneof in message.DESCRIPTOR.oneofs:
            says = option(oneof, v1.one_required)
            # A problem among the fields explains it better.
            if says and message.WhichOneof(oneof.name) is None and len(self.problems) == problems:
                self.add(value.at, "FIELD_REQUIRED", path, says)

    def _unknown(self, kind: Descriptor, path: str, key: str) -> str:
        for field in kind.fields:
            if key.lower() in option(field, v1.other_names):
                return f"unknown field, it is named '{field.name}' here"
        # The right name in another place: below this one, or else anywhere.
        place = _place_of(kind, key, path, in_choices=True)
        if not place and self._root.full_name != v1.DatasetFile.DESCRIPTOR.full_name:
            place = _place_of(self._root, key, self._root_path)
        if place:
            return f"unknown field here, did you mean '{place}'?"
        names = [field.name for field in kind.fields]
        near = _nearest(key, names)
        if near:
            return f"unknown field, did you mean '{near}'?"
        return f"unknown field, expected {joined(names)}" if names else "unknown field, expected none here"

    def _read_field(self, entry: Entry, path: str, field: Descriptor, message: Message) -> None:
        value = entry.value
        if _is_any(field):
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
            self._read_message_value(value, path, field, getattr(message, field.name))

    def _read_message_value(self, value: Value, path: str, field: Descriptor, sub: Message) -> None:
        # `- relu:` and `lenet5:` are complete as they are; an empty `recipe:` was forgotten.
        may_be_empty = _real_oneof(field) is not None or not field.message_type.fields
        alone = _field_alone(field.message_type)
        if value.kind is Kind.SCALAR and _is_choice(field.message_type):
            self._read_choice(value, path, sub)
        elif _stands_alone(value, alone):  # dataset: digits
            problems = len(self.problems)
            self._read_alone(value, path, alone, sub)
            if len(self.problems) == problems:
                sub.SetInParent()
        elif value.kind is not Kind.MAP and not (value.kind is Kind.NULL and may_be_empty):
            self.add(value.at, "FIELD_TYPE", path, f"{_shown(value)}, expected {_expected(field)}")
        else:
            sub.SetInParent()
            self.read_message(value, path, sub)

    def _read_alone(self, value: Value, path: str, alone: Descriptor, message: Message) -> None:
        """The value of the field that stands for the whole message."""
        if _is_map(alone):
            self._read_map(value, path, alone, message)
        elif _is_repeated(alone):
            self._read_repeated(value, path, alone, message)
        else:
            scalar = self._scalar(value, path, alone)
            if scalar is not None:
                setattr(message, alone.name, scalar)

    def _read_choice(self, value: Value, path: str, message: Message) -> None:
        names = [field.name for field in message.DESCRIPTOR.fields]
        if value.text in names:
            getattr(message, value.text).SetInParent()
            return
        self.add(value.at, "FIELD_UNSUPPORTED", path, _not_known(value.text, names))

    def _read_map(self, value: Value, path: str, field: Descriptor, message: Message) -> None:
        if value.kind is not Kind.MAP:
            self.add(value.at, "FIELD_TYPE", path, f"{_shown(value)}, expected names with values")
            return
        target = getattr(message, field.name)
        value_field = field.message_type.fields_by_name["value"]
        for key, entry in value.entries.items():
            if option(field, v1.any_value):
                target[key] = _json_of(entry.value)
            elif value_field.message_type is not None and not _is_any(value_field):
                self._read_message_value(entry.value, _child(path, key), value_field, target[key])
            elif value_field.message_type is not None:
                self._read_any(entry.value, _child(path, key), target[key])
            else:
                text = self._scalar(entry.value, _child(path, key), value_field)
                if text is not None:
                    target[key] = text

    def _read_any(self, value: Value, path: str, out: AnyValue, may_be_named: bool = False) -> None:
        """A value of any type: a number, a boolean, text, a list of these, or several by name. Its reader knows which
        type is right."""
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
        elif not value.quoted and NUMBER.fullmatch(value.text):
            number = self._scalar(value, path, AnyValue.DESCRIPTOR.fields_by_name["number_value"])
            if isinstance(number, float):
                out.number_value = number
        else:
            out.string_value = value.text

    def _read_repeated(self, value: Value, path: str, field: Descriptor, message: Message) -> None:
        target = getattr(message, field.name)
        if option(field, v1.any_value):  # each as JSON
            if value.kind is not Kind.SEQUENCE and value.kind is not Kind.SCALAR:
                self.add(value.at, "FIELD_TYPE", path, f"{_shown(value)}, expected a list of values")
                return
            target.extend(_json_of(item) for item in ([value] if value.kind is Kind.SCALAR else value.items))
            return
        of_messages = field.message_type is not None
        alone = _field_alone(field.message_type) if of_messages else None
        # kernel_shape: 5, after: digits-1
        one = value.kind is Kind.SCALAR and (not of_messages or _stands_alone(value, alone))
        items = [value] if one else value.items
        if value.kind is not Kind.SEQUENCE and items is value.items:
            self.add(value.at, "FIELD_TYPE", path,
                     f"{_shown(value)}, expected a list"
                     + (f" (- item) of {field.name}" if of_messages else f", each item {_expected(field)}"))
            return
        for i, item in enumerate(items):
            item_path = path if item is value else f"{path}[{i}]"
            if not of_messages:
                scalar = self._scalar(item, item_path, field)
                if scalar is not None:
                    target.append(scalar)
                continue
            if _stands_alone(item, alone):  # after: [digits-1]
                problems = len(self.problems)
                self._read_alone(item, item_path, alone, target.add())
                if len(self.problems) > problems:
                    del target[-1]
                continue
            sub = target.add()
            if item.kind is Kind.MAP:
                self.read_message(item, item_path, sub)
            elif item.kind is Kind.SCALAR and item.text in field.message_type.fields_by_name:
                self.add(item.at, "FIELD_TYPE", item_path, f"{_shown(item)} is missing its colon, write '- {item.text}:'")
            else:
                self.add(item.at, "FIELD_TYPE", item_path, f"{_shown(item)}, expected fields (name: value)")

    def _scalar(self, value: Value, path: str, field: Descriptor) -> bool | int | float | str | None:
        """The value in the field's type, or None after reporting what is wrong with it."""
        def refuse(expected: str) -> None:
            tuple_hint = _list_hint(text) if _is_repeated(field) and not value.quoted else ""
            self.add(value.at, "FIELD_TYPE", path, f"{_shown(value)}, expected {expected}{tuple_hint}")

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
            word = option(field, v1.word_for_zero)
            if word and text == word:
                return 0
            if word and not value.quoted and text in ("0", "-0"):
                self.add(value.at, "FIELD_OUT_OF_RANGE", path,
                         f"{text} is out of range, expected a whole number of at least 1 or {word}")
            elif value.quoted or not _WHOLE.fullmatch(text):
                refuse(_expected(field) + ("" if value.quoted else _whole_number_hint(text)))
            elif len(text) > 20 or not low <= int(text) <= high:
                self.add(value.at, "FIELD_OUT_OF_RANGE", path, f"{_cut(text)} is out of range, expected {low}..{high}")
            else:
                return int(text)
        elif kind == FieldDescriptor.CPPTYPE_DOUBLE:
            if value.quoted or not NUMBER.fullmatch(text):
                refuse("a number" if value.quoted else _number_expected(text))
            elif not math.isfinite(float(text)) or (float(text) == 0 and re.search("[1-9]", text.lower().split("e")[0])):
                self.add(value.at, "FIELD_OUT_OF_RANGE", path, f"{_cut(text)} does not fit in a 64-bit number")
            else:
                return float(text)
        elif kind == FieldDescriptor.CPPTYPE_ENUM:
            numbers = _enum_numbers(field.enum_type)
            if text in numbers:
                return numbers[text]
            self.add(value.at, "FIELD_UNSUPPORTED", path, _not_known(text, list(numbers)))
        elif not value.quoted and (NUMBER.fullmatch(text) or text in ("true", "false")):
            refuse(f'text; put it in quotes: "{_cut(text)}"')
        elif option(field, v1.one_character) and len(text.encode("utf-8", "surrogatepass")) > 1:
            self.add(value.at, "FIELD_OUT_OF_RANGE", path,
                     f"{quoted(text)}, expected one character such as {option(field, v1.one_character)}")
        else:
            try:
                text.encode()
            except UnicodeEncodeError:
                refuse("text that UTF-8 can encode")
            else:
                return text
        return None


def required_fields(kind: Descriptor) -> list[tuple[str, str]]:
    """Fields that specs have to give, and the refusal without each."""
    return [(field.name, option(field, v1.required)) for field in kind.fields if option(field, v1.required)]


def write_message(message: Message) -> dict[str, Any]:
    """The fields of a spec that reads as this message: what is not set is left out, names of enums are in lower case.
    `trainyard get -o yaml` writes the same (client/lib/spec_writer.cc)."""
    tree: dict[str, Any] = {}
    fields: list[tuple[Descriptor, Any]] = list(message.ListFields())
    for field, value in fields:
        if _is_map(field):
            inner = field.message_type.fields_by_name["value"]
            tree[field.name] = {key: _written(inner, value[key]) for key in sorted(value)}
        elif _is_repeated(field):
            tree[field.name] = [_written(field, item) for item in value]
        else:
            tree[field.name] = _written(field, value)
    return tree


def _written(field: Descriptor, value: Any) -> Any:
    if _is_any(field):
        return _written_any(value)
    if field.message_type is not None:
        return write_message(value)
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return field.enum_type.values_by_number[value].name.lower()
    if value == 0 and option(field, v1.word_for_zero):
        return option(field, v1.word_for_zero)
    return value


def _written_any(value: Any) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "list_value":
        return [_written_any(item) for item in value.list_value.values]
    if kind == "struct_value":
        return {name: _written_any(item) for name, item in value.struct_value.fields.items()}
    return getattr(value, kind)
