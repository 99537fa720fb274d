// Imports products, embeddings, normalization and softmax over positions, and recurrent layers.
#include <algorithm>
#include <cmath>

#include "src/onnx/constant_elements.h"
#include "src/onnx/import_attention.h"

namespace trainyard::onnx {
namespace {

using A = AttributeSpec;
using Ints = std::vector<int64_t>;

// --- products ---

/// Returns whether the value is a constant vector of `units` numbers; leading dimensions of 1 are
/// allowed.
bool is_bias(const Value& value, int64_t units) {
  const auto* c = std::get_if<Constant>(&value);
  return c != nullptr && c->is_float && !c->dims.empty() && !has_batch(c->dims) &&
         c->dims.back().count == units && c->elements() == units;
}

// A bias that is added directly to the product becomes the bias of the layer.
Status import_mat_mul(NodeImport& n) {
  if (!n.has_input(0) || !n.has_input(1)) return n.refuse("needs two inputs");
  Importer& importer = n.importer();
  const Constant* weight = n.find_constant(1);
  const NodeProto* add = importer.only_reader(n.node().outputs[0]);
  const bool may_join = weight != nullptr && n.find_constant(0) == nullptr && weight->is_float &&
                        weight->dims.size() == 2 && !has_batch(weight->dims) && add != nullptr &&
                        add->op == "Add" && add->inputs.size() == 2;
  if (may_join) {
    const size_t other = add->inputs[0] == n.node().outputs[0] ? 1 : 0;
    const Value* bias = importer.find(add->inputs[other]);
    if (bias != nullptr && is_bias(*bias, weight->dims[1].count) &&
        dims_of(*bias).size() <= n.dims(0).size() && importer.may_copy(std::get<Constant>(*bias))) {
      ASSIGN_OR_RETURN(const View x, n.view(0));
      ASSIGN_OR_RETURN(View y, importer.linear(x, turned(*weight), &std::get<Constant>(*bias)));
      importer.mark_done(*add);
      importer.define(add->outputs[0], std::move(y));
      return {};
    }
  }
  ASSIGN_OR_RETURN(const bool is_attention, import_attention(n));
  if (is_attention) return {};
  return n.give(importer.mat_mul(n.input(0), n.input(1)));
}

Constant scaled(const Constant& c, double by) {
  if (by == 1) return c;
  Constant result = c;
  std::vector<float> values = *c.floats;
  for (float& v : values) v *= static_cast<float>(by);
  result.floats = std::make_shared<const std::vector<float>>(std::move(values));
  result.initializer.clear();
  return result;
}

Status import_gemm(NodeImport& n) {
  if (!n.has_input(0) || !n.has_input(1)) return n.refuse("needs two inputs");
  Importer& importer = n.importer();
  const double alpha = n.get_float("alpha", 1), beta = n.get_float("beta", 1);
  ASSIGN_OR_RETURN(View a, n.view(0));
  if (a.rank() != 2 || n.dims(1).size() != 2) return n.refuse("expected two matrices");
  if (n.get_int("transA", 0) != 0) std::swap(a.dims[0], a.dims[1]);
  const bool turns = n.get_int("transB", 0) != 0;
  const Constant* weight = n.find_constant(1);
  std::optional<Constant> bias;
  bool has_bias = n.has_input(2);
  if (has_bias && weight != nullptr) {
    const Constant* c = n.find_constant(2);
    const int64_t units = weight->dims[turns ? 0 : 1].count;
    // A trained parameter is not multiplied by beta here; layers do that.
    const bool is_own = c != nullptr && (beta == 1 || !c->origins) && importer.may_copy(*c);
    if (is_own && is_bias(*c, units)) bias = scaled(*c, beta);
  }
  View y;
  if (weight != nullptr && weight->is_float && !has_batch(weight->dims) &&
      (alpha == 1 || !weight->origins)) {
    const Constant w = scaled(turns ? *weight : turned(*weight), alpha);
    ASSIGN_OR_RETURN(y, importer.linear(a, w, bias ? &*bias : nullptr));
    if (bias) return n.give(y);
  } else {
    ASSIGN_OR_RETURN(View b, n.view(1));
    if (turns) std::swap(b.dims[0], b.dims[1]);
    ASSIGN_OR_RETURN(y, importer.mat_mul(a, b));
    if (alpha != 1) {
      ASSIGN_OR_RETURN(y,
                       importer.binary("Mul", y, float_constant({}, {static_cast<float>(alpha)})));
    }
  }
  if (!has_bias) return n.give(y);
  Value c = n.input(2);
  if (beta != 1) {
    const auto* constant = std::get_if<Constant>(&c);
    if (constant != nullptr && constant->is_float && !constant->origins) {
      c = scaled(*constant, beta);
    } else {
      ASSIGN_OR_RETURN(View by_beta,
                       importer.binary("Mul", c, float_constant({}, {static_cast<float>(beta)})));
      c = std::move(by_beta);
    }
  }
  return n.give(importer.binary("Add", y, c));
}

// --- embeddings and selection of elements ---

Status import_gather(NodeImport& n) {
  if (!n.has_input(0) || !n.has_input(1)) return n.refuse("needs two inputs");
  Importer& importer = n.importer();
  if (n.find_constant(1) != nullptr) return import_gather_of_constants(n);
  ASSIGN_OR_RETURN(const Constant* table, n.floats(0, "the table"));
  if (table->dims.size() != 2 || n.get_int("axis", 0) != 0) {
    return n.refuse("the table is not a matrix or not indexed by rows");
  }
  ASSIGN_OR_RETURN(const View tokens, n.view(1));
  if (!importer.is_tokens(tokens.layer))
    return n.refuse("its indices are not an input of whole numbers");
  ASSIGN_OR_RETURN(Importer::Canonical c, importer.canonical(tokens));
  ASSIGN_OR_RETURN(const std::string layer,
                   importer.add_layer("Embedding",
                                      {{"num_embeddings", table->dims[0].count},
                                       {"embedding_dim", table->dims[1].count}},
                                      {c.layer}, Importer::name_hint(*table)));
  importer.set_weight(layer, "weight", numbers_of(*table));
  if (!table->transposed) importer.remember_weight(table->initializer, layer);
  View y = c.view;
  y.layer = layer;
  y.push_dim(table->dims[1].count);
  return n.give(y);
}

// --- softmax and normalization ---

// Before opset 13, all dimensions from the axis on were normalized together.
Status import_softmax(NodeImport& n) {
  const bool to_end = n.opset() < 13;
  ASSIGN_OR_RETURN(const View x, n.view(0));
  ASSIGN_OR_RETURN(const int64_t axis, n.axis(n.get_int("axis", to_end ? 1 : -1), x.rank()));
  View joined = x;
  if (to_end) {
    joined.dims.resize(static_cast<size_t>(axis) + 1);
    for (size_t i = static_cast<size_t>(axis) + 1; i < x.dims.size(); ++i) {
      joined.dims.back().insert(joined.dims.back().end(), x.dims[i].begin(), x.dims[i].end());
    }
  }
  const auto at = static_cast<size_t>(axis);
  if (joined.extent(joined.dims[at]).batch)
    return n.refuse("normalizes over the batch, which mixes samples");
  Importer& importer = n.importer();
  ASSIGN_OR_RETURN(const Importer::Canonical c,
                   importer.canonical(joined, /*keep_ones=*/joined.dims[at].empty()));
  Attributes a;
  const auto last = std::ssize(importer.sizes_of(c.layer));
  if (c.axis[at] != last) a.set("axis", c.axis[at]);
  View y = c.view;
  ASSIGN_OR_RETURN(y.layer, importer.add_layer(n.op(), std::move(a), {c.layer}));
  return n.give(importer.reshape(std::move(y), x.extents()));
}

Status import_layer_norm(NodeImport& n) {
  ASSIGN_OR_RETURN(const View x, n.view(0));
  ASSIGN_OR_RETURN(const int64_t axis, n.axis(n.get_int("axis", -1), x.rank()));
  if (n.wants_output(1) || n.wants_output(2)) return n.refuse("its output statistics are used");
  std::vector<int64_t> sizes;
  for (auto i = static_cast<size_t>(axis); i < x.dims.size(); ++i) {
    const Extent e = x.extent(x.dims[i]);
    if (e.batch) return n.refuse("normalizes over the batch, which mixes samples");
    sizes.push_back(e.count);
  }
  Importer& importer = n.importer();
  ASSIGN_OR_RETURN(const Importer::Canonical c, importer.canonical(x, /*keep_ones=*/true));
  const int64_t first = c.axis[static_cast<size_t>(axis)];
  const int64_t count = Shape(sizes).elements();
  Attributes a{{"epsilon", n.get_float("epsilon", 1e-5)}};
  if (first != std::ssize(importer.sizes_of(c.layer))) a.set("axis", first);
  ASSIGN_OR_RETURN(const Constant* scale, n.floats(1, "scale"));
  const Constant* bias = nullptr;
  if (n.has_input(2)) {
    ASSIGN_OR_RETURN(bias, n.floats(2, "the bias"));
  }
  for (const Constant* v : {scale, bias}) {
    if (v != nullptr && v->elements() != count) return n.refuse("scale or bias has the wrong size");
  }
  if (bias != nullptr && importer.is_no_bias(*bias)) bias = nullptr;
  if (bias == nullptr) a.set("bias", int64_t{0});
  ASSIGN_OR_RETURN(const std::string layer,
                   importer.add_layer("LayerNormalization", std::move(a), {c.layer},
                                      Importer::name_hint(*scale)));
  importer.set_weight(layer, "weight", numbers_of(*scale));
  importer.remember_weight(scale->initializer, layer);
  if (bias != nullptr) importer.set_weight(layer, "bias", numbers_of(*bias));
  View y = c.view;
  y.layer = layer;
  return n.give(importer.reshape(std::move(y), x.extents()));
}

// --- recurrent layers ---

struct Recurrent {
  int64_t hidden = 0, features = 0, directions = 1, gates = 4;
  bool batch_first = false;
  const Constant *w = nullptr, *r = nullptr, *b = nullptr;
};

/// Returns the rows of one direction's gates, reordered from ONNX's order (i o f c and z r h) to
/// the layer's (i f c o and r z h).
Numbers gates_of(const Recurrent& p, const Constant& all, int64_t offset, int64_t width) {
  static constexpr int64_t kLstm[] = {0, 2, 3, 1}, kGru[] = {1, 0, 2};
  const int64_t gate = p.hidden * width;
  return numbers_of(all, p.gates * gate, [&](int64_t i) {
    const int64_t g = i / gate;
    return offset + (p.gates == 4 ? kLstm[g] : kGru[g]) * gate + i % gate;
  });
}

Status check_recurrent(NodeImport& n, Recurrent& p, const View& x) {
  const std::string direction = n.get_text("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional") {
    return n.refuse("direction " + direction + " is not supported");
  }
  p.directions = direction == "bidirectional" ? 2 : 1;
  p.gates = n.op() == "LSTM" ? 4 : 3;
  p.batch_first = n.get_int("layout", 0) != 0;
  if (x.rank() != 3 || x.dims[p.batch_first ? 0 : 1] != std::vector<int>{0} ||
      x.extent(x.dims[2]).batch || x.extent(x.dims[p.batch_first ? 1 : 0]).batch) {
    return n.refuse("shape " + to_string(x.extents()) + ", expected " +
                    (p.batch_first ? "[N, T, F]" : "[T, N, F]"));
  }
  p.features = x.extent(x.dims[2]).count;
  ASSIGN_OR_RETURN(p.w, n.floats(1, "W"));
  ASSIGN_OR_RETURN(p.r, n.floats(2, "R"));
  const Ints r = counts_of(p.r->dims);
  if (r.size() != 3 || r[2] < 1 || r[2] > 65536)
    return n.refuse("R is not [directions, gates, hidden]");
  p.hidden = r[2];
  const int64_t rows = p.gates * p.hidden;
  if (r != Ints{p.directions, rows, p.hidden} ||
      counts_of(p.w->dims) != Ints{p.directions, rows, p.features} ||
      n.get_int("hidden_size", p.hidden) != p.hidden) {
    return n.refuse("W " + to_string(p.w->dims) + " and R " + to_string(p.r->dims) +
                    " do not fit together");
  }
  if (n.has_input(3)) {
    ASSIGN_OR_RETURN(p.b, n.floats(3, "B"));
    if (p.b->elements() != p.directions * 2 * rows) return n.refuse("B has the wrong size");
    if (n.importer().is_no_bias(*p.b)) p.b = nullptr;
  }
  if (n.has_input(4))
    return n.refuse("sequence_lens is not supported, expected sequences of one length");
  for (size_t i = 5; i < n.input_count(); ++i) {
    if (!n.has_input(i)) continue;
    const Constant* c = n.find_constant(i);
    if (c == nullptr || !c->is_float || !c->uniform() || c->floats->front() != 0) {
      return n.refuse("an initial state or peephole is not 0");
    }
  }
  if (p.gates == 3 && n.get_int("linear_before_reset", 0) == 0) {
    return n.refuse("linear_before_reset is 0, expected 1 as in PyTorch and the layer");
  }
  if (n.get_int("input_forget", 0) != 0) return n.refuse("input_forget is not supported");
  if (p.gates == 4 && n.wants_output(2))
    return n.refuse("Y_c is used, but the layer does not compute it");
  return {};
}

Status import_recurrent(NodeImport& n) {
  ASSIGN_OR_RETURN(const View x, n.view(0));
  Recurrent p;
  if (Status s = check_recurrent(n, p, x); !s.ok()) return s;
  Importer& importer = n.importer();
  View turned_x = x;
  if (!p.batch_first) std::swap(turned_x.dims[0], turned_x.dims[1]);
  ASSIGN_OR_RETURN(const Importer::Canonical c, importer.canonical(turned_x, /*keep_ones=*/true));
  const int64_t steps = importer.sizes_of(c.layer)[0], rows = p.gates * p.hidden;
  std::vector<std::string> layers;
  for (int64_t d = 0; d < p.directions; ++d) {
    Attributes a{{"hidden_size", p.hidden}};
    if (d == 1 || n.get_text("direction", "") == "reverse")
      a.set("direction", std::string("reverse"));
    if (p.b == nullptr) a.set("bias", int64_t{0});
    ASSIGN_OR_RETURN(const std::string layer, importer.add_layer(n.op(), std::move(a), {c.layer}));
    importer.set_weight(layer, "weight_ih", gates_of(p, *p.w, d * rows * p.features, p.features));
    importer.set_weight(layer, "weight_hh", gates_of(p, *p.r, d * rows * p.hidden, p.hidden));
    if (p.b != nullptr) {
      importer.set_weight(layer, "bias_ih", gates_of(p, *p.b, d * 2 * rows, 1));
      importer.set_weight(layer, "bias_hh", gates_of(p, *p.b, (d * 2 + 1) * rows, 1));
    }
    layers.push_back(layer);
  }
  // y [N, T, directions * H], y_h [N, directions * H]
  const auto join = [&](const std::string& suffix, int64_t axis) -> Result<std::string> {
    if (layers.size() == 1) return layers[0] + suffix;
    return importer.add_layer("Concat", {{"axis", axis}}, {layers[0] + suffix, layers[1] + suffix});
  };
  if (n.wants_output(0)) {
    View y;
    ASSIGN_OR_RETURN(y.layer, join("", 2));
    y.push_batch();
    y.push_dim(steps);
    y.push_dim(p.directions);
    y.push_dim(p.hidden);
    auto& d = y.dims;
    d = p.batch_first ? std::vector{d[0], d[1], d[2], d[3]} : std::vector{d[1], d[2], d[0], d[3]};
    (void)n.give(std::move(y), 0);
  }
  if (n.wants_output(1)) {
    View y;
    ASSIGN_OR_RETURN(y.layer, join(".1", 1));
    y.push_batch();
    y.push_dim(p.directions);
    y.push_dim(p.hidden);
    if (!p.batch_first) std::swap(y.dims[0], y.dims[1]);
    (void)n.give(std::move(y), 1);
  }
  return {};
}

}  // namespace

std::vector<ImportRow> sequence_imports() {
  const std::vector<AttributeSpec> recurrent = {{"direction", A::kText},
                                                {"hidden_size"},
                                                {"layout"},
                                                {"input_forget"},
                                                {"linear_before_reset"}};
  const std::string_view states =
      "sequence_lens; initial states other than 0; other activations, clip, layers of peepholes";
  return {{.op = "MatMul",
           .becomes = "linear, gemm; mat_mul; attention, with the nodes around it",
           .limits = "products that mix samples",
           .import = import_mat_mul,
           .fold = fold_mat_mul},
          {.op = "Gemm",
           .becomes = "gemm, linear; mat_mul",
           .attributes =
               {{"alpha", A::kFloat}, {"beta", A::kFloat}, {"transA"}, {"transB"}, {"broadcast"}},
           .import = import_gemm},
          {.op = "Gather",
           .becomes = "embedding; slice",
           .limits = "indices that are neither tokens nor constants",
           .attributes = {{"axis"}},
           .import = import_gather,
           .fold = fold_movement},
          {.op = "Softmax",
           .becomes = "softmax",
           .limits = "over the batch",
           .attributes = {{"axis"}},
           .import = import_softmax},
          {.op = "LogSoftmax",
           .becomes = "log_softmax",
           .limits = "over the batch",
           .attributes = {{"axis"}},
           .import = import_softmax},
          {.op = "LayerNormalization",
           .since = 17,
           .becomes = "layer_normalization",
           .limits = "Mean and InvStdDev; over the batch",
           .attributes = {{"axis"}, {"epsilon", A::kFloat}, {"stash_type"}},
           .import = import_layer_norm},
          {.op = "LSTM",
           .becomes = "lstm",
           .limits = states,
           .attributes = recurrent,
           .import = import_recurrent},
          {.op = "GRU",
           .becomes = "gru",
           .limits = "as LSTM; linear_before_reset: 0",
           .attributes = recurrent,
           .import = import_recurrent}};
}

}  // namespace trainyard::onnx
