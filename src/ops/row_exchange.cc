#include "src/ops/row_exchange.h"

#include <algorithm>
#include <limits>

#include "src/ops/all_reduce.h"
#include "src/ops/shape_helpers.h"
#include "src/ops/shards.h"

namespace trainyard {
namespace {

constexpr const char* kFactor = "factor";
constexpr int64_t kNumberMax = std::numeric_limits<int32_t>::max();

OpChecks check_rows(const InferContext& c, std::string_view input) {
  OpChecks check(c, std::vector<std::string_view>(static_cast<size_t>(c.input_count()), input), 1,
                 {"bucket", kRanks, kFactor});
  check.require(c.input_count() <= kBucketTensorsMax, "INPUT_COUNT_INVALID", input,
                std::to_string(c.input_count()) + " are given, expected 1.." +
                    std::to_string(kBucketTensorsMax));
  check.int_in("bucket", -1, 0, kNumberMax - 1).int_in(kRanks, 0, 2, kNumberMax);
  const bool is_scaled = c.attributes().find(kFactor) != nullptr;
  check.require(!is_scaled || c.attributes().get_float(kFactor, 0) > 0, "ATTRIBUTE_OUT_OF_RANGE",
                kFactor, "expected more than 0");
  for (int64_t i = 0; i < c.input_count() && check.ok(); ++i) {
    check.require(c.has_input(i), "INPUT_COUNT_INVALID", input, "none may be left out");
    check.rank_at_least(i, 1).not_empty(i);
    if (is_scaled) check.float_type(i);
  }
  return check;
}

TensorType with_rows(const TensorType& type, int64_t rows) {
  std::vector<int64_t> dims(type.shape.dims().begin(), type.shape.dims().end());
  dims[0] = rows;
  return {Shape(std::move(dims)), type.dtype};
}

std::optional<std::vector<Spread>> spread_all(const std::vector<Spread>& inputs,
                                              std::initializer_list<Spread> taken, Spread given) {
  const bool fits = std::ranges::all_of(
      inputs, [&](Spread p) { return std::ranges::find(taken, p) != taken.end(); });
  if (!fits) return std::nullopt;
  return std::vector(inputs.size(), given);
}

/// Returns a rule by which the exchange never converts tensors to 16 bits.
PrecisionRule all_as_typed() {
  std::vector<int64_t> all(static_cast<size_t>(kBucketTensorsMax));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  return {.f32_outputs = all, .f32_inputs = all};
}

/// Appends the gradient of a row exchange: the opposite exchange, `other`, with `factor` if given.
void differentiate_rows(GradientContext& c, const Op& other, std::optional<double> factor) {
  std::vector<int64_t> of;
  std::vector<TensorId> gradients;
  for (int64_t i = 0; i < std::ssize(c.node().inputs); ++i) {
    if (!c.needs_grad(i) || c.grad_output(i) == kNoTensor) continue;
    of.push_back(i);
    gradients.push_back(c.grad_output(i));
  }
  if (of.empty()) return;
  const std::vector<bool> wanted(of.size(), true);
  const Attributes& own = c.node().attributes;
  Attributes attributes{{"bucket", own.get_int("bucket", 0) + 1}, {kRanks, own.get_int(kRanks, 0)}};
  if (factor.has_value()) attributes.set(kFactor, *factor);
  const std::vector<TensorId> rows =
      c.add("grad", other, std::move(attributes), std::move(gradients), wanted);
  for (size_t k = 0; k < of.size(); ++k) c.set_grad(of[k], rows[k]);
}

class ScatterRows final : public Op {
 public:
  std::string_view type() const override { return "ScatterRows"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check = check_rows(c, "gradient");
    const int64_t ranks = c.attributes().get_int(kRanks, 0);
    std::vector<TensorType> types;
    for (int64_t i = 0; i < c.input_count() && check.ok(); ++i) {
      check.float_type(i);
      if (!check.ok()) break;
      const TensorType& g = c.input(i);
      check.require(g.shape[0] % ranks == 0, "SHAPE_MISMATCH", "gradient",
                    "shape " + g.shape.to_string() + " cannot be cut into the rows of " +
                        std::to_string(ranks) + " ranks");
      types.push_back(with_rows(g, g.shape[0] / ranks));
    }
    if (!check.ok()) return check.error();
    return types;
  }
  void differentiate(GradientContext& c) const override {
    const Attributes& own = c.node().attributes;
    differentiate_rows(c, *gather_rows_op(),
                       row_factor(type(), own) / static_cast<double>(own.get_int(kRanks, 0)));
  }
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t) const override {
    return spread_all(inputs, {Spread::kSummand}, Spread::kOwn);
  }
  bool starts_other_work() const override { return true; }
  PrecisionRule precision_rule() const override { return all_as_typed(); }
};

class GatherRows final : public Op {
 public:
  std::string_view type() const override { return "GatherRows"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    const OpChecks check = check_rows(c, "x");
    if (!check.ok()) return check.error();
    std::vector<TensorType> types;
    for (int64_t i = 0; i < c.input_count(); ++i) {
      types.push_back(
          with_rows(c.input(i), c.input(i).shape[0] * c.attributes().get_int(kRanks, 0)));
    }
    return types;
  }
  void differentiate(GradientContext& c) const override {
    const Attributes& own = c.node().attributes;
    std::optional<double> factor;
    if (own.find(kFactor) != nullptr) {
      factor = row_factor(type(), own) * static_cast<double>(own.get_int(kRanks, 0));
    }
    differentiate_rows(c, *scatter_rows_op(), factor);
  }
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t) const override {
    return spread_all(inputs, {Spread::kOwn, Spread::kClasses}, Spread::kGathered);
  }
  bool starts_other_work() const override { return true; }
  PrecisionRule precision_rule() const override { return all_as_typed(); }
};

}  // namespace

double row_factor(std::string_view op_type, const Attributes& attributes) {
  const double usual =
      op_type == "ScatterRows" ? static_cast<double>(attributes.get_int(kRanks, 1)) : 1;
  return attributes.get_float(kFactor, usual);
}

const Op* gather_rows_op() {
  static const GatherRows op;
  return &op;
}
const Op* scatter_rows_op() {
  static const ScatterRows op;
  return &op;
}

}  // namespace trainyard
