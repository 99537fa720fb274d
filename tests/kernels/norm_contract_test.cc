// The tests catch a normalization, a pool or an attention kernel that trusts its operands. A wrong
// call must get an error that names the kernel and the operand, before anything is written.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/alignment.h"
#include "kernels/attention.h"
#include "kernels/batch_norm.h"
#include "kernels/contract.h"
#include "kernels/cpu/team.h"
#include "kernels/group_norm.h"
#include "kernels/layer_norm.h"
#include "kernels/pool.h"
#include "kernels/softmax.h"

namespace trainyard::kernels {
namespace {

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const ContractError& e) {
    return e.what();
  }
  return "";
}

class NormContract : public ::testing::Test {
 protected:
  cpu::Team team_{1};
  const std::vector<float> x_ = std::vector<float>(16, 1);
  std::vector<float> y_ = std::vector<float>(16, 7);
  std::vector<float> a_ = std::vector<float>(16, 1), b_ = std::vector<float>(16, 1);
  uint8_t winner_[16] = {};
  alignas(kHostAlignment) std::byte workspace_[4096] = {};
  const cpu::Run run_{team_, workspace_};
};

TEST_F(NormContract, EachFormHasItsOperands) {
  LayerNormOperands<float> o{.x = x_.data(), .scale = a_.data(), .y = y_.data()};
  EXPECT_EQ(refusal([&] {
              cpu::layer_norm_forward({0, 4}, o, run_);
            }),
            "layer_norm_forward: rows is 0, not 1 or more");
  o.b = b_.data();
  EXPECT_EQ(refusal([&] {
              cpu::layer_norm_forward({4, 4, 1e-5, true}, o, run_);
            }),
            "layer_norm_forward: b must be null in the RMS form");
  EXPECT_EQ(refusal([&] { reference::layer_norm_forward({4, 4}, o); }), "");
  LayerNormGradOperands<float> grad{
      .x = x_.data(), .scale = a_.data(), .inv_std = b_.data(), .dy = x_.data()};
  EXPECT_EQ(refusal([&] {
              reference::layer_norm_backward({4, 4}, grad);
            }),
            "layer_norm_backward: mean must be given in the layer form, and only there");
  grad.mean = a_.data();
  EXPECT_EQ(refusal([&] {
              cpu::layer_norm_backward({4, 4}, grad, team_);
            }),
            "layer_norm_backward: workspace is missing");
}

TEST_F(NormContract, MasksAreGivenInOneWay) {
  const BatchNormDims d{{4, 4, 1, 1}};
  const ImageStrides s = ImageStrides::channels_last(d.x);
  BatchNormGradOperands<float> o{.x = x_.data(),
                                 .dy = x_.data(),
                                 .scale = a_.data(),
                                 .mean = a_.data(),
                                 .inv_std = b_.data(),
                                 .relu = true,
                                 .dx = y_.data()};
  const std::string either =
      "batch_norm_backward: b or y must be given with relu, and only one of them";
  EXPECT_EQ(refusal([&] { cpu::batch_norm_backward(d, s, o, run_); }), either);
  o.b = b_.data();
  o.y = x_.data();
  EXPECT_EQ(refusal([&] { cpu::batch_norm_backward(d, s, o, run_); }), either);
  o.y = nullptr;
  EXPECT_EQ(refusal([&] { cpu::batch_norm_backward(d, s, o, run_); }), "");
  o.relu = false;
  o.b = nullptr;
  o.g = y_.data();
  EXPECT_EQ(refusal([&] { reference::batch_norm_backward(d, s, o); }),
            "batch_norm_backward: g requires relu");
}

TEST_F(NormContract, GroupsDivideTheChannels) {
  const GroupNormDims d{{2, 4, 1, 2}, 3};
  const GroupNormOperands<float> o{
      .x = x_.data(), .scale = a_.data(), .b = b_.data(), .y = y_.data()};
  EXPECT_EQ(refusal([&] { reference::group_norm_forward(d, ImageStrides::row_major(d.x), o); }),
            "group_norm_forward: groups is not a divisor of the channels");
}

TEST_F(NormContract, PoolsStoreTheMaximumsIndexOrSearchForIt) {
  const PoolDims d{{1, 1, 4, 4}, {2, 2, 2, 2}};
  const PoolStrides s{ImageStrides::channels_last(d.x), ImageStrides::channels_last(d.y())};
  const MaxPoolGradOperands<float> both{
      .x = x_.data(), .winner = winner_, .dy = x_.data(), .dx = y_.data()};
  EXPECT_EQ(refusal([&] { cpu::max_pool_backward(d, s, both, team_); }),
            "max_pool_backward: winner or x must be given, and only one of them");
  PoolDims behind_relu = d;
  behind_relu.relu = true;
  const MaxPoolGradOperands<float> without{.x = x_.data(), .dy = x_.data(), .dx = y_.data()};
  EXPECT_EQ(refusal([&] { reference::max_pool_backward(behind_relu, s, without); }),
            "max_pool_backward: winner is missing after ReLU");
  EXPECT_EQ(y_, std::vector<float>(16, 7));
  EXPECT_EQ(refusal([&] { reference::average_pool_forward<float>(d, s, nullptr, y_.data()); }),
            "an average pool: input is missing");
}

TEST_F(NormContract, DropoutOfAttentionNeedsTheStep) {
  AttentionDims d{.N = 1,
                  .H = 1,
                  .Tq = 2,
                  .Tk = 2,
                  .D = 4,
                  .q_row = 4,
                  .kv_row = 4,
                  .scale = 1,
                  .causal = false};
  AttentionOperands<float> o{.q = x_.data(), .k = x_.data(), .v = x_.data(), .y = y_.data()};
  EXPECT_EQ(refusal([&] { reference::attention_forward(d, o); }), "");
  d.dropout = 0.5;
  EXPECT_EQ(refusal([&] { reference::attention_forward(d, o); }),
            "attention_forward: step is missing");
  d.dropout = 0;
  o.k = nullptr;
  EXPECT_EQ(refusal([&] { reference::attention_forward(d, o); }),
            "attention_forward: k is missing");
}

TEST_F(NormContract, SoftmaxNeedsAWidth) {
  EXPECT_EQ(refusal([&] {
              cpu::softmax_forward({4, 0, 1}, x_.data(), y_.data(), team_);
            }),
            "softmax_forward: values is 0, not 1 or more");
}

}  // namespace
}  // namespace trainyard::kernels
