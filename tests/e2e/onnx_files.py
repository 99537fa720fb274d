"""Creates small ONNX files without the package onnx."""

import json


def varint(number):
    return bytes([number]) if number < 128 else bytes([number % 128 + 128]) + varint(number // 128)


def proto(*fields):
    """Encodes a Protobuf message from (number, value) pairs; values are integers, text or bytes."""
    out = b""
    for number, value in fields:
        value = value.encode() if isinstance(value, str) else value
        out += varint(number << 3) + varint(value) if isinstance(value, int) \
            else varint(number << 3 | 2) + varint(len(value)) + value
    return out


def tiny_file(*operations):
    """Returns an ONNX file with a chain of nodes on an input [N, 4]."""
    def tensor(name):
        sizes = proto((1, proto((2, "N"))), (1, proto((1, 4))))
        return proto((1, name), (2, proto((1, proto((1, 1), (2, sizes))))))

    nodes = [(1, proto((1, f"v{i}"), (2, f"v{i + 1}"), (3, f"node{i}"), (4, op))) for i, op in enumerate(operations)]
    graph = proto(*nodes, (2, "g"), (11, tensor("v0")), (12, tensor(f"v{len(nodes)}")))
    return proto((1, 8), (7, graph), (8, proto((2, 17))))


def with_trained_parameters(content, names):
    """Returns the file's bytes with metadata that says that only these initializers are trained (docs/onnx.md).
    Repeated fields may be anywhere in a message, so they are appended."""
    return content + proto((14, proto((1, "trainyard.trained_parameters"), (2, json.dumps(names)))))
