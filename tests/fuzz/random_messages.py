"""Makes random Protobuf messages from their description alone: right, nearly right and absurd ones."""

import random

from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor

DEPTH_MAX = 7
NUMBERS = (0, 1, -1, 2, 3, 7, 63, 64, 255, 256, 1000, 65535, 1 << 20, (1 << 31) - 1, -(1 << 31), 1 << 40, (1 << 63) - 1, -(1 << 63))
REALS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 1e300, 5e-324, float("inf"), float("-inf"), float("nan"), 0.1, 2.0**53)
TEXTS = ("", " ", "a", "A", "-", "..", "../../etc/passwd", "a" * 63, "a" * 64, "x" * 5000, "\u202e\u0000", "\x1b[2J", "''; DROP TABLE jobs; --",
         "projects/-", "projects/default", "projects//jobs/a", "%s%n", "\U0001f600", "0" * 64, "nan", "1e999")

_INTEGERS = {
    FieldDescriptor.TYPE_INT32: (-(1 << 31), (1 << 31) - 1), FieldDescriptor.TYPE_SINT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_SFIXED32: (-(1 << 31), (1 << 31) - 1), FieldDescriptor.TYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.TYPE_FIXED32: (0, (1 << 32) - 1), FieldDescriptor.TYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_SINT64: (-(1 << 63), (1 << 63) - 1), FieldDescriptor.TYPE_SFIXED64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_UINT64: (0, (1 << 64) - 1), FieldDescriptor.TYPE_FIXED64: (0, (1 << 64) - 1),
}


class RandomMessages:
    """The same seed and the same calls give the same messages.

    words   texts that mean something to the server, such as names of jobs that exist
    """

    def __init__(self, seed, words=()):
        self.random = random.Random(seed)
        self.words = list(words)

    def message(self, descriptor, depth=0):
        """Returns a message in which each field is set with a probability that falls with the depth."""
        message = message_factory.GetMessageClass(descriptor)()
        likely = 0.7 / (1 + 0.6 * depth)
        for field in descriptor.fields:
            if self.random.random() < likely:
                self._set(message, field, depth)
        return message

    def bytes_of(self, descriptor):
        """Returns a message's bytes, one time in eight damaged: cut, with a changed byte, or with a field nobody knows."""
        data = self.message(descriptor).SerializeToString()
        if self.random.random() < 0.125:
            at = self.random.randrange(len(data) + 1)
            damage = self.random.randrange(3)
            if damage == 0:
                data = data[:at]
            elif damage == 1 and data:
                at = min(at, len(data) - 1)
                data = data[:at] + bytes([self.random.randrange(256)]) + data[at + 1:]
            else:
                data += b"\xfa\xff\x07\x03abc"  # field 16383, three bytes
        return data

    def _set(self, message, field, depth):
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        repeated = field.is_repeated
        if field.message_type is not None:
            if depth >= DEPTH_MAX:
                return
            if is_map:
                entry = self.message(field.message_type, depth + 1)
                values = field.message_type.fields_by_name["value"]
                if values.message_type is None:
                    getattr(message, field.name)[entry.key] = entry.value
                else:
                    getattr(message, field.name)[entry.key].CopyFrom(entry.value)
            elif repeated:
                for _ in range(self._count()):
                    getattr(message, field.name).add().CopyFrom(self.message(field.message_type, depth + 1))
            else:
                getattr(message, field.name).CopyFrom(self.message(field.message_type, depth + 1))
        elif repeated:
            getattr(message, field.name).extend(self._scalar(field) for _ in range(self._count()))
        else:
            setattr(message, field.name, self._scalar(field))

    def _count(self):
        return self.random.choice((0, 1, 1, 2, 3, 40))

    def _scalar(self, field):
        if field.type in _INTEGERS:
            low, high = _INTEGERS[field.type]
            return min(high, max(low, self.random.choice(NUMBERS)))
        if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
            value = self.random.choice(REALS)
            return value if field.type == FieldDescriptor.TYPE_DOUBLE or value in (0, float("inf"), float("-inf")) or value != value \
                else max(-3e38, min(3e38, value))
        if field.type == FieldDescriptor.TYPE_BOOL:
            return self.random.random() < 0.5
        if field.type == FieldDescriptor.TYPE_ENUM:
            return self.random.choice([*field.enum_type.values_by_number, 99, -1])
        if field.type == FieldDescriptor.TYPE_BYTES:
            return self.random.choice((b"", b"\0", b"1,2,3\n", self.random.randbytes(100), b"\x89PNG\r\n\x1a\n" + self.random.randbytes(40)))
        known = self.words and self.random.random() < 0.6
        return self.random.choice(self.words if known else TEXTS)
