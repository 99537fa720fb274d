#!/usr/bin/env python3
"""Writes onnx_nodes.safetensors: the ONNX node tests, for tests/onnx/import_node_test.cc.

    pip install 'onnx==1.22.*' onnxruntime && tests/golden/make_onnx_node_golden.py

The file has every node test of the onnx package whose operations are all in the importer's table in
docs/onnx.md, each as a model with one input:

    <test>/model        the bytes of the ONNX file (U8)
    <test>/input        the input (F32; tokens as I32)
    <test>/output/<i>   the expected outputs (F32)

A layer list has one input. The tests pass weights and second operands as inputs too; here they are
initializers of the file. If a test names a newer version of an operation than opset 22, the file
says 22 if the node is valid there. Tests in other types than single precision, and tests larger
than a few KiB, are omitted.

The node tests do not cover the operations' older versions. The cases of OLD cover them, with
results computed by onnxruntime.
"""

import hashlib
import json
import pathlib
import re
import struct
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.loader import load_model_tests

HERE = pathlib.Path(__file__).resolve().parent
OPSET = 22
INPUT_BYTES_MAX, OUTPUT_BYTES_MAX, EXPANDED_BYTES_MAX = 1 << 14, 1 << 14, 1 << 13


def claimed():
    """Returns the names of the operations in the importer's table."""
    text = (HERE.parent.parent / "docs" / "onnx.md").read_text()
    table = text[text.index("| ONNX | becomes |"):]
    return set(re.findall(r"^\| (\w+) \|", table.split("\n\n")[0], re.M)) - {"ONNX"}


def load(path, value):
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return numpy_helper.to_array(tensor)


def is_number(array):
    return array.dtype == np.float32


def with_opset(model):
    """Converts the model to opset 22 if it is newer. Returns None if it is not valid there."""
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx") and entry.version > OPSET:
            entry.version = OPSET
    model.ir_version = min(model.ir_version, 10)
    try:
        onnx.checker.check_model(model)
    except Exception:
        return None
    return model


def one_input(model, arrays):
    """Turns all inputs but the first one of numbers or tokens into initializers. Returns the array
    of that input."""
    graph = model.graph
    data = None
    kept = []
    # If the indices of a Gather or the condition of a Where are given, the data is the model's
    # input.
    order = list(zip(graph.input, arrays))
    first = next((i for i, (_, a) in enumerate(order) if a is not None and is_number(a)), None)
    if first is None:
        return None
    for i, (value, array) in enumerate(order):
        if array is None:
            return None
        if i == first:
            data = array
            kept.append(value)
            continue
        graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), value.name))
    del graph.input[:]
    graph.input.extend(kept)
    return data


def node_tests(ops):
    for case in load_model_tests(kind="node"):
        folder = pathlib.Path(case.model_dir)
        model = onnx.load(folder / "model.onnx")
        if not all(n.op_type in ops and n.domain in ("", "ai.onnx") for n in model.graph.node):
            continue
        data = folder / "test_data_set_0"
        try:
            inputs = [load(data / f"input_{i}.pb", v) for i, v in enumerate(model.graph.input)]
            outputs = [load(data / f"output_{i}.pb", v) for i, v in enumerate(model.graph.output)]
        except Exception:  # sequences, optionals or strings
            continue
        if not all(is_number(o) and o.nbytes <= OUTPUT_BYTES_MAX for o in outputs):
            continue
        if any(i.nbytes > INPUT_BYTES_MAX for i in inputs):
            continue
        for node in model.graph.node:
            if node.op_type in ("LSTM", "GRU") and not any(a.name == "layout" and a.i for a in
                                                           node.attribute):
                # Dimension 1 is the batch.
                model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "N"
        x = one_input(model, inputs)
        if x is None or with_opset(model) is None:
            continue
        is_function = "_expanded" in case.name  # the operation written out in basic operations
        if is_function and len(model.SerializeToString()) > EXPANDED_BYTES_MAX:
            continue
        yield case.name.removeprefix("test_"), model, x, outputs


