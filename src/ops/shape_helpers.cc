#include "src/ops/shape_helpers.h"

#include <algorithm>

#include "src/base/text.h"

namespace trainyard {

OpChecks::OpChecks(const InferContext& c, std::initializer_list<std::string_view> input_names,
                   int64_t required, std::initializer_list<std::string_view> attribute_names)
    : OpChecks(c, std::vector(input_names), required, std::vector(attribute_names)) {}

OpChecks::OpChecks(const InferContext& c, std::vector<std::string_view> input_names,
                   int64_t required, const std::vector<std::string_view>& attribute_names)
    : c_(c), input_names_(std::move(input_names)) {
  const auto accepted = static_cast<int64_t>(input_names_.size());
  if (c.input_count() > accepted) {
    refuse("INPUT_COUNT_INVALID", "inputs",
           std::to_string(c.input_count()) + " are given, expected at most " +
               std::to_string(accepted));
  }
  for (int64_t i = 0; i < required && ok_; ++i) {
    if (!c.has_input(i)) refuse("INPUT_COUNT_INVALID", input_name(i), "this input is required");
  }
  const std::vector<std::string> known(attribute_names.begin(), attribute_names.end());
  for (const auto& [name, value] : c.attributes().items()) {
    if (!ok_ || std::find(known.begin(), known.end(), name) != known.end()) continue;
    const auto nearest = nearest_name(name, known);
    refuse("ATTRIBUTE_UNKNOWN", name,
           "no such attribute" + (nearest ? "; did you mean '" + *nearest + "'?" : ""));
  }
}

std::string_view OpChecks::input_name(int64_t i) const {
  return input_names_.at(static_cast<size_t>(i));
}

void OpChecks::refuse(std::string_view reason, std::string_view field, std::string description) {
  if (!ok_) return;
  ok_ = false;
  error_ = field_error(std::string(reason), std::string(field), std::move(description));
}

OpChecks& OpChecks::rank(int64_t i, int64_t rank) {
  if (skip(i)) return *this;
  const Shape& s = c_.input(i).shape;
  if (s.rank() != rank) {
    refuse("SHAPE_MISMATCH", input_name(i),
           "shape " + s.to_string() + " has rank " + std::to_string(s.rank()) + ", expected rank " +
               std::to_string(rank));
  }
  return *this;
}

OpChecks& OpChecks::rank_at_least(int64_t i, int64_t rank) {
  if (skip(i)) return *this;
  const Shape& s = c_.input(i).shape;
  if (s.rank() < rank) {
    refuse("SHAPE_MISMATCH", input_name(i),
           "shape " + s.to_string() + " has rank " + std::to_string(s.rank()) + ", expected rank " +
               std::to_string(rank) + " or more");
  }
  return *this;
}

OpChecks& OpChecks::float_type(int64_t i) {
  if (skip(i) || is_float(c_.input(i).dtype)) return *this;
  refuse("DTYPE_MISMATCH", input_name(i),
         "type " + std::string(name_of(c_.input(i).dtype)) + ", expected F32 or F64");
  return *this;
}

OpChecks& OpChecks::dtype(int64_t i, DType dtype) {
  if (skip(i) || c_.input(i).dtype == dtype) return *this;
  refuse("DTYPE_MISMATCH", input_name(i),
         "type " + std::string(name_of(c_.input(i).dtype)) + ", expected " +
             std::string(name_of(dtype)));
  return *this;
}

OpChecks& OpChecks::same_dtype(int64_t i, int64_t j) {
  if (skip(i) || !c_.has_input(j)) return *this;
  if (c_.input(i).dtype != c_.input(j).dtype) {
    refuse("DTYPE_MISMATCH", input_name(i),
           "type " + std::string(name_of(c_.input(i).dtype)) + ", expected " +
               std::string(name_of(c_.input(j).dtype)) + " as " + std::string(input_name(j)));
  }
  return *this;
}

OpChecks& OpChecks::same_shape(int64_t i, int64_t j) {
  if (skip(i) || !c_.has_input(j)) return *this;
  if (c_.input(i).shape != c_.input(j).shape) {
    refuse("SHAPE_MISMATCH", input_name(i),
           "shape " + c_.input(i).shape.to_string() + ", expected " +
               c_.input(j).shape.to_string() + " as " + std::string(input_name(j)));
  }
  return *this;
}

OpChecks& OpChecks::shape(int64_t i, const Shape& expected) {
  if (skip(i) || c_.input(i).shape == expected) return *this;
  refuse("SHAPE_MISMATCH", input_name(i),
         "shape " + c_.input(i).shape.to_string() + ", expected " + expected.to_string());
  return *this;
}

OpChecks& OpChecks::not_empty(int64_t i) {
  if (skip(i)) return *this;
  const auto& dims = c_.input(i).shape.dims();
  if (std::any_of(dims.begin(), dims.end(), [](int64_t d) { return d < 1; })) {
    refuse("SHAPE_MISMATCH", input_name(i),
           "shape " + c_.input(i).shape.to_string() + ", expected dimensions of at least 1");
  }
  return *this;
}

OpChecks& OpChecks::int_in(std::string_view attribute, int64_t fallback, int64_t low,
                           int64_t high) {
  if (!ok_) return *this;
  const int64_t value = c_.attributes().get_int(attribute, fallback);
  if (value < low || value > high) {
    refuse("ATTRIBUTE_OUT_OF_RANGE", attribute,
           std::to_string(value) + " is out of range, expected " +
               (low == high ? std::to_string(low)
                            : std::to_string(low) + ".." + std::to_string(high)));
  }
  return *this;
}

OpChecks& OpChecks::require(bool condition, std::string_view reason, std::string_view field,
                            std::string_view description) {
  if (ok_ && !condition) refuse(reason, field, std::string(description));
  return *this;
}

Cost cost_per_element(const Op& op, const Graph& graph, const Node& node, int64_t flops) {
  Cost cost = op.Op::cost(graph, node);
  cost.flops = flops * graph.tensor(node.inputs[0]).type.shape.elements();
  return cost;
}

}  // namespace trainyard
