// src/ops/shape_helpers.h: the checks that infer() of many ops makes, with uniform error messages.
//
//   OpChecks check(c, {"x", "w", "bias"}, /*required=*/2, {"transB"});
//   check.rank(0, 2).rank(1, 2).float_type(0).same_dtype(1, 0);
//   if (!check.ok()) return check.error();
//
// The first refusal is kept and later checks are skipped, so a check may rely on those before it.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "src/graph/op.h"

namespace trainyard {

class OpChecks {
 public:
  /// Refuses more inputs than are named, a missing one of the first `required` inputs, and
  /// attributes with other names.
  OpChecks(const InferContext& c, std::initializer_list<std::string_view> input_names,
           int64_t required, std::initializer_list<std::string_view> attribute_names = {});
  /// Does these checks with lists of names that are built at run time.
  OpChecks(const InferContext& c, std::vector<std::string_view> input_names, int64_t required,
           const std::vector<std::string_view>& attribute_names);

  OpChecks& rank(int64_t i, int64_t rank);
  OpChecks& rank_at_least(int64_t i, int64_t rank);
  OpChecks& float_type(int64_t i);  // F32 or F64
  OpChecks& dtype(int64_t i, DType dtype);
  OpChecks& same_dtype(int64_t i, int64_t j);
  OpChecks& same_shape(int64_t i, int64_t j);
  OpChecks& shape(int64_t i, const Shape& expected);  // the message has both shapes
  OpChecks& not_empty(int64_t i);                     // every dimension is at least 1
  /// Checks that an integer attribute is in [low, high]; if it is absent, checks `fallback`.
  OpChecks& int_in(std::string_view attribute, int64_t fallback, int64_t low, int64_t high);
  /// Does any other check: refuses unless `condition`. `field` is the name of an attribute or
  /// input.
  OpChecks& require(bool condition, std::string_view reason, std::string_view field,
                    std::string_view description);

  bool ok() const { return ok_; }
  const Error& error() const { return error_; }
  std::string_view input_name(int64_t i) const;

 private:
  bool skip(int64_t i) const { return !ok_ || !c_.has_input(i); }
  void refuse(std::string_view reason, std::string_view field, std::string description);

  const InferContext& c_;
  std::vector<std::string_view> input_names_;
  Error error_;
  bool ok_ = true;
};

/// Returns the cost of an elementwise op: all bytes of inputs and outputs, and `flops` FLOPs per
/// element of the first input.
Cost cost_per_element(const Op& op, const Graph& graph, const Node& node, int64_t flops);

}  // namespace trainyard
