// Writes functions of one and two operands, reductions and constants.
#include <numbers>

#include "kernels/math/activations.h"
#include "src/onnx/op_table.h"
#include "src/ops/reduce.h"

namespace trainyard::onnx {
namespace {

// GELU is x Phi(x), by Erf or by the tanh approximation. ONNX has a Gelu node only since opset 20.
void write_gelu(NodeWriter& w) {
  const std::string x = w.input(0);
  const auto number = [&](double value) { return w.onnx().constant(static_cast<float>(value)); };
  const auto finish = [&](const std::string& s) {  // writes 0.5 x (1 + s)
    const std::string gate = w.put_between("gate", "Add", {s, number(1)});
    w.put("Mul", {w.put_between("half", "Mul", {x, number(0.5)}), gate});
  };
  if (w.attributes().get_string("approximate", "none") == "none") {
    const std::string scaled = w.put_between("scaled", "Mul", {x, number(std::numbers::sqrt2 / 2)});
    return finish(w.put_between("erf", "Erf", {scaled}));
  }
  const std::string square = w.put_between("square", "Mul", {x, x});
  const std::string cube = w.put_between("cube", "Mul", {square, x});
  const std::string small = w.put_between("small", "Mul", {cube, number(0.044715)});
  const std::string sum = w.put_between("sum", "Add", {x, small});
  const double factor = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  finish(w.put_between("tanh", "Tanh", {w.put_between("inner", "Mul", {sum, number(factor)})}));
}

void write_swish(NodeWriter& w) {
  const double alpha = w.attributes().get_float("alpha", 1);
  std::string inner = w.input(0);
  if (alpha != 1) {
    inner = w.put_between("scaled", "Mul", {inner, w.onnx().constant(static_cast<float>(alpha))});
  }
  w.put("Mul", {w.input(0), w.put_between("gate", "Sigmoid", {inner})});
}

void write_clip(NodeWriter& w) {
  const auto bound = [&](const char* name) {
    if (w.attributes().find(name) == nullptr) return std::string();
    return w.onnx().constant(static_cast<float>(w.attributes().get_float(name, 0)));
  };
  std::vector<std::string> inputs = {w.input(0), bound("min")};
  if (const std::string max = bound("max"); !max.empty()) inputs.push_back(max);
  w.put("Clip", std::move(inputs));
}

void write_reduce(NodeWriter& w) {
  const std::vector<int64_t> axes = reduce_axes(w.attributes(), w.shape(0).rank());
  w.put(w.op(), {w.input(0), w.onnx().constant(axes)},
        {{"keepdims", w.attributes().get_int("keepdims", 1)}});
}

void write_constant(NodeWriter& w) {
  w.put("Expand", {w.onnx().constant(static_cast<float>(w.attributes().get_float("value", 0))),
                   w.onnx().constant(w.attributes().get_ints("shape", {}))});
}

}  // namespace

std::vector<OpRow> elementwise_rows() {
  std::vector<OpRow> rows = {
      {.op = "LeakyRelu", .numbers = {{"alpha", math::LeakyRelu{}.alpha}}},
      {.op = "ThresholdedRelu", .numbers = {{"alpha", math::ThresholdedRelu{}.alpha}}},
      {.op = "Elu", .numbers = {{"alpha", math::Elu{}.alpha}}},
      {.op = "Selu", .numbers = {{"alpha", math::Selu{}.alpha}, {"gamma", math::Selu{}.gamma}}},
      {.op = "Celu", .numbers = {{"alpha", math::Celu{}.alpha}}},
      {.op = "HardSigmoid",
       .numbers = {{"alpha", math::HardSigmoid{}.alpha}, {"beta", math::HardSigmoid{}.beta}}},
      {.op = "Gelu", .onnx = {"Mul", "Erf", "Tanh", "Add"}, .write = write_gelu},
      {.op = "Swish", .onnx = {"Mul", "Sigmoid"}, .write = write_swish},
      {.op = "Clip", .write = write_clip},
      {.op = "ConstantOfShape", .onnx = {"Expand"}, .write = write_constant}};
  for (const char* op :
       {"Relu", "Sigmoid", "Tanh", "Softplus", "Softsign",   "HardSwish", "Mish", "Neg",
        "Abs",  "Exp",     "Log",  "Sqrt",     "Reciprocal", "Add",       "Sub",  "Mul",
        "Div",  "Pow",     "Min",  "Max",      "PRelu",      "MatMul"}) {
    rows.push_back({.op = op});
  }
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMin", "ReduceMax", "ReduceL2"}) {
    rows.push_back({.op = op, .write = write_reduce});
  }
  return rows;
}

}  // namespace trainyard::onnx
