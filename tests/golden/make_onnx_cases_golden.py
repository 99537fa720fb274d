#!/usr/bin/env python3
"""Writes onnx_cases.safetensors: graphs whose constants the import computes, and patterns that it recognizes, for
tests/onnx/import_case_test.cc.

    pip install torch transformers onnx onnxscript onnxruntime && tests/golden/make_onnx_cases_golden.py

    <case>/model       the bytes of the ONNX file (U8)
    <case>/input       [N, ...] F32, or I32 tokens
    <case>/output      onnxruntime's output

Files of transformers' models are written by an ordinary torch.onnx.export.
"""

import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from make_onnx_node_golden import write  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
RANDOM = np.random.default_rng(5)
N = 3  # samples of a file with an open batch
CASES = {}


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def case(name, shape, nodes, opset=20, tokens=0, **constants):
    """Adds a case with the input `x`, whose first size may be "N", and the output `y`. Constants are initializers; those of
    one number, or of whole numbers or booleans, too."""
    batch = N if shape[0] == "N" else shape[0]
    sizes = [batch, *shape[1:]]
    tensors = [numpy_helper.from_array(np.asarray(value), key) for key, value in constants.items()]
    graph = helper.make_graph(nodes, "graph",
                              [helper.make_tensor_value_info("x", TensorProto.INT64 if tokens else TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    x = RANDOM.integers(0, tokens, sizes) if tokens else floats(*sizes)
    add(name, model, x)


def add(name, model, x):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, {session.get_inputs()[0].name: x})[0]
    assert np.isfinite(expected).all(), name
    CASES[f"{name}/model"] = np.frombuffer(model.SerializeToString(), np.uint8)
    CASES[f"{name}/input"] = x.astype(np.int32) if x.dtype == np.int64 else x
    CASES[f"{name}/output"] = expected


def add_values(name, nodes, **constants):
    """Adds a case that adds a computed constant `c`, a boolean or number that broadcasts to [N, 2, 3], to its input."""
    case(name, ["N", 2, 3], [*nodes, node("Cast", "c", "f", to=TensorProto.FLOAT), node("Add", "x f", "y")], **constants)


def fixed_batches():
    weight = floats(64, 64)
    mask = np.where(np.triu(np.ones((1, 1, 4, 4)), 1) > 0, -3e38, 0).astype(np.float32)
    for batch in (1, 2, 3):  # heads, as transformers writes them: view(batch, time, -1, width)
        case(f"reshape_of_batch_{batch}", [batch, 16, 64],
             [node("MatMul", "x w", "q"), node("Reshape", "q s", "r"), node("Softmax", "r", "y", axis=-1)], w=weight,
             s=np.array([batch, 16, -1, 16]))
        case(f"mask_of_batch_{batch}", [batch, 2, 4, 4], [node("Add", "x mask", "a"), node("Softmax", "a", "y", axis=-1)],
             mask=np.repeat(mask, batch, 0))
        case(f"class_token_of_batch_{batch}", [batch, 3, 4],
             [node("Expand", "token s", "t"), node("Concat", "t x", "y", axis=1)], token=floats(1, 1, 4),
             s=np.array([batch, 1, 4]))


def open_batch():
    size = node("Shape", "x", "n", start=0, end=1)
    case("mask_expanded_to_the_batch", ["N", 2, 4, 4],
         [size, node("Concat", "n one t one", "s", axis=0), node("Expand", "keep s", "big"),
          node("Where", "big zero low", "mask"), node("Add", "x mask", "a"), node("Softmax", "a", "y", axis=-1)],
         one=np.array([1]), t=np.array([4]), keep=np.array([1, 1, 1, 0], bool).reshape(1, 1, 4, 1), zero=np.float32(0),
         low=np.float32(-1e9))
    # The numbers of the samples, which transformers' masks use to look up the padding of each.
    case("mask_of_numbered_samples", ["N", 1, 4, 4],
         [size, node("Squeeze", "n", "count"), node("Range", "zero count one", "samples"),
          node("Reshape", "samples column", "b"), node("Concat", "n four", "s", axis=0), node("Expand", "keys s", "table"),
          node("Max", "b rows", "both"), node("Shape", "both", "all"), node("Expand", "b all", "bs"),
          node("Expand", "rows all", "rs"), node("Unsqueeze", "bs last", "bu"), node("Unsqueeze", "rs last", "ru"),
          node("Concat", "bu ru", "pairs", axis=-1), node("CumSum", "table axis", "sums"),
          node("GatherND", "sums pairs", "picked"), node("LessOrEqual", "picked limit", "test"),
          node("Where", "test low none", "mask"), node("Add", "x mask", "a"), node("Softmax", "a", "y", axis=-1)],
         zero=np.int64(0), one=np.int64(1), column=np.array([-1, 1, 1, 1]), four=np.array([4]),
         keys=np.array([[1, 0, 1, 1]]), rows=np.arange(4).reshape(1, 1, 1, 4), last=np.array([-1]), axis=np.int64(1),
         limit=np.int64(1), low=np.float32(-1e9), none=np.float32(0))
    case("states_of_heads_times_batch", ["N", 4],
         [node("Shape", "x", "n", start=0, end=1), node("Mul", "n two", "n2"), node("Concat", "n2 one", "s", axis=0),
          node("Expand", "c s", "e"), node("Concat", "n two one", "s3", axis=0), node("Reshape", "e s3", "r"),
          node("Squeeze", "r last", "q"), node("Concat", "q x", "y", axis=1)],
         two=np.array([2]), one=np.array([1]), c=np.full((1, 1), 0.5, np.float32), last=np.array([-1]))


def selections():
    a = floats(2, 3)
    add_values("gather_elements", [node("GatherElements", "a i", "c", axis=1)], a=a, i=np.array([[2, 0, 0], [1, -1, 2]]))
    add_values("gather_nd", [node("GatherND", "a i", "c")], a=floats(4, 3), i=np.array([[2], [-1]]))
    add_values("scatter_nd", [node("ScatterND", "a i u", "c")], a=a, i=np.array([[0, 1], [1, 2]]), u=floats(2))
    add_values("scatter_elements", [node("ScatterElements", "a i u", "c", axis=1)], a=a, i=np.array([[1], [0]]), u=floats(2, 1))
    add_values("one_hot", [node("OneHot", "i d v", "c")], i=np.array([2, -2]), d=np.int64(3), v=np.array([0.5, 2], np.float32))
    add_values("non_zero", [node("NonZero", "a", "i"), node("Slice", "i b e", "c")], a=np.array([[1, 0, 2], [0, 3, 4]]),
               b=np.array([0, 0]), e=np.array([2, 3]))
    add_values("tile", [node("Tile", "a r", "c")], a=floats(1, 1), r=np.array([2, 3]))
    add_values("split", [node("Split", "a", "b c", axis=0, num_outputs=2)], a=floats(4, 3))
    case("tile_of_input", ["N", 2, 3], [node("Tile", "x r", "y")], r=np.array([1, 2, 3]))
    case("gather_of_input", ["N", 5], [node("Gather", "x i", "y", axis=1)], i=np.array([[3, 0], [1, 1]]))
    case("gather_nd_of_input", ["N", 3, 4], [node("Transpose", "x", "t", perm=[2, 0, 1]), node("GatherND", "t i", "g"),
                                             node("Transpose", "g", "y", perm=[1, 0, 2])], i=np.array([[2], [0]]))
    case("relative_positions", ["N", 4, 4], [node("Gather", "table i", "t"), node("Squeeze", "t last", "b"), node("Add", "x b", "y")],
         table=floats(7, 1), i=np.arange(4)[:, None] - np.arange(4)[None, :] + 3, last=np.array([-1]))
    case("token_types", ["N", 6],
         [node("Shape", "x", "s"), node("Expand", "zero s", "kinds"), node("Gather", "word x", "w"), node("Gather", "kind kinds", "k"),
          node("Add", "w k", "y")], tokens=9, word=floats(9, 4), kind=floats(2, 4), zero=np.zeros((1, 1), np.int64))


def values():
    a, b = np.array([[1, 2, 3], [3, 2, 1]]), np.array([[3, 2, 2], [1, 2, 3]])
    for op in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Mod", "Pow", "Min", "Max"):
        add_values(op.lower(), [node(op, "a b", "c")], a=a, b=b)
    for op in ("And", "Or", "Xor"):
        add_values(op.lower(), [node(op, "a b", "c")], a=a > 1, b=b > 2)
    add_values("not", [node("Not", "a", "c")], a=a > 1)
    add_values("fmod", [node("Mod", "a b", "c", fmod=1)], a=floats(2, 3) * 9, b=np.full((2, 3), 2, np.float32))
    for op in ("Sin", "Cos", "Tan", "Atan", "Round", "Sign", "Erf", "Sigmoid", "Tanh", "Relu"):
        add_values(op.lower(), [node(op, "a", "c")], a=floats(1, 3)[:, :1] + np.array([[0.1, -0.5, 1.7]], np.float32))
    add_values("is_inf", [node("IsInf", "a", "c", detect_negative=0)], a=np.array([[np.inf, -np.inf, 1]], np.float32))
    add_values("is_nan", [node("IsNaN", "a", "c")], a=np.array([[np.nan, 0, 1]], np.float32))
    add_values("cum_sum", [node("CumSum", "a axis", "c", exclusive=1, reverse=1)], a=a, axis=np.int64(1))
    add_values("range", [node("Range", "a b d", "c")], a=np.float32(1), b=np.float32(2.5), d=np.float32(0.5))
    add_values("trilu", [node("Trilu", "a k", "c", upper=0)], a=floats(2, 3), k=np.int64(1))
    add_values("constant_of_shape", [node("ConstantOfShape", "s", "a", value=numpy_helper.from_array(np.array([2]))),
                                     node("Concat", "a b", "c", axis=0)], s=np.array([2]), b=np.array([5]))
    add_values("mat_mul", [node("MatMul", "a b", "c")], a=np.float32(np.arange(6).reshape(1, 2, 3)),
               b=np.float32(np.arange(9).reshape(3, 3)) - 4)
    for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare"):
        add_values(op.lower(), [node("Abs", "a", "p"), node(op, "p axes", "c", keepdims=1)], a=np.float32(b), axes=np.array([1]))
    add_values("sum_of_three", [node("Sum", "a b d", "c")], a=floats(2, 3), b=floats(3), d=floats(2, 1))
    add_values("where", [node("Where", "t a b", "c")], t=a > 1, a=floats(2, 1), b=floats(3))
    case("pads", ["N", 3, 8, 8],
         [node("ConstantOfShape", "two", "zeros", value=numpy_helper.from_array(np.array([0]))),
          node("Concat", "sides zeros", "all", axis=0), node("Reshape", "all pairs", "r"), node("Slice", "r s e axis s", "back"),
          node("Transpose", "back", "t", perm=[1, 0]), node("Reshape", "t list", "p"), node("Pad", "x p", "padded"),
          node("Conv", "padded w", "y")],
         two=np.array([4]), sides=np.array([1, 1, 1, 1]), pairs=np.array([-1, 2]), s=np.array([-1]),
         e=np.array([-9223372036854775807]), axis=np.array([0]), list=np.array([-1]), w=floats(4, 3, 3, 3))
    case("weight_of_equal_numbers", [1, 3, 8, 8],
         [node("ConstantOfShape", "s", "w", value=numpy_helper.from_array(np.array([0.5], np.float32))), node("Conv", "x w", "y")],
         s=np.array([4, 3, 3, 3]))
    case("pool_of_the_whole_image", ["N", 3, 4, 5],
         [node("AveragePool", "x", "y", kernel_shape=[9, 9], strides=[9, 9], ceil_mode=1, count_include_pad=1)])
    case("bias_of_a_constant_node", ["N", 3, 8, 8],
         [helper.make_node("Constant", [], ["b"], value=numpy_helper.from_array(floats(1, 4, 1, 1))),
          node("Conv", "x w", "c"), node("Add", "c b", "y")], w=floats(4, 3, 3, 3))


def sequences():
    two = [node("SequenceAt", "parts zero", "a"), node("SequenceAt", "parts last", "b"), node("Sigmoid", "b", "s"),
           node("Mul", "a s", "y")]
    places = {"zero": np.int64(0), "last": np.int64(-1)}
    case("chunks", ["N", 8], [node("SplitToSequence", "x size", "parts", axis=1), *two], size=np.int64(4), **places)
    case("split_by_sizes", ["N", 8], [node("SplitToSequence", "x sizes", "parts", axis=1), *two], sizes=np.array([4, 4]), **places)
    case("unbind", ["N", 2, 4], [node("SplitToSequence", "x", "parts", axis=1, keepdims=0), *two], **places)


def attention():
    heads = [node("Reshape", "q split", "q4"), node("Transpose", "q4", "q5", perm=[0, 2, 1, 3]), node("Reshape", "k split", "k4"),
             node("Transpose", "k4", "k5", perm=[0, 2, 3, 1]), node("Reshape", "v split", "v4"),
             node("Transpose", "v4", "v5", perm=[0, 2, 1, 3])]
    joined = [node("MatMul", "p v5", "o"), node("Transpose", "o", "o4", perm=[0, 2, 1, 3]), node("Reshape", "o4 join", "y")]
    projections = [node("MatMul", f"x w{name}", name) for name in "qkv"]
    sizes = {"split": np.array([0, 0, 2, 4]), "join": np.array([0, 0, 8]), **{f"w{name}": floats(6, 8) for name in "qkv"}}
    causal = np.triu(np.full((5, 5), -np.inf, np.float32), 1)
    scale = {"scale": np.float32(0.5)}
    plain = [*projections, *heads, node("MatMul", "q5 k5", "s")]
    case("attention", ["N", 5, 6], [*plain, node("Mul", "s scale", "t"), node("Softmax", "t", "p", axis=-1), *joined], **sizes, **scale)
    case("attention_unscaled", ["N", 5, 6], [*plain, node("Softmax", "s", "p", axis=-1), *joined], **sizes)
    case("attention_causal", ["N", 5, 6],
         [*plain, node("Div", "s root", "t"), node("Add", "t mask", "m"), node("Softmax", "m", "p", axis=-1), *joined],
         **sizes, root=np.float32(2), mask=causal)
    case("attention_where", ["N", 5, 6],
         [*plain, node("Where", "keep s low", "m"), node("Softmax", "m", "p", axis=-1), *joined],
         **sizes, keep=np.tril(np.ones((1, 1, 5, 5), bool)), low=np.float32(-3.4e38))
    # Each of query and key has the root of the scale, as PyTorch exports it.
    case("attention_scaled_before", ["N", 5, 6],
         [*projections, *heads, node("Mul", "q5 scale", "q6"), node("Mul", "k5 scale", "k6"), node("MatMul", "q6 k6", "s"),
          node("Add", "s mask", "m"), node("Softmax", "m", "p", axis=-1), node("IsNaN", "p", "bad"),
          node("Where", "bad zero p", "guarded"), node("MatMul", "guarded v5", "o"), node("Transpose", "o", "o4", perm=[0, 2, 1, 3]),
          node("Reshape", "o4 join", "y")], **sizes, scale=np.float32(0.5 ** 0.5), mask=causal, zero=np.float32(0))
    # Not the causal mask: it hides the position itself, or looks two positions back only.
    window = np.where((np.arange(5)[:, None] >= np.arange(5)) & (np.arange(5)[:, None] < np.arange(5) + 2), 0, -1e9)
    case("products_windowed", ["N", 5, 6], [*plain, node("Add", "s mask", "m"), node("Softmax", "m", "p", axis=-1), *joined],
         **sizes, mask=window.astype(np.float32))
    case("products_with_bias", ["N", 5, 6], [*plain, node("Add", "s bias", "m"), node("Softmax", "m", "p", axis=-1), *joined],
         **sizes, bias=floats(1, 2, 5, 5))


def einsums():
    case("einsum", ["N", 4, 2, 3],
         [node("Transpose", "x", "t", perm=[1, 0, 2, 3]), node("Einsum", "t w", "q", equation="ibnd,ndh->ibnh"),
          node("Einsum", "q t", "s", equation="ibnh,jbnd->bnijhd"), node("ReduceSum", "s axis", "r", keepdims=0),
          node("Einsum", "r t", "y", equation="bnij, jbnd -> bind")],
         w=floats(2, 3, 5), axis=np.array([4, 5]))


def norms():
    weight = {"two": np.float32(2), "axes": np.array([-1]), "epsilon": np.float32(1e-6), "w": floats(6)}
    root = [node("ReduceMean", "squares axes", "m"), node("Add", "m epsilon", "e"), node("Sqrt", "e", "r")]
    case("rms_norm", ["N", 5, 6], [node("Pow", "x two", "squares"), *root, node("Reciprocal", "r", "i"), node("Mul", "x i", "n"),
                                   node("Mul", "w n", "y")], **weight)
    case("rms_norm_by_division", ["N", 5, 6], [node("Mul", "x x", "squares"), *root, node("Div", "x r", "n"), node("Mul", "n w", "y")],
         **weight)


def transformers_models():
    import torch
    import transformers as t

    torch.manual_seed(4)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    text = {**small, "vocab_size": 30, "max_position_embeddings": 12, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    tokens, pixels = torch.randint(3, 30, (2, 8)), torch.randn(2, 3, 16, 16)
    models = {
        "vit": (t.ViTForImageClassification(t.ViTConfig(image_size=16, patch_size=8, **small)), pixels),
        "distilbert": (t.DistilBertForSequenceClassification(t.DistilBertConfig(
            vocab_size=30, dim=16, n_layers=1, n_heads=2, hidden_dim=24, max_position_embeddings=12)), tokens),
        "bert": (t.BertForSequenceClassification(t.BertConfig(**text)), tokens),
        "llama": (t.LlamaForCausalLM(t.LlamaConfig(num_key_value_heads=1, use_cache=False, **text)), tokens),
    }
    for name, (model, example) in models.items():
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.02 * torch.randn_like(parameter)
        program = torch.onnx.export(model.eval(), (example,), None, dynamo=True, verbose=False,
                                    dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=64)},))
        proto = program.model_proto
        for one in proto.graph.node:  # what each node was in PyTorch, which is most of the file
            del one.metadata_props[:]
        add(f"transformers_{name}", proto, example.numpy())
    add("buffers", with_buffers(), RANDOM.integers(0, 9, (2, 4)))


def with_buffers():
    """A model with rotary positions and a mask as buffers, as in an export with mask and positions given."""
    import torch

    class Rotary(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.word = torch.nn.Embedding(9, 4)
            self.position = torch.nn.Parameter(torch.randn(1, 4, 4))
            self.register_buffer("cos", torch.randn(4, 4).cos())
            self.register_buffer("sin", torch.randn(4, 4).sin())
            self.register_buffer("mask", torch.randn(1, 4, 1) * 1e-3)

        def forward(self, x):
            y = self.word(x) + self.position
            return y * self.cos + y * self.sin + self.mask

    return torch.onnx.export(Rotary().eval(), (torch.zeros(2, 4, dtype=torch.long),), None, dynamo=True, verbose=False,
                             dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=64)},)).model_proto


def main():
    for make in (fixed_batches, open_batch, selections, values, sequences, attention, einsums, norms, transformers_models):
        make()
    write(HERE / "onnx_cases.safetensors", CASES)
    print(f"{len(CASES) // 3} cases")


if __name__ == "__main__":
    main()
