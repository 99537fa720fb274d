#include "src/onnx/import_attention.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "src/onnx/constant_elements.h"
#include "src/onnx/importer_axes.h"

namespace trainyard::onnx {
namespace {

const Constant* constant_at(const Importer& importer, const std::string& value) {
  const Value* found = importer.find(value);
  return found == nullptr ? nullptr : std::get_if<Constant>(found);
}

const View* view_at(const Importer& importer, const std::string& value) {
  const Value* found = importer.find(value);
  return found == nullptr ? nullptr : std::get_if<View>(found);
}

/// Returns the one number that a value is; nothing if it is something else, or trained.
std::optional<double> number_at(const Importer& importer, const std::string& value) {
  const Constant* c = constant_at(importer, value);
  if (c == nullptr || !c->is_float || c->trainable || c->stored() != 1) return std::nullopt;
  return static_cast<double>(c->floats->front());
}

bool has_op(const NodeProto* node, std::string_view op, size_t inputs) {
  return node != nullptr && node->op == op && node->inputs.size() == inputs;
}

/// Returns the node that computes a value, without nodes that keep it.
const NodeProto* computing_node(const Importer& importer, const std::string& value) {
  const NodeProto* node = importer.producer_of(value);
  while (node != nullptr && (node->op == "Cast" || node->op == "Identity") &&
         !node->inputs.empty()) {
    node = importer.producer_of(node->inputs[0]);
  }
  return node;
}

// --- attention ---

struct Pattern {
  std::string query, key, value;  // names of values; the key is transposed
  double scale = 1, dropout = 0;
  std::vector<Constant> masks;  // that are added to the scores
};

/// Follows a value back through factors that are single numbers, which it multiplies into `scale`.
std::string unscaled(const Importer& importer, std::string value, double& scale) {
  while (const NodeProto* node = computing_node(importer, value)) {
    if (node->inputs.size() != 2 || (node->op != "Mul" && node->op != "Div")) break;
    std::optional<double> by = number_at(importer, node->inputs[1]);
    size_t other = 0;
    if (!by && node->op == "Mul") {
      by = number_at(importer, node->inputs[0]);
      other = 1;
    }
    if (!by || *by == 0) break;
    scale *= node->op == "Mul" ? *by : 1 / *by;
    value = node->inputs[other];
  }
  return value;
}

/// Follows the scores back to their product, through factors and masks.
bool find_scores(const Importer& importer, std::string value, Pattern& p) {
  while (true) {
    value = unscaled(importer, value, p.scale);
    const NodeProto* node = computing_node(importer, value);
    if (has_op(node, "MatMul", 2)) {
      p.query = unscaled(importer, node->inputs[0], p.scale);
      p.key = unscaled(importer, node->inputs[1], p.scale);
      return true;
    }
    // A mask is added after the scores are scaled, so a factor must not have been found yet.
    if (p.scale != 1) return false;
    if (has_op(node, "Add", 2)) {
      const size_t at = constant_at(importer, node->inputs[1]) != nullptr ? 1 : 0;
      const Constant* mask = constant_at(importer, node->inputs[at]);
      if (mask == nullptr || !mask->is_float || mask->trainable) return false;
      p.masks.push_back(*mask);
      value = node->inputs[1 - at];
    } else if (has_op(node, "Where", 3)) {
      const Constant* test = constant_at(importer, node->inputs[0]);
      const size_t at = constant_at(importer, node->inputs[1]) != nullptr ? 1 : 2;
      const Constant* masked = constant_at(importer, node->inputs[at]);
      if (test == nullptr || masked == nullptr || !masked->is_float || masked->trainable) {
        return false;
      }
      // Another number would remain a score, so that the position would keep a probability.
      if (!std::ranges::all_of(*masked->floats, [](float x) { return x <= kMaskedMax; })) {
        return false;
      }
      const Constant zero = float_constant({}, {0});
      auto mask = chosen(*test, at == 1 ? *masked : zero, at == 1 ? zero : *masked);
      if (!mask.ok()) return false;
      p.masks.push_back(std::move(mask).value());
      value = node->inputs[3 - at];
    } else {
      return false;
    }
  }
}

/// Follows the probabilities back to the softmax, through dropout and PyTorch's guard against rows
/// that are all masked.
const NodeProto* find_softmax(NodeImport& n, Pattern& p) {
  Importer& importer = n.importer();
  const NodeProto* node = computing_node(importer, n.node().inputs[0]);
  while (node != nullptr && node->op != "Softmax") {
    if (node->op == "Dropout" && !node->inputs.empty()) {
      if (importer.names_parameters()) {
        const AttributeProto* a = node->find("ratio");  // an input from opset 12 on
        std::optional<double> ratio = a != nullptr ? a->f : 0.5;
        if (node->inputs.size() > 1) ratio = number_at(importer, node->inputs[1]);
        if (!ratio || p.dropout != 0) return nullptr;
        p.dropout = *ratio;
      }
      node = computing_node(importer, node->inputs[0]);
    } else if (has_op(node, "Where", 3)) {
      const NodeProto* test = importer.producer_of(node->inputs[0]);
      if (!has_op(test, "IsNaN", 1) || test->inputs[0] != node->inputs[2]) return nullptr;
      node = computing_node(importer, node->inputs[2]);
    } else {
      return nullptr;
    }
  }
  return node;
}

enum class Mask { kNone, kCausal, kOther };

/// Returns what the masks do to scores of `rows` positions and `columns` keys.
Mask kind_of(const std::vector<Constant>& masks, int64_t rows, int64_t columns) {
  bool is_none = true, is_causal = rows == columns;  // of the masks that change a score
  for (const Constant& given : masks) {
    const Result<Constant> one = one_sample(given);
    if (!one.ok() || one->empty()) return Mask::kOther;
    if (one->uniform() && one->floats->front() == 0) continue;
    const std::vector<Extent> scores = {{rows, false}, {columns, false}};
    const auto dims = broadcast_dims(one->dims, scores);
    if (!dims || !may_hold(product(counts_of(*dims)))) return Mask::kOther;
    const Constant mask = spread(*one, *dims);
    for (int64_t i = 0; i < mask.elements(); ++i) {
      const float x = at(*mask.floats, mask, i);
      const bool is_later = i % columns > i / columns % rows;
      is_none = is_none && x == 0;
      is_causal = is_causal && (is_later ? x <= kMaskedMax : x == 0);
    }
  }
  return is_none ? Mask::kNone : is_causal ? Mask::kCausal : Mask::kOther;
}

/// The dimensions of a query, key or value: [heads ..., positions, features], of which the first
/// begins with the batch.
struct Heads {
  std::vector<int> heads, positions, features;  // atoms
};

std::optional<Heads> heads_of(Importer& importer, const View& x) {
  if (x.rank() < 2) return std::nullopt;
  Heads h;
  for (size_t i = 0; i + 2 < x.dims.size(); ++i) {
    h.heads.insert(h.heads.end(), x.dims[i].begin(), x.dims[i].end());
  }
  h.positions = x.dims[x.dims.size() - 2];
  h.features = x.dims.back();
  const bool is_batched = importer.has_batch(x.layer) && !h.heads.empty() && h.heads.front() == 0;
  if (!is_batched || holds_batch(h.positions) || holds_batch(h.features)) return std::nullopt;
  h.heads.erase(h.heads.begin());
  if (holds_batch(h.heads)) return std::nullopt;
  return h;
}

Result<std::string> side_by_side(Importer& importer, const View& x, const Heads& h) {
  std::vector<int> row = h.heads;
  row.insert(row.end(), h.features.begin(), h.features.end());
  return importer.arrange(x, {h.positions, row});
}

/// Returns the view of an attention's output, whose dimensions are those of the query with the
/// features of the value.
View output_view(const std::string& layer, const View& query, const Heads& q, const View& value,
                 const Heads& v) {
  View y;
  y.layer = layer;
  std::vector<int> moved(query.atoms.size(), 0);
  for (const std::vector<int>* atoms : {&q.positions, &q.heads}) {
    for (const int atom : *atoms) {
      moved[static_cast<size_t>(atom)] = static_cast<int>(y.atoms.size());
      y.atoms.push_back(query.atoms[static_cast<size_t>(atom)]);
    }
  }
  for (size_t i = 0; i + 1 < query.dims.size(); ++i) {
    auto& dim = y.dims.emplace_back();
    for (const int atom : query.dims[i]) dim.push_back(moved[static_cast<size_t>(atom)]);
  }
  auto& features = y.dims.emplace_back();
  for (const int atom : v.features) {
    features.push_back(static_cast<int>(y.atoms.size()));
    y.atoms.push_back(value.atoms[static_cast<size_t>(atom)]);
  }
  return y;
}

}  // namespace

Result<bool> import_attention(NodeImport& n) {
  Importer& importer = n.importer();
  constexpr int64_t kHeadsMax = 1024;  // of an attention layer
  if (!n.has_input(0) || !n.has_input(1)) return false;
  Pattern p;
  const NodeProto* softmax = find_softmax(n, p);
  if (softmax == nullptr || softmax->inputs.size() != 1) return false;
  if (!find_scores(importer, softmax->inputs[0], p)) return false;
  const View *query = view_at(importer, p.query), *key = view_at(importer, p.key),
             *value = view_at(importer, n.node().inputs[1]);
  if (query == nullptr || key == nullptr || value == nullptr || !(p.scale > 0)) return false;
  View turned = *key;
  if (turned.rank() < 2) return false;
  std::swap(turned.dims[turned.dims.size() - 1], turned.dims[turned.dims.size() - 2]);
  const auto q = heads_of(importer, *query), k = heads_of(importer, turned),
             v = heads_of(importer, *value);
  if (!q || !k || !v) return false;
  const AttributeProto* axis = softmax->find("axis");
  const int64_t along = axis != nullptr ? axis->i : n.opset() < 13 ? 1 : -1;
  if (along != -1 && along != query->rank() - 1) return false;
  const int64_t rows = product_of(*query, q->positions), width = product_of(*query, q->features);
  const int64_t columns = product_of(turned, k->positions);
  const int64_t heads = product_of(*query, q->heads);
  const auto shape_of = [](const View& x, const Heads& h) {
    return std::array{x.rank(), product_of(x, h.heads), product_of(x, h.features)};
  };
  if (heads > kHeadsMax || shape_of(turned, *k) != shape_of(*query, *q) ||
      shape_of(*value, *v) != shape_of(*query, *q) || product_of(*value, v->positions) != columns) {
    return false;
  }
  const Mask mask = kind_of(p.masks, rows, columns);
  if (mask == Mask::kOther) return false;
  Attributes a{{"q_num_heads", heads}};
  if (mask == Mask::kCausal) a.set("is_causal", int64_t{1});
  const double usual = 1 / std::sqrt(static_cast<double>(width));
  if (std::fabs(p.scale - usual) > 1e-6 * usual) a.set("scale", p.scale);
  if (p.dropout > 0) a.set("dropout", p.dropout);
  const View query_view = *query, value_view = *value;
  ASSIGN_OR_RETURN(const std::string first, side_by_side(importer, query_view, *q));
  ASSIGN_OR_RETURN(const std::string second, side_by_side(importer, turned, *k));
  ASSIGN_OR_RETURN(const std::string third, side_by_side(importer, value_view, *v));
  ASSIGN_OR_RETURN(const std::string layer,
                   importer.add_layer("Attention", std::move(a), {first, second, third}));
  (void)n.give(output_view(layer, query_view, *q, value_view, *v));
  return true;
}

// --- RMS normalization ---

namespace {

bool is_same(const View& a, const View& b) {
  return a.layer == b.layer && a.atoms == b.atoms && a.dims == b.dims;
}

/// Returns the node that computes the square root of which a value is the reciprocal; null if it is
/// none.
const NodeProto* root_of_reciprocal(const Importer& importer, const std::string& value) {
  const NodeProto* node = computing_node(importer, value);
  if (has_op(node, "Div", 2) && number_at(importer, node->inputs[0]) == 1) {
    return computing_node(importer, node->inputs[1]);
  }
  return has_op(node, "Reciprocal", 1) ? computing_node(importer, node->inputs[0]) : nullptr;
}

/// Returns true if the node computes the square of `x`.
bool squares(const Importer& importer, const NodeProto* node, const View& x) {
  if (!has_op(node, "Pow", 2) && !has_op(node, "Mul", 2)) return false;
  const View *first = view_at(importer, node->inputs[0]),
             *second = view_at(importer, node->inputs[1]);
  if (first == nullptr || !is_same(*first, x)) return false;
  if (node->op == "Mul") return second != nullptr && is_same(*second, x);
  const Constant* exponent = constant_at(importer, node->inputs[1]);
  if (exponent == nullptr || exponent->stored() != 1) return false;
  return exponent->is_float ? exponent->floats->front() == 2
                            : exponent->ints->front() == Extent{2, false};
}

/// Returns the axes over which a node takes the mean; nothing if they are not constant.
std::optional<std::vector<int64_t>> mean_axes(const Importer& importer, const NodeProto& node) {
  if (const AttributeProto* a = node.find("axes"); a != nullptr) return a->ints;
  if (node.inputs.size() < 2) return std::nullopt;
  const Constant* c = constant_at(importer, node.inputs[1]);
  if (c == nullptr || c->is_float || c->stored() != 1 || has_batch(*c->ints)) return std::nullopt;
  return counts_of(*c->ints);
}

/// Returns the epsilon of a root of the mean of squares of `x`; nothing if `root` is none.
std::optional<double> epsilon_of(const Importer& importer, const NodeProto* root, const View& x) {
  if (!has_op(root, "Sqrt", 1)) return std::nullopt;
  const NodeProto* plus = computing_node(importer, root->inputs[0]);
  if (!has_op(plus, "Add", 2)) return std::nullopt;
  const size_t at = number_at(importer, plus->inputs[1]) ? 1 : 0;
  const auto epsilon = number_at(importer, plus->inputs[at]);
  const NodeProto* mean = computing_node(importer, plus->inputs[1 - at]);
  if (!epsilon || !(*epsilon > 0 && *epsilon <= 1) || mean == nullptr || mean->op != "ReduceMean" ||
      mean->inputs.empty()) {
    return std::nullopt;
  }
  const auto axes = mean_axes(importer, *mean);
  const bool is_last =
      axes && axes->size() == 1 && (axes->front() == -1 || axes->front() == x.rank() - 1);
  const AttributeProto* keepdims = mean->find("keepdims");
  if (!is_last || (keepdims != nullptr && keepdims->i == 0)) return std::nullopt;
  return squares(importer, computing_node(importer, mean->inputs[0]), x) ? epsilon : std::nullopt;
}

/// Returns the vector of `width` numbers by which the only reader of a value multiplies it, and
/// that reader; null if there is none.
std::pair<const Constant*, const NodeProto*> weight_after(const Importer& importer,
                                                          const NodeProto& node, int64_t width) {
  const NodeProto* next = importer.only_reader(node.outputs[0]);
  std::string value = node.outputs[0];
  while (next != nullptr && (next->op == "Cast" || next->op == "Identity")) {
    value = next->outputs[0];
    next = importer.only_reader(value);
  }
  if (!has_op(next, "Mul", 2)) return {};
  const Constant* c = constant_at(importer, next->inputs[next->inputs[0] == value ? 1 : 0]);
  const bool is_vector = c != nullptr && c->is_float && !has_batch(c->dims) && !c->dims.empty() &&
                         c->dims.back().count == width && c->elements() == width;
  if (!is_vector || (c->origins && importer.is_shared(*c))) return {};
  return {c, next};
}

}  // namespace

Result<bool> import_rms_norm(NodeImport& n) {
  Importer& importer = n.importer();
  const std::vector<std::string>& inputs = n.node().inputs;
  const View* x = view_at(importer, inputs[0]);
  const NodeProto* root = nullptr;
  if (n.op() == "Div") {
    root = computing_node(importer, inputs[1]);
  } else if (n.op() == "Mul") {
    root = root_of_reciprocal(importer, inputs[1]);
    if (root == nullptr) {
      root = root_of_reciprocal(importer, inputs[0]);
      x = view_at(importer, inputs[1]);
    }
  }
  if (x == nullptr || root == nullptr || x->dims.empty() || holds_batch(x->dims.back())) {
    return false;
  }
  const auto epsilon = epsilon_of(importer, root, *x);
  if (!epsilon) return false;
  const auto [weight, next] = weight_after(importer, n.node(), x->extent(x->dims.back()).count);
  if (weight == nullptr) return false;
  ASSIGN_OR_RETURN(const Importer::Canonical c, importer.canonical(*x, /*keep_ones=*/true));
  ASSIGN_OR_RETURN(const std::string layer,
                   importer.add_layer("RMSNormalization", {{"epsilon", *epsilon}}, {c.layer},
                                      Importer::name_hint(*weight)));
  importer.set_weight(layer, "weight", numbers_of(*weight));
  importer.remember_weight(weight->initializer, layer);
  View y = c.view;
  y.layer = layer;
  ASSIGN_OR_RETURN(y, importer.reshape(std::move(y), x->extents()));
  (void)n.give(y);
  importer.mark_done(*next);
  importer.define(next->outputs[0], std::move(y));
  return true;
}

}  // namespace trainyard::onnx
