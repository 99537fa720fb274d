"""Converts a message to the spec from which the server reads this message, like `trainyard get -o yaml`
(proto/spec/writer.cc)."""

from __future__ import annotations

from typing import Any, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Value

from trainyard import v1

# Descriptors of messages, fields and enums. Their types have different names in different versions of protobuf.
Descriptor: TypeAlias = Any


def write_message(message: Message) -> dict[str, Any]:
    """Returns the fields that are set; names of enum values are in lower case."""
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


def _is_repeated(field: Descriptor) -> bool:
    # `label` is deprecated in new versions of protobuf, and `is_repeated` is missing in old ones.
    repeated = getattr(field, "is_repeated", None)
    return bool(repeated if repeated is not None else field.label == FieldDescriptor.LABEL_REPEATED)


def _is_map(field: Descriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _written(field: Descriptor, value: Any) -> Any:
    if field.message_type is not None:
        return _written_any(value) if field.message_type.full_name == Value.DESCRIPTOR.full_name else write_message(value)
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return field.enum_type.values_by_number[value].name.lower()
    word: str = field.GetOptions().Extensions[v1.word_for_zero]
    return word if value == 0 and word else value


def _written_any(value: Any) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "list_value":
        return [_written_any(item) for item in value.list_value.values]
    if kind == "struct_value":
        return {name: _written_any(item) for name, item in value.struct_value.fields.items()}
    return getattr(value, kind)
