#!/usr/bin/env python3
"""Writes gguf.json: small GGUF files with a tensor of each type, and the numbers that the package gguf
says it has (tests/pretrained/gguf_file_test.cc). The first file also has a setting of each type.

Needs gguf:
    python3 tests/golden/make_gguf_golden.py

The bytes of the blocks are drawn at random; their scales are numbers of F16, small, large, subnormal
and negative ones among them.
"""

import base64
import json
import pathlib
import tempfile

import gguf
import numpy as np

FOLDER = pathlib.Path(__file__).parent
TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]
# Where in a block the scales and offsets of 16 bits are.
HALVES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2],
          "Q6_K": [208]}
SCALES = np.array([0.0123, -1.5, 6e-8, -65504, 3.1e-5, -0.0, 0.25, 1234], np.float16)
ROWS = 3


def encoded(data):
    return base64.b64encode(data).decode()


def blocks(draw, name):
    """Returns ROWS rows of bytes of the type."""
    kind = gguf.GGMLQuantizationType[name]
    numbers, size = gguf.GGML_QUANT_SIZES[kind]
    count = max(1, 64 // numbers)
    if name not in HALVES:
        values = draw.normal(size=(ROWS, count)).astype(np.float32)
        values[0, :3] = [0, -0.0, 1.5e-7]
        return gguf.quants.quantize(values, kind).view(np.uint8).reshape(ROWS, -1)
    raw = draw.integers(0, 256, size=(ROWS * count, size), dtype=np.uint8)
    for offset in HALVES[name]:
        chosen = draw.choice(SCALES, size=ROWS * count)
        raw[:, offset:offset + 2] = chosen.view(np.uint8).reshape(-1, 2)
    return raw.reshape(ROWS, count * size)


def add_settings(writer):
    writer.add_uint8("test.u8", 200)
    writer.add_int8("test.i8", -100)
    writer.add_uint16("test.u16", 60000)
    writer.add_int16("test.i16", -30000)
    writer.add_uint32("test.u32", 4000000000)
    writer.add_int32("test.i32", -2000000000)
    writer.add_uint64("test.u64", 2**63 + 5)
    writer.add_int64("test.i64", -2**62)
    writer.add_float32("test.f32", 1e-5)
    writer.add_float64("test.f64", 1e-300)
    writer.add_bool("test.yes", True)
    writer.add_string("test.text", "blank \u2581 mark")
    writer.add_array("test.texts", ["a", "bc"])
    writer.add_array("test.numbers", [3, -1, 7])
    writer.add_array("test.reals", [0.5, -2.0])


def file_of(name, raw):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "one.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        if name == TYPES[0]:
            add_settings(writer)
        writer.add_tensor("first", np.arange(5, dtype=np.float32))
        if name in HALVES or name == "BF16":
            writer.add_tensor("t", raw, raw_dtype=gguf.GGMLQuantizationType[name])
        else:
            writer.add_tensor("t", raw.view(np.float32 if name == "F32" else np.float16))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path.read_bytes()


def main():
    draw = np.random.default_rng(5)
    golden = {}
    for name in TYPES:
        raw = blocks(draw, name)
        kind = gguf.GGMLQuantizationType[name]
        typed = raw if name not in ("F32", "F16") else raw.view(np.float32 if name == "F32" else np.float16)
        numbers = gguf.quants.dequantize(typed, kind)
        assert numbers.dtype == np.float32 and np.isfinite(numbers).all(), name
        golden[name] = {"shape": list(numbers.shape), "file": encoded(file_of(name, raw)),
                        "numbers": encoded(numbers.astype("<f4").tobytes())}
    (FOLDER / "gguf.json").write_text(json.dumps(golden, indent=1) + "\n")


main()
