// The tests catch a kernel that trusts its arguments. A wrong call must get an error that names the
// kernel and the argument, before anything is written.
#include "kernels/contract.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "kernels/activation.h"
#include "kernels/alignment.h"
#include "kernels/cpu/team.h"
#include "kernels/dropout.h"
#include "kernels/pointwise_loss.h"
#include "kernels/softmax_xent.h"

namespace trainyard::kernels {
namespace {

void expect_refused(const std::function<void()>& call, const std::string& what) {
  try {
    call();
    ADD_FAILURE() << "not refused: " << what;
  } catch (const ContractError& e) {
    EXPECT_EQ(std::string(e.what()), what);
  }
}

class ContractTest : public ::testing::Test {
 protected:
  cpu::Team team_{1};
  std::vector<float> x_ = {1, 2, 3, 4}, y_ = {7, 7, 7, 7};
  const int64_t step_ = 0;
  const int32_t label_[2] = {0, 1};
  float loss_ = 7;
  alignas(kHostAlignment) std::byte workspace_[2 * kHostAlignment];
};

TEST_F(ContractTest, SizesStartAtOne) {
  expect_refused(
      [&] {
        cpu::dropout({0, 0.5, 1, 2}, &step_, x_.data(), y_.data(), team_);
      },
      "dropout: count is 0, not 1 or more");
  expect_refused(
      [&] {
        reference::dropout({-3, 0.5, 1, 2}, &step_, x_.data(), y_.data());
      },
      "dropout: count is -3, not 1 or more");
}

TEST_F(ContractTest, OperandsAreRequired) {
  expect_refused(
      [&] {
        cpu::dropout({4, 0.5, 1, 2}, nullptr, x_.data(), y_.data(), team_);
      },
      "dropout: step is missing");
  expect_refused(
      [&] {
        cpu::activation_forward<math::Relu>(4, x_.data(), static_cast<float*>(nullptr), team_);
      },
      "activation_forward: y is missing");
  expect_refused(
      [&] {
        reference::softmax_xent_forward<float, int32_t>(
            {2, 2}, {.z = x_.data(), .target = label_, .loss = &loss_, .prob = nullptr});
      },
      "softmax_xent_forward: prob is missing");
  EXPECT_EQ(loss_, 7);
}

TEST_F(ContractTest, NumbersAreInTheirRange) {
  expect_refused(
      [&] {
        cpu::dropout({4, 1, 1, 2}, &step_, x_.data(), y_.data(), team_);
      },
      "dropout: ratio is not in [0, 1)");
  SoftmaxXentParams p{2, 2};
  p.weights = {1};
  expect_refused(
      [&] {
        reference::softmax_xent_forward<float, int32_t>(
            p, {.z = x_.data(), .target = label_, .loss = &loss_, .prob = y_.data()});
      },
      "softmax_xent_forward: weights are not one for each class");
}

TEST_F(ContractTest, WorkspacesAreRequiredAndAligned) {
  const PointwiseLossOperands<float, float> o{.y = x_.data(), .t = x_.data(), .loss = &loss_};
  const math::MeanSquaredError f;
  expect_refused([&] { cpu::pointwise_loss(f, 4, o, team_); },
                 "pointwise_loss: workspace is missing");
  expect_refused(
      [&] {
        cpu::pointwise_loss(f, 4, o, {team_, workspace_ + 8});
      },
      "pointwise_loss: workspace is not aligned");
  EXPECT_EQ(loss_, 7);
  cpu::pointwise_loss(f, 4, o, {team_, workspace_});
  EXPECT_EQ(loss_, 0);
}

}  // namespace
}  // namespace trainyard::kernels
