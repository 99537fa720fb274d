// Imports elementwise functions, arithmetic with broadcasting, and operations that have no effect
// in inference.
#include <algorithm>
#include <cmath>

#include "src/onnx/constant_elements.h"
#include "src/onnx/import_attention.h"

namespace trainyard::onnx {
namespace {

using A = AttributeSpec;

// --- functions of one number: the layer has the same attributes ---

Status import_unary(NodeImport& n) {
  Attributes attributes;
  for (const AttributeProto& a : n.node().attributes) attributes.set(a.name, a.f);
  ASSIGN_OR_RETURN(const View x, n.view(0));
  return n.give(n.importer().unary(n.op(), std::move(attributes), x));
}

Status import_gelu(NodeImport& n) {
  const std::string approximate = n.get_text("approximate", "none");
  if (approximate != "none" && approximate != "tanh")
    return n.refuse("approximate: " + approximate);
  ASSIGN_OR_RETURN(const View x, n.view(0));
  return n.give(n.importer().unary("Gelu", {{"approximate", approximate}}, x));
}

Status import_clip(NodeImport& n) {
  Attributes attributes;
  for (const auto& [i, name] : {std::pair<size_t, const char*>(1, "min"), {2, "max"}}) {
    std::optional<double> bound;
    if (n.has(name)) bound = n.get_float(name, 0);
    if (n.has_input(i)) {
      ASSIGN_OR_RETURN(bound, n.number(i, name));
    }
    if (bound && std::fabs(*bound) < 1e30)
      attributes.set(name, *bound);  // larger bounds have no effect
  }
  ASSIGN_OR_RETURN(const View x, n.view(0));
  if (attributes.items().empty()) return n.give(x);
  return n.give(n.importer().unary("Clip", std::move(attributes), x));
}

// Before opset 20, PyTorch's exporters write GELU as x * 0.5 * (1 + erf(x / sqrt(2))). This finds
// the nodes around Erf, whose order depends on the exporter's version.
Status import_erf(NodeImport& n) {
  Importer& importer = n.importer();
  const auto refuse = [&] { return n.refuse("is supported only as part of GELU"); };
  const auto is_number = [&](const NodeProto& node, double expected) {
    for (const std::string& input : node.inputs) {
      const Value* value = importer.find(input);
      const auto* c = value != nullptr ? std::get_if<Constant>(value) : nullptr;
      if (c != nullptr && c->is_float && c->stored() == 1) {
        return std::fabs(static_cast<double>(c->floats->front()) - expected) < 1e-6;
      }
    }
    return false;
  };
  const auto reads = [](const NodeProto& node, const std::string& value) {
    return std::ranges::find(node.inputs, value) != node.inputs.end();
  };
  const NodeProto* scale = importer.producer_of(n.node().inputs[0]);
  const bool divides = scale != nullptr && scale->op == "Div" && is_number(*scale, std::sqrt(2.0));
  const bool multiplies =
      scale != nullptr && scale->op == "Mul" && is_number(*scale, std::sqrt(0.5));
  if (!divides && !multiplies) return refuse();
  const auto variable = std::ranges::find_if(scale->inputs, [&](const std::string& input) {
    const Value* value = importer.find(input);
    return value != nullptr && std::holds_alternative<View>(*value);
  });
  if (variable == scale->inputs.end()) return refuse();
  const std::string x = *variable;
  const NodeProto* plus = importer.only_reader(n.node().outputs[0]);
  if (plus == nullptr || plus->op != "Add" || !is_number(*plus, 1)) return refuse();
  const NodeProto* last = importer.only_reader(plus->outputs[0]);
  if (last == nullptr || last->op != "Mul") return refuse();
  // Three forms: (x * (1 + erf)) * 0.5, (0.5 * (1 + erf)) * x, or (x * 0.5) * (1 + erf).
  std::vector<const NodeProto*> done = {plus, last};
  if (reads(*last, x) || is_number(*last, 0.5)) {
    const NodeProto* next = importer.only_reader(last->outputs[0]);
    const bool fits = next != nullptr && next->op == "Mul" &&
                      (reads(*last, x) ? is_number(*next, 0.5) : reads(*next, x));
    if (!fits) return refuse();
    done.push_back(next);
  } else {
    const std::string& other =
        last->inputs[0] == plus->outputs[0] ? last->inputs[1] : last->inputs[0];
    const NodeProto* half = importer.producer_of(other);
    if (half == nullptr || half->op != "Mul" || !reads(*half, x) || !is_number(*half, 0.5)) {
      return refuse();
    }
  }
  const View& view = std::get<View>(*importer.find(x));
  ASSIGN_OR_RETURN(View y, importer.unary("Gelu", {{"approximate", std::string("none")}}, view));
  for (const NodeProto* node : done) importer.mark_done(*node);
  importer.define(done.back()->outputs[0], std::move(y));
  return {};
}

// --- arithmetic ---

/// Returns the operand x if the node is x * 1, 1 * x or x / 1; else null.
const View* unchanged(NodeImport& n) {
  const auto is_one = [&](size_t i, size_t other) {
    const Constant* c = n.find_constant(i);
    return c != nullptr && c->is_float && !c->trainable && c->dims.size() <= n.dims(other).size() &&
           std::ranges::all_of(c->dims, [](const Extent& e) { return e == Extent{}; }) &&
           c->stored() == 1 && c->floats->front() == 1;
  };
  if ((n.op() == "Mul" || n.op() == "Div") && is_one(1, 0)) return std::get_if<View>(&n.input(0));
  if (n.op() == "Mul" && is_one(0, 1)) return std::get_if<View>(&n.input(1));
  return nullptr;
}

Status import_binary(NodeImport& n) {
  if (!n.has_input(0) || !n.has_input(1)) return n.refuse("needs two inputs");
  if (const View* x = unchanged(n); x != nullptr) return n.give(View(*x));
  ASSIGN_OR_RETURN(const bool is_absorbed, absorb_affine(n));
  if (is_absorbed) return {};
  ASSIGN_OR_RETURN(const bool is_norm, import_rms_norm(n));
  if (is_norm) return {};
  return n.give(n.importer().binary(n.op(), n.input(0), n.input(1)));
}

// Imports Sum, Mean, Min and Max of any number of inputs.
Status import_variadic(NodeImport& n) {
  if (!n.has_input(0)) return n.refuse("needs inputs");
  const bool is_sum = n.op() == "Sum" || n.op() == "Mean";
  Value result = n.input(0);
  for (size_t i = 1; i < n.input_count(); ++i) {
    if (!n.has_input(i)) return n.refuse("input " + std::to_string(i) + " is left out");
    ASSIGN_OR_RETURN(View y, n.importer().binary(is_sum ? "Add" : n.op(), result, n.input(i)));
    result = std::move(y);
  }
  if (n.op() == "Mean" && n.input_count() > 1) {
    const Constant count = float_constant({}, {static_cast<float>(n.input_count())});
    return n.give(n.importer().binary("Div", result, count));
  }
  return n.give(std::move(result));
}

// A slope for all elements or one per channel becomes a p_relu layer; other slopes become min, max,
// mul and add.
Status import_prelu(NodeImport& n) {
  ASSIGN_OR_RETURN(const Constant* slope, n.floats(1, "the slope"));
  ASSIGN_OR_RETURN(const View x, n.view(0));
  const std::vector<int64_t> dims = counts_of(slope->dims);
  const int64_t rank = x.rank();
  Importer& importer = n.importer();
  const bool shared = slope->elements() == 1;
  const bool batch_first = rank >= 2 && x.dims[0] == std::vector<int>{0};
  const int64_t channels = batch_first ? x.extent(x.dims[1]).count : 0;
  // The axis of x at which the slope's first dimension is.
  const int64_t axis = rank - std::ssize(dims);
  const bool by_channel = batch_first && axis <= 1 && slope->elements() == channels &&
                          dims[static_cast<size_t>(1 - axis)] == channels;
  if ((shared || by_channel) && !importer.is_shared(*slope)) {
    ASSIGN_OR_RETURN(Importer::Canonical c, importer.canonical(x, /*keep_ones=*/true));
    Attributes attributes;
    if (shared) attributes.set("shared", int64_t{1});
    ASSIGN_OR_RETURN(c.view.layer, importer.add_layer("PRelu", attributes, {c.layer},
                                                      Importer::name_hint(*slope)));
    importer.set_weight(c.view.layer, "weight", numbers_of(*slope));
    return n.give(c.view);
  }
  const Constant zero = float_constant({}, {0});
  ASSIGN_OR_RETURN(const View below, importer.binary("Min", x, zero));
  ASSIGN_OR_RETURN(const View scaled, importer.binary("Mul", below, *slope));
  ASSIGN_OR_RETURN(const View above, importer.binary("Max", x, zero));
  return n.give(importer.binary("Add", above, scaled));
}

// --- operations that keep the value ---

Status import_identity(NodeImport& n) {
  return n.has_input(0) ? n.give(n.input(0)) : n.refuse("has no input");
}

// A file that names its parameters is meant to be trained, so its Dropout nodes become layers. In
// other files they have no effect.
Status import_dropout(NodeImport& n) {
  if (!n.has_input(0)) return n.refuse("has no input");
  if (n.wants_output(1)) return n.refuse("its output mask is used");
  if (n.importer().names_parameters()) {
    double ratio = n.get_float("ratio", 0.5);
    if (n.has_input(1)) {
      ASSIGN_OR_RETURN(ratio, n.number(1, "ratio"));
    }
    ASSIGN_OR_RETURN(const View x, n.view(0));
    return ratio == 0 ? n.give(x) : n.give(n.importer().unary("Dropout", {{"ratio", ratio}}, x));
  }
  if (n.has_input(2)) {
    ASSIGN_OR_RETURN(const double training, n.number(2, "training_mode"));
    if (training != 0) return n.refuse("training_mode is true, expected a file for inference");
  }
  return n.give(n.input(0));
}

Status import_cast(NodeImport& n) {
  ASSIGN_OR_RETURN(const View x, n.view(0));
  const int64_t to = n.get_int("to", 0);
  const bool tokens = n.importer().is_tokens(x.layer);
  const bool is_index = to == static_cast<int64_t>(ElementType::kInt32) ||
                        to == static_cast<int64_t>(ElementType::kInt64);
  if (tokens ? is_index : is_float_type(to)) return n.give(x);
  return n.refuse((tokens ? "cannot cast tokens to " : "cannot cast numbers to ") + name_of(to));
}

// Casts to the type of another value, of which only "integer or float" matters here.
Status import_cast_like(NodeImport& n) {
  if (!n.has_input(0) || !n.has_input(1)) return n.refuse("needs two inputs");
  const Constant* like = n.find_constant(1);
  const auto* like_view = std::get_if<View>(&n.input(1));
  const bool to_float =
      like_view != nullptr ? !n.importer().is_tokens(like_view->layer) : like->is_float;
  const Constant* x = n.find_constant(0);
  if (x == nullptr) {
    const bool tokens = n.importer().is_tokens(std::get<View>(n.input(0)).layer);
    return tokens == to_float ? n.refuse("cannot cast between tokens and numbers")
                              : n.give(n.input(0));
  }
  if (x->is_float == to_float) return n.give(*x);
  const ElementType to = to_float ? ElementType::kFloat : ElementType::kInt64;
  ASSIGN_OR_RETURN(Constant cast, cast_constant(n, *x, static_cast<int64_t>(to)));
  return n.give(std::move(cast));
}

// Imports a Where with a constant condition as the sum of two masked operands: x where the
// condition is true and 0 elsewhere, plus y where it is false and 0 elsewhere.
Status import_where(NodeImport& n) {
  const Constant* test = n.find_constant(0);
  if (!n.has_input(1) || !n.has_input(2)) return n.refuse("needs three inputs");
  Importer& importer = n.importer();
  if (test == nullptr) return n.refuse("the condition depends on the model's input");
  if (test->is_float) return n.refuse("the condition is not a boolean");
  const Constant zero = float_constant({}, {0}), one = float_constant({}, {1});
  const auto share_of = [&](size_t i) -> Result<Value> {
    const bool is_first = i == 1;
    const auto masked = [&](const Constant& c) {
      return chosen(*test, is_first ? c : zero, is_first ? zero : c);
    };
    const Constant* c = n.find_constant(i);
    if (c == nullptr || c->trainable) {
      ASSIGN_OR_RETURN(const Constant mask, masked(one));
      ASSIGN_OR_RETURN(View y, importer.binary("Mul", n.input(i), mask));
      return Value(std::move(y));
    }
    // A constant is selected and not multiplied, since 0 times infinity is NaN.
    ASSIGN_OR_RETURN(Constant y, masked(*c));
    return Value(std::move(y));
  };
  ASSIGN_OR_RETURN(const Value x, share_of(1));
  ASSIGN_OR_RETURN(const Value y, share_of(2));
  return n.give(importer.binary("Add", x, y));
}

// PyTorch's attention gives 0 for a row whose keys are all masked, where softmax gives NaN:
// Where(IsNaN(x), 0, x). The import assumes that there are no such rows, so that the result is x.
Status import_is_nan(NodeImport& n) {
  Importer& importer = n.importer();
  const NodeProto* where = importer.only_reader(n.node().outputs[0]);
  if (where != nullptr && where->op == "Where" && where->inputs.size() == 3 &&
      where->inputs[0] == n.node().outputs[0] && where->inputs[2] == n.node().inputs[0]) {
    const Value* zero = importer.find(where->inputs[1]);
    const auto* c = zero != nullptr ? std::get_if<Constant>(zero) : nullptr;
    if (c != nullptr && c->is_float && c->uniform() && c->floats->front() == 0) {
      importer.mark_done(*where);
      importer.define(where->outputs[0], n.input(0));
      return {};
    }
  }
  return n.refuse("is supported only as part of attention");
}

/// Adds the functions of one number, each of which becomes the layer of the same name.
void add_unary_imports(std::vector<ImportRow>& rows) {
  for (const auto& [op, becomes, since] : {std::tuple("Relu", "relu", 1),
                                           {"Sigmoid", "sigmoid", 1},
                                           {"Tanh", "tanh", 1},
                                           {"LeakyRelu", "leaky_relu", 1},
                                           {"ThresholdedRelu", "thresholded_relu", 10},
                                           {"Elu", "elu", 1},
                                           {"Selu", "selu", 1},
                                           {"Celu", "celu", 12},
                                           {"Softplus", "softplus", 1},
                                           {"Softsign", "softsign", 1},
                                           {"HardSigmoid", "hard_sigmoid", 1},
                                           {"HardSwish", "hard_swish", 14},
                                           {"Mish", "mish", 18},
                                           {"Neg", "neg", 1},
                                           {"Abs", "abs", 1},
                                           {"Exp", "exp", 1},
                                           {"Log", "log", 1},
                                           {"Sqrt", "sqrt", 1},
                                           {"Reciprocal", "reciprocal", 1}}) {
    const std::string_view name = op;
    std::vector<AttributeSpec> attributes;
    const bool has_alpha = name == "LeakyRelu" || name == "ThresholdedRelu" || name == "Elu" ||
                           name == "Selu" || name == "Celu" || name == "HardSigmoid";
    if (has_alpha) attributes.push_back({"alpha", A::kFloat});
    if (name == "Selu") attributes.push_back({"gamma", A::kFloat});
    if (name == "HardSigmoid") attributes.push_back({"beta", A::kFloat});
    rows.push_back({.op = op,
                    .since = since,
                    .becomes = becomes,
                    .attributes = std::move(attributes),
                    .import = import_unary,
                    .fold = fold_unary});
  }
}

/// Adds the functions of two or more values.
void add_arithmetic_imports(std::vector<ImportRow>& rows) {
  for (const auto& [op, becomes] : {std::pair("Add", "add"),
                                    {"Sub", "sub"},
                                    {"Mul", "mul; rms_normalization, with the nodes around it"},
                                    {"Div", "div; rms_normalization, with the nodes around it"},
                                    {"Pow", "pow"}}) {
    rows.push_back({.op = op,
                    .becomes = becomes,
                    .limits = "a constant with a value for each sample",
                    .import = import_binary,
                    .fold = fold_arithmetic});
  }
  for (const auto& [op, becomes] :
       {std::pair("Sum", "add"), {"Mean", "add, div"}, {"Min", "min"}, {"Max", "max"}}) {
    rows.push_back(
        {.op = op, .becomes = becomes, .import = import_variadic, .fold = fold_arithmetic});
  }
}

}  // namespace

// PyTorch's exporter writes softplus as Where(b x > threshold, x, Softplus(b x) / b). From a
// threshold of 15 on, both branches and their gradients are equal in float32.
Status import_greater(NodeImport& n) {
  constexpr double kThresholdMin = 15;
  Importer& importer = n.importer();
  const auto refuse = [&] {
    return n.refuse(
        "depends on the model's input, and is not part of a softplus with a threshold "
        "of at least 15");
  };
  const auto number_of = [&](const std::string& value) -> std::optional<double> {
    const Value* found = importer.find(value);
    const auto* c = found != nullptr ? std::get_if<Constant>(found) : nullptr;
    if (c == nullptr || !c->is_float || c->trainable || c->stored() != 1) return std::nullopt;
    return static_cast<double>(c->floats->front());
  };
  if (!n.has_input(0) || !n.has_input(1)) return n.refuse("needs two inputs");
  const std::string& scaled = n.node().inputs[0];
  const std::optional<double> threshold = number_of(n.node().inputs[1]);
  const NodeProto* where = importer.only_reader(n.node().outputs[0]);
  if (!threshold || *threshold < kThresholdMin || where == nullptr || where->op != "Where" ||
      where->inputs.size() != 3 || where->inputs[0] != n.node().outputs[0]) {
    return refuse();
  }
  const std::string &x = where->inputs[1], &y = where->inputs[2];
  const NodeProto* softplus = importer.producer_of(y);
  std::optional<double> divisor = 1, factor = 1;
  if (softplus != nullptr && softplus->op == "Div") {
    divisor = number_of(softplus->inputs.back());
    softplus = importer.producer_of(softplus->inputs.front());
  }
  const NodeProto* scale = importer.producer_of(scaled);
  if (scaled != x) {
    if (scale == nullptr || scale->op != "Mul" || scale->inputs.front() != x) return refuse();
    factor = number_of(scale->inputs.back());
  }
  const Value* value = importer.find(y);
  if (softplus == nullptr || softplus->op != "Softplus" || softplus->inputs.front() != scaled ||
      !divisor || divisor != factor || value == nullptr) {
    return refuse();
  }
  importer.mark_done(*where);
  importer.define(where->outputs[0], Value(*value));
  return {};
}

std::vector<ImportRow> elementwise_imports() {
  std::vector<ImportRow> rows = {
      {.op = "Gelu",
       .since = 20,
       .becomes = "gelu",
       .attributes = {{"approximate", A::kText}},
       .import = import_gelu},
      {.op = "Clip",
       .becomes = "clip",
       .limits = "bounds that are not constants",
       .attributes = {{"min", A::kFloat}, {"max", A::kFloat}},
       .import = import_clip,
       .fold = fold_clip},
      {.op = "Erf",
       .since = 9,
       .becomes = "gelu, with the nodes around it",
       .limits = "Erf by itself",
       .import = import_erf,
       .fold = fold_unary},
      {.op = "PRelu",
       .becomes = "p_relu; min, max, mul, add",
       .limits = "a slope that is not a constant",
       .import = import_prelu},
      {.op = "Identity", .becomes = "nothing", .import = import_identity, .fold = fold_movement},
      {.op = "Dropout",
       .becomes = "nothing; dropout, where the file names its parameters",
       .limits = "training_mode; the mask",
       .attributes = {{"ratio", A::kFloat}, {"seed"}},
       .import = import_dropout,
       .fold = fold_movement},
      {.op = "Cast",
       .becomes = "nothing",
       .limits = "between tokens and numbers",
       .attributes = {{"to"}, {"saturate"}},
       .import = import_cast,
       .fold = fold_cast},
      {.op = "CastLike",
       .since = 15,
       .becomes = "nothing",
       .limits = "between tokens and numbers",
       .attributes = {{"saturate"}},
       .import = import_cast_like},
      {.op = "Where",
       .since = 9,
       .becomes = "mul, add",
       .limits = "conditions that depend on the model's input",
       .import = import_where,
       .fold = fold_where},
      {.op = "IsNaN",
       .since = 9,
       .becomes = "nothing",
       .limits = "uses other than in PyTorch's attention",
       .import = import_is_nan,
       .fold = fold_is}};
  add_unary_imports(rows);
  add_arithmetic_imports(rows);
  return rows;
}

}  // namespace trainyard::onnx