def old(name, opset, op, inputs, outputs=1, **attributes):
    return name, opset, op, inputs, outputs, attributes


def random(*shape):
    seed = int.from_bytes(hashlib.sha256(repr(shape).encode()).digest()[:4], "little")
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


X = random(2, 3, 4, 5)
OLD = [
    old("old_softmax_11_flattens", 11, "Softmax", [X], axis=2),
    old("old_softmax_7_default", 7, "Softmax", [X]),
    old("old_log_softmax_12", 12, "LogSoftmax", [X], axis=3),
    old("old_squeeze_11", 11, "Squeeze", [random(2, 1, 4, 1)], axes=[1, 3]),
    old("old_unsqueeze_12", 12, "Unsqueeze", [random(2, 3)], axes=[1, 3]),
    old("old_split_12", 12, "Split", [random(2, 6)], outputs=2, axis=1, split=[2, 4]),
    old("old_split_2_equal", 7, "Split", [random(2, 6)], outputs=3, axis=1),
    old("old_split_18_uneven", 18, "Split", [random(2, 7)], outputs=3, axis=1, num_outputs=3),
    old("old_slice_9", 9, "Slice", [X], starts=[1, -3], ends=[3, 100], axes=[1, 3]),
    old("old_clip_7", 7, "Clip", [X], min=-0.5, max=0.75),
    old("old_clip_11_min_alone", 11, "Clip", [X, np.float32(-0.25)]),
    old("old_pad_10", 10, "Pad", [X], mode="constant", pads=[0, 0, 1, 2, 0, 0, 3, 0], value=1.5),
    old("old_pad_2_reflect", 7, "Pad", [X], mode="reflect", pads=[0, 0, 1, 2, 0, 0, 2, 1]),
    old("old_pad_13_edge", 13, "Pad", [X, ints(0, 0, 1, 2, 0, 0, 2, 1)], mode="edge"),
    old("old_reduce_sum_11", 11, "ReduceSum", [X], axes=[1, 2], keepdims=0),
    old("old_reduce_sum_13", 13, "ReduceSum", [X, ints(-1)], keepdims=1),
    old("old_reduce_mean_17", 17, "ReduceMean", [X], axes=[2, 3], keepdims=1),
    old("old_reduce_max_12", 12, "ReduceMax", [X], axes=[-1], keepdims=0),
    old("old_reduce_l2_13", 13, "ReduceL2", [X], axes=[1], keepdims=0),
    old("old_upsample_7", 7, "Upsample", [X], scales=[1.0, 1.0, 2.0, 3.0], mode="nearest"),
    old("old_upsample_9_linear", 9, "Upsample", [X, np.array([1, 1, 2, 2], np.float32)],
        mode="linear"),
    old("old_resize_10", 10, "Resize", [X, np.array([1, 1, 2, 2], np.float32)], mode="nearest"),
    old("old_resize_11_half_pixel", 11, "Resize",
        [X, np.array([], np.float32), np.array([1, 1, 2, 2], np.float32)], mode="linear"),
    old("old_batch_normalization_7", 7, "BatchNormalization",
        [X, random(3), random(1, 3)[0], random(3, 1)[:, 0], abs(random(3)) + 0.5], epsilon=1e-3),
    old("old_batch_normalization_14", 14, "BatchNormalization",
        [random(2, 3), random(3), random(1, 3)[0], random(3, 1)[:, 0], abs(random(3)) + 0.5]),
    old("old_dropout_10", 10, "Dropout", [X], ratio=0.4),
    old("old_dropout_12", 12, "Dropout", [X, np.float32(0.4)]),
    old("old_gemm_7_needs_bias", 7, "Gemm", [random(2, 3), random(4, 3), random(4)], alpha=0.5,
        beta=2.0, transB=1),
    old("old_max_pool_8", 8, "MaxPool", [X], kernel_shape=[2, 2], auto_pad="SAME_UPPER",
        strides=[2, 2]),
    old("old_average_pool_7", 7, "AveragePool", [X], kernel_shape=[3, 3], pads=[1, 1, 1, 1],
        count_include_pad=1),
    old("old_conv_1d", 11, "Conv", [random(2, 3, 9), random(4, 3, 3), random(4)], pads=[1, 1],
        strides=[2]),
    old("old_conv_same_lower", 7, "Conv", [X, random(4, 3, 2, 2)], auto_pad="SAME_LOWER",
        kernel_shape=[2, 2]),
    old("old_conv_transpose_7", 7, "ConvTranspose", [X, random(3, 2, 3, 3), random(2)],
        strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]),
    old("old_flatten_7", 7, "Flatten", [X]),
    old("old_reshape_7", 7, "Reshape", [X, ints(0, -1, 2)]),
    old("old_p_relu_7", 7, "PRelu", [X, random(3, 1, 1)]),
    old("old_expand_8", 8, "Expand", [random(2, 1, 3), ints(2, 4, 3)]),
    old("old_concat_4", 7, "Concat", [X, random(1, 3, 4, 5)[:1].repeat(2, 0)], axis=3),
    old("old_max_8", 8, "Max", [X, random(5), random(4, 1)]),
    old("old_lstm_7_bidirectional", 7, "LSTM",
        [random(4, 2, 3), random(2, 20, 3), random(2, 20, 5), random(2, 40)], outputs=2,
        hidden_size=5, direction="bidirectional"),
    old("old_lstm_14_reverse", 14, "LSTM", [random(4, 2, 3), random(1, 20, 3), random(1, 20, 5)],
        outputs=2, hidden_size=5, direction="reverse"),
    old("old_gru_7", 7, "GRU",
        [random(4, 2, 3), random(1, 15, 3), random(1, 15, 5), random(1, 30)], outputs=2,
        hidden_size=5, linear_before_reset=1),
    old("old_gru_22_bidirectional", 22, "GRU",
        [random(4, 2, 3), random(2, 15, 3), random(2, 15, 5), random(2, 30)], outputs=2,
        hidden_size=5, linear_before_reset=1, direction="bidirectional"),
    old("old_group_normalization_18", 18, "GroupNormalization",
        [random(2, 4, 3, 3), random(2), random(1, 2)[0]], num_groups=2),
]


