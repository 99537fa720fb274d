#include "src/ops/transpose.h"

#include <algorithm>
#include <numeric>

#include "src/ops/axes.h"

namespace trainyard {

std::vector<int64_t> transpose_perm(const Attributes& attributes, int64_t rank) {
  std::vector<int64_t> reversed(static_cast<size_t>(rank));
  std::iota(reversed.rbegin(), reversed.rend(), int64_t{0});
  return attributes.get_ints("perm", std::move(reversed));
}

namespace {

class Transpose final : public Op {
 public:
  std::string_view type() const override { return "Transpose"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x"}, 1, {"perm"});
    check.float_type(0).not_empty(0);
    if (!check.ok()) return check.error();
    const Shape& x = c.input(0).shape;
    const std::vector<int64_t> perm = transpose_perm(c.attributes(), x.rank());
    std::vector<int64_t> counted(x.dims().size());
    std::iota(counted.begin(), counted.end(), int64_t{0});
    check.require(x.rank() <= kRankMax && std::ranges::is_permutation(perm, counted),
                  "ATTRIBUTE_OUT_OF_RANGE", "perm",
                  Shape(perm).to_string() + ", expected the axes " + Shape(counted).to_string() +
                      " of " + x.to_string() + " in some order");
    if (!check.ok()) return check.error();
    std::vector<int64_t> dims;
    for (const int64_t axis : perm) dims.push_back(x[axis]);
    return std::vector{TensorType{Shape(std::move(dims)), c.input(0).dtype}};
  }

  void differentiate(GradientContext& c) const override {
    const int64_t rank = c.graph().tensor(c.input(0)).type.shape.rank();
    const std::vector<int64_t> perm = transpose_perm(c.node().attributes, rank);
    std::vector<int64_t> inverse(perm.size());
    for (size_t i = 0; i < perm.size(); ++i) {
      inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
    }
    c.set_grad(0,
               c.add("grad", *transpose_op(), {{"perm", inverse}}, {c.grad_output(0)}, {true})[0]);
  }
};

}  // namespace

const Op* transpose_op() {
  static const Transpose op;
  return &op;
}

}  // namespace trainyard
