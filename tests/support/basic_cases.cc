// Cases of movement, arithmetic and reductions: all kinds of broadcast, and images in both layouts.
#include "tests/support/graph_cases.h"

namespace trainyard::testing {
namespace {

using Ints = std::vector<int64_t>;

// Returns a 1x1 convolution, next to which tensors are channels-last if the options allow it.
TensorId conv(CaseBuilder& b, const std::string& name, TensorId x, int64_t C) {
  return b.one(name, "Conv", {}, {x, b.parameter(name + "_w", {C, C, 1, 1})});
}

CaseGraph one_op(DType dtype, const std::string& op, const Attributes& attributes,
                 const Shape& shape) {
  CaseBuilder b(dtype);
  return b.finish(b.one("y", op, attributes, {b.parameter("x", shape)}));
}

CaseGraph image_op(DType dtype, const std::string& op, const Attributes& attributes,
                   const Shape& shape) {
  CaseBuilder b(dtype);
  const TensorId x = conv(b, "h", b.image("x", shape), shape[1]);
  return b.finish(b.one("y", op, attributes, {x}));
}

CaseGraph two_op(DType dtype, const std::string& op, const Shape& a, const Shape& c) {
  CaseBuilder b(dtype);
  // The operands are activations, so that the result may reuse their memory.
  const TensorId left = b.one("left", "Tanh", {}, {b.parameter("a", a)});
  const TensorId right = b.one("right", "Tanh", {}, {b.parameter("b", c)});
  return b.finish(b.one("y", op, {}, {left, right}));
}

// A sigmoid keeps the base positive, since a negative one has no real power.
CaseGraph power(DType dtype, const Shape& a, const Shape& c) {
  CaseBuilder b(dtype);
  const TensorId base = b.one("base", "Sigmoid", {}, {b.parameter("a", a)});
  return b.finish(b.one("y", "Pow", {}, {base, b.parameter("b", c)}));
}

// Returns arithmetic between convolutions: the operands have the same layout, or the second is of
// lower rank and row-major.
CaseGraph image_arithmetic(DType dtype, const std::string& op, const Shape& other) {
  CaseBuilder b(dtype);
  const TensorId x = conv(b, "h", b.image("x", {2, 3, 5, 4}), 3);
  const TensorId c = other.rank() == 4 ? b.image("b", other) : b.parameter("b", other);
  const TensorId y = b.one("y", op, {}, {x, c});
  return b.finish(conv(b, "z", y, 3));
}

CaseGraph concat(DType dtype, int64_t axis, const std::vector<Shape>& shapes) {
  CaseBuilder b(dtype);
  std::vector<TensorId> inputs;
  for (const Shape& shape : shapes) {
    inputs.push_back(b.parameter("x" + std::to_string(inputs.size()), shape));
  }
  return b.finish(b.one("y", "Concat", {{"axis", axis}}, inputs));
}

// One input is used twice. Another one is data, so it gets no gradient.
CaseGraph concat_shared(DType dtype) {
  CaseBuilder b(dtype);
  const TensorId x = b.parameter("x", {3, 2});
  return b.finish(b.one("y", "Concat", {{"axis", int64_t{-1}}}, {x, b.input("data", {3, 1}), x}));
}

CaseGraph concat_images(DType dtype, int64_t axis) {
  CaseBuilder b(dtype);
  const TensorId x = conv(b, "h", b.image("x", {2, 3, 5, 4}), 3);
  const TensorId z = conv(b, "g", b.image("z", {2, 3, 5, 4}), 3);
  return b.finish(b.one("y", "Concat", {{"axis", axis}}, {x, z, x}));
}

CaseGraph split(DType dtype, const Attributes& attributes, const Shape& shape, size_t outputs) {
  CaseBuilder b(dtype);
  const auto parts = b.node("parts", "Split", attributes, {b.parameter("x", shape)}, outputs);
  // The loss reads only the first part, so the gradients of the other parts are zeros.
  return b.finish(parts[0]);
}

CaseGraph split_and_join(DType dtype, int64_t axis) {
  CaseBuilder b(dtype);
  const TensorId x = conv(b, "h", b.image("x", {2, 4, 6, 2}), 4);
  const auto parts =
      b.node("parts", "Split", {{"axis", axis}, {"num_outputs", int64_t{2}}}, {x}, 2);
  return b.finish(b.one("y", "Mul", {}, {parts[0], parts[1]}));
}

CaseGraph expand(DType dtype, const Shape& x, const Ints& shape) {
  CaseBuilder b(dtype);
  return b.finish(b.one("y", "Expand", {{"shape", shape}}, {b.parameter("x", x)}));
}

}  // namespace

void append_basic_cases(std::vector<GraphCase>& cases) {
  const auto row = [&](std::string name, std::function<CaseGraph(DType)> build) {
    cases.push_back({std::move(name), std::move(build)});
  };
  const auto transpose = [&](const std::string& name, Shape x, Ints perm) {
    row("Transpose/" + name, [=](DType t) { return one_op(t, "Transpose", {{"perm", perm}}, x); });
  };
  transpose("matrix", {3, 5}, {1, 0});
  transpose("heads", {2, 3, 2, 5}, {0, 2, 1, 3});
  transpose("last", {2, 7, 3}, {0, 2, 1});
  transpose("rotate", {2, 3, 4, 5}, {3, 0, 1, 2});
  transpose("wide", {17, 66}, {1, 0});
  row("Transpose/default", [](DType t) { return one_op(t, "Transpose", {}, {2, 1, 3}); });
  row("Transpose/image", [](DType t) {
    return image_op(t, "Transpose", {{"perm", Ints{0, 2, 3, 1}}}, {2, 3, 4, 5});
  });

  row("Concat/one", [](DType t) { return concat(t, 0, {{1}}); });
  row("Concat/rows", [](DType t) { return concat(t, 0, {{1, 3}, {4, 3}}); });
  row("Concat/columns", [](DType t) { return concat(t, 1, {{2, 3, 2}, {2, 1, 2}, {2, 5, 2}}); });
  row("Concat/shared", concat_shared);
  row("Concat/channels", [](DType t) { return concat_images(t, 1); });
  row("Concat/height", [](DType t) { return concat_images(t, -2); });
  row("Split/equal", [](DType t) {
    return split(t, {{"axis", int64_t{1}}, {"num_outputs", int64_t{3}}}, {2, 7}, 3);
  });
  row("Split/sizes", [](DType t) {
    return split(t, {{"axis", int64_t{-2}}, {"split", Ints{2, 3}}}, {2, 5, 3}, 2);
  });
  row("Split/channels", [](DType t) { return split_and_join(t, 1); });
  row("Split/height", [](DType t) { return split_and_join(t, 2); });
  row("Slice/steps", [](DType t) {
    return one_op(t, "Slice",
                  {{"starts", Ints{1, -4}},
                   {"ends", Ints{3, 1000}},
                   {"axes", Ints{0, 2}},
                   {"steps", Ints{1, 2}}},
                  {4, 2, 7});
  });
  row("Slice/image", [](DType t) {
    return image_op(t, "Slice",
                    {{"starts", Ints{1, 0}}, {"ends", Ints{-1, 2}}, {"axes", Ints{1, -1}}},
                    {2, 4, 3, 5});
  });
  row("Expand/rows", [](DType t) { return expand(t, {1, 5}, {3, 5}); });
  row("Expand/rank", [](DType t) { return expand(t, {3, 1}, {2, 1, 4}); });
  row("Expand/column_sums", [](DType t) { return expand(t, {1, 70}, {131, 70}); });

  for (const std::string op : {"Add", "Sub", "Mul", "Div", "Min", "Max", "PRelu"}) {
    const auto pair = [&](const std::string& name, Shape a, Shape c) {
      row(op + "/" + name, [=](DType t) { return two_op(t, op, a, c); });
    };
    pair("alike", {3, 11}, {3, 11});
    pair("vector", {3, 4, 5}, {5});
    pair("scalar", {3, 7}, {1});
    pair("column", {3, 4, 5}, {4, 1});
    pair("both", {3, 1, 5}, {2, 1});
    pair("left", {1, 5}, {2, 3, 5});
    row(op + "/image_channels", [=](DType t) { return image_arithmetic(t, op, {3, 1, 1}); });
    row(op + "/image_map", [=](DType t) { return image_arithmetic(t, op, {5, 4}); });
    row(op + "/image_gate", [=](DType t) { return image_arithmetic(t, op, {2, 3, 1, 1}); });
  }
  row("Pow/vector", [](DType t) { return power(t, {3, 4, 5}, {5}); });
  row("Pow/alike", [](DType t) { return power(t, {3, 7}, {3, 7}); });

  for (const std::string op :
       {"LeakyRelu", "ThresholdedRelu", "Elu", "Selu", "Celu", "Softplus", "Softsign",
        "HardSigmoid", "HardSwish", "Swish", "Mish", "Neg", "Abs", "Exp", "Reciprocal"}) {
    row(op + "/one", [op](DType t) { return one_op(t, op, {}, {1, 1}); });
    row(op + "/odd", [op](DType t) { return one_op(t, op, {}, {3, 37}); });
  }
  for (const std::string op : {"Log", "Sqrt"}) {
    row(op, [op](DType t) {
      CaseBuilder b(t);
      const TensorId x = b.one("x", "Sigmoid", {}, {b.parameter("p", {3, 37})});
      return b.finish(b.one("y", op, {}, {x}));
    });
  }
  for (const std::string op : {"LeakyRelu", "ThresholdedRelu", "Elu", "Celu", "Swish"}) {
    row(op + "/alpha", [op](DType t) { return one_op(t, op, {{"alpha", 0.33}}, {2, 19}); });
  }
  row("Selu/attributes", [](DType t) {
    return one_op(t, "Selu", {{"alpha", 1.1}, {"gamma", 0.9}}, {2, 19});
  });
  row("HardSigmoid/attributes", [](DType t) {
    return one_op(t, "HardSigmoid", {{"alpha", 0.9}, {"beta", 0.3}}, {2, 19});
  });
  row("Clip/both", [](DType t) {
    return one_op(t, "Clip", {{"min", -0.55}, {"max", 0.45}}, {3, 37});
  });
  row("Clip/below", [](DType t) { return one_op(t, "Clip", {{"min", -0.3}}, {3, 5}); });
  row("Swish/image", [](DType t) { return image_op(t, "Swish", {}, {2, 3, 5, 4}); });

  for (const std::string op : {"ReduceSum", "ReduceMean", "ReduceMin", "ReduceMax", "ReduceL2"}) {
    const auto axes = [&](const std::string& name, Shape x, Ints along, bool keepdims) {
      const Attributes attributes{{"axes", std::move(along)}, {"keepdims", int64_t{keepdims}}};
      row(op + "/" + name, [=](DType t) { return one_op(t, op, attributes, x); });
    };
    axes("last", {3, 37}, {-1}, true);
    axes("first", {37, 3}, {0}, false);
    axes("middle", {2, 5, 3}, {1}, true);
    axes("outside", {3, 4, 5}, {0, 2}, false);
    axes("one", {4, 1, 3}, {1}, false);
    row(op + "/all", [=](DType t) { return one_op(t, op, {}, {5, 7}); });
    row(op + "/image", [=](DType t) {
      return image_op(t, op, {{"axes", Ints{2, 3}}, {"keepdims", int64_t{0}}}, {2, 3, 5, 4});
    });
    row(op + "/image_width", [=](DType t) {
      return image_op(t, op, {{"axes", Ints{2}}, {"keepdims", int64_t{0}}}, {2, 3, 5, 4});
    });
    row(op + "/image_channels", [=](DType t) {
      return image_op(t, op, {{"axes", Ints{1}}}, {2, 3, 5, 4});
    });
  }
}

}  // namespace trainyard::testing