def old_tests():
    import onnxruntime

    for name, opset, op, inputs, outputs, attributes in OLD:
        values = [helper.make_tensor_value_info(
            "x", TensorProto.FLOAT,
            # The batch of a sequence is dimension 1.
            [d if op not in ("LSTM", "GRU") or i != 1 else "N"
             for i, d in enumerate(np.shape(inputs[0]))])]
        names = ["x"] + [f"c{i}" for i in range(1, len(inputs))]
        node = helper.make_node(op, names, [f"y{i}" for i in range(outputs)], **attributes)
        graph = helper.make_graph(
            [node], name, values,
            [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, None)
             for i in range(outputs)],
            [numpy_helper.from_array(np.asarray(a), n) for a, n in zip(inputs[1:], names[1:])])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)],
                                  ir_version=8)
        session = onnxruntime.InferenceSession(model.SerializeToString())
        yield name, model, inputs[0], session.run(None, {"x": inputs[0]})


def write(path, tensors):
    kinds = {"float32": "F32", "int32": "I32", "uint8": "U8"}
    header, offset, chunks = {}, 0, []
    for name, array in tensors.items():
        data = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": kinds[array.dtype.name], "shape": list(array.shape),
                        "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
        chunks.append(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(chunks))


def main():
    ops = claimed()
    tensors = {}
    count = 0
    for name, model, x, outputs in [*node_tests(ops), *old_tests()]:
        model.producer_name = ""
        bytes_ = model.SerializeToString()
        tensors[f"{name}/model"] = np.frombuffer(bytes_, np.uint8)
        tensors[f"{name}/input"] = np.asarray(x).astype(np.float32)
        for i, y in enumerate(outputs):
            tensors[f"{name}/output/{i}"] = np.asarray(y).astype(np.float32)
        count += 1
    path = HERE / "onnx_nodes.safetensors"
    write(path, tensors)
    print(f"{count} tests, {path.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
