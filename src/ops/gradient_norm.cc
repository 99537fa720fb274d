#include "src/ops/gradient_norm.h"

#include <algorithm>
#include <string_view>

#include "src/ops/shape_helpers.h"
#include "src/ops/shards.h"

namespace trainyard {
namespace {

/// Checks the inputs. OpChecks cannot do this, because it needs a name for each input, and the
/// number of gradients is not limited. `others` is the number of inputs after the gradients.
Status check_gradients(const InferContext& c, std::initializer_list<std::string_view> attributes,
                       int64_t others) {
  for (const auto& [name, value] : c.attributes().items()) {
    if (std::ranges::count(attributes, name) == 0) {
      return field_error("ATTRIBUTE_UNKNOWN", name, "no such attribute");
    }
  }
  if (c.input_count() <= others || !c.has_input(0) || !is_float(c.input(0).dtype)) {
    return field_error("INPUT_COUNT_INVALID", "gradients", "expected at least one, of floats");
  }
  for (int64_t i = 1; i < c.input_count(); ++i) {
    if (!c.has_input(i) || c.input(i).dtype != c.input(0).dtype) {
      return field_error("DTYPE_MISMATCH", "gradients",
                         std::to_string(i) + " has another type than the first");
    }
  }
  return {};
}

/// Returns the cost of a sum of squares: all bytes of the inputs, and one product and one sum per
/// element.
Cost cost_of_squares(const Op& op, const Graph& graph, const Node& node) {
  Cost cost = op.Op::cost(graph, node);
  for (const TensorId id : node.inputs) cost.flops += 2 * graph.tensor(id).type.shape.elements();
  return cost;
}

class GradientNorm final : public Op {
 public:
  std::string_view type() const override { return "GradientNorm"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    const int64_t scaled = c.attributes().get_int("scaled", 0) != 0 ? 1 : 0;
    if (Status s = check_gradients(c, {"max_norm", "scaled", kRanks}, scaled); !s.ok()) {
      return s.error();
    }
    const TensorType one{{1}, c.input(0).dtype};
    if (scaled == 1 && c.input(c.input_count() - 1).shape != one.shape) {
      return field_error("SHAPE_MISMATCH", "loss_scale", "expected one number");
    }
    return std::vector<TensorType>{one, one};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    return cost_of_squares(*this, graph, node);
  }
};

class GradientSquares final : public Op {
 public:
  std::string_view type() const override { return "GradientSquares"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    if (Status s = check_gradients(c, {"counts", "firsts"}, 0); !s.ok()) return s.error();
    const std::vector<int64_t> counts = c.attributes().get_ints("counts", {});
    if (std::ssize(counts) != c.input_count()) {
      return field_error("ATTRIBUTE_OUT_OF_RANGE", "counts", "expected one for each gradient");
    }
    const std::vector<int64_t> firsts =
        c.attributes().get_ints("firsts", std::vector<int64_t>(counts.size()));
    if (firsts.size() != counts.size()) {
      return field_error("ATTRIBUTE_OUT_OF_RANGE", "firsts", "expected one for each gradient");
    }
    for (int64_t i = 0; i < c.input_count(); ++i) {
      const int64_t count = counts[static_cast<size_t>(i)], first = firsts[static_cast<size_t>(i)];
      const int64_t elements = c.input(i).shape.elements();
      if (first < 0 || first > elements || count < 0 || count > elements - first) {
        return field_error("ATTRIBUTE_OUT_OF_RANGE", "counts",
                           std::to_string(count) + " from " + std::to_string(first) +
                               " on are out of range, expected 0.." + std::to_string(elements));
      }
    }
    return std::vector<TensorType>{{{1}, DType::kF64}};
  }
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t) const override {
    using enum Spread;
    const bool fit = std::ranges::all_of(inputs, [](Spread p) { return p == kOwn || is_part(p); });
    if (!fit) return std::nullopt;
    return std::vector{kOwn};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    return cost_of_squares(*this, graph, node);
  }
};

class NormOfSquares final : public Op {
 public:
  std::string_view type() const override { return "NormOfSquares"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    const int64_t scaled = c.attributes().get_int("scaled", 0) != 0 ? 1 : 0;
    OpChecks check(c, {"squares", "loss_scale"}, 1 + scaled, {"max_norm", "scaled", kRanks});
    check.dtype(0, DType::kF64).shape(0, {1}).dtype(1, DType::kF32).shape(1, {1});
    if (!check.ok()) return check.error();
    const TensorType one{{1}, DType::kF32};
    return std::vector<TensorType>{one, one};
  }
};

}  // namespace

const Op* gradient_norm_op() {
  static const GradientNorm op;
  return &op;
}
const Op* gradient_squares_op() {
  static const GradientSquares op;
  return &op;
}
const Op* norm_of_squares_op() {
  static const NormOfSquares op;
  return &op;
}

}  // namespace trainyard
