// Kernels of layers that are not trained: products whose weights are stored in 16 bits, and the
// head that is computed with its loss.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/team.h"
#include "kernels/gemm.h"
#include "kernels/head_loss.h"
#include "kernels/math/half.h"
#include "kernels/math/philox.h"

namespace trainyard::kernels {
namespace {

std::vector<float> drawn_floats(int64_t count, uint32_t stream, float size = 1) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = size * (2 * math::uniform01<float>(math::philox_u32(1, stream, 0, i)) - 1);
  }
  return values;
}

/// Weights of 16 bits, and the floats that they are.
template <typename Half>
struct HalfWeights {
  std::vector<Half> stored;
  std::vector<float> wide;
  explicit HalfWeights(int64_t count) {
    for (const float value : drawn_floats(count, 2)) {
      stored.push_back(math::narrow<Half>(value));
      wide.push_back(math::widen(stored.back()));
    }
  }
};

/// Memory at a multiple of 64 bytes, as kernels need it.
class Workspace {
 public:
  explicit Workspace(int64_t bytes) : memory_(static_cast<size_t>(bytes) + 64) {}
  void* get() {
    const auto at = reinterpret_cast<uintptr_t>(memory_.data());
    return memory_.data() + (64 - at % 64) % 64;
  }

 private:
  std::vector<std::byte> memory_;
};

template <typename Half>
void expect_the_bits_of_floats(const GemmDims& d, cpu::Stored stored, int threads) {
  cpu::Team team(threads);
  const HalfWeights<Half> w(d.K * d.F);
  const std::vector<float> x = drawn_floats(d.N * d.F, 3), dy = drawn_floats(d.N * d.K, 4);
  const std::vector<float> b = drawn_floats(d.K, 5), c = drawn_floats(d.N * d.F, 6);
  std::vector<float> y[2], dx[2], sum[2];
  for (const int half : {0, 1}) {
    const void* weights = half == 1 ? static_cast<const void*>(w.stored.data()) : w.wide.data();
    const cpu::Stored type = half == 1 ? stored : cpu::Stored::kF32;
    y[half].resize(dy.size());
    dx[half].resize(x.size());
    sum[half] = c;
    cpu::GemmForward forward(d, true, team, {type});
    forward.run(x.data(), weights, b.data(), y[half].data(),
                Workspace(forward.workspace_bytes()).get());
    cpu::GemmBackward backward(d, true, false, team, {type});
    backward.run(x.data(), weights, dy.data(), dx[half].data(), nullptr, nullptr,
                 Workspace(backward.workspace_bytes()).get());
    cpu::GemmBackward adding({d.N, d.K, d.F, true}, true, false, team, {type});
    adding.run(x.data(), weights, dy.data(), sum[half].data(), nullptr, nullptr,
               Workspace(adding.workspace_bytes()).get());
  }
  EXPECT_EQ(y[0], y[1]);
  EXPECT_EQ(dx[0], dx[1]);
  EXPECT_EQ(sum[0], sum[1]);
  for (size_t i = 0; i < c.size(); ++i) {
    ASSERT_NEAR(sum[0][i], c[i] + dx[0][i], 1e-5 * (1 + std::fabs(dx[0][i])));
  }
}

TEST(FrozenProducts, HaveTheBitsOfFloatWeights) {
  for (const int threads : {1, 2, 3}) {
    for (const GemmDims& d :
         {GemmDims{1, 1, 1}, GemmDims{5, 7, 9}, GemmDims{70, 130, 96}, GemmDims{128, 288, 576}}) {
      SCOPED_TRACE(std::to_string(d.K) + " outputs, threads " + std::to_string(threads));
      expect_the_bits_of_floats<math::Bf16>(d, cpu::Stored::kBf16, threads);
      expect_the_bits_of_floats<math::F16>(d, cpu::Stored::kF16, threads);
    }
  }
}

// A weight this large is widened in parts, in forward.
TEST(FrozenProducts, AreComputedInPartsIfTheWeightIsLarge) {
  const GemmDims d{8, 20000, 256};
  cpu::Team team(2);
  const HalfWeights<math::Bf16> w(d.K * d.F);
  const std::vector<float> x = drawn_floats(d.N * d.F, 3);
  cpu::GemmForward wide(d, false, team), narrow(d, false, team, {cpu::Stored::kBf16});
  EXPECT_LT(narrow.workspace_bytes() - wide.workspace_bytes(), d.K * d.F * 4 - 100'000);
  std::vector<float> y[2] = {std::vector<float>(static_cast<size_t>(d.N * d.K)),
                             std::vector<float>(static_cast<size_t>(d.N * d.K))};
  wide.run(x.data(), w.wide.data(), nullptr, y[0].data(), Workspace(wide.workspace_bytes()).get());
  narrow.run(x.data(), w.stored.data(), nullptr, y[1].data(),
             Workspace(narrow.workspace_bytes()).get());
  EXPECT_EQ(y[0], y[1]);
}

// On a CPU that multiplies bfloat16 numbers, products read them as they are. The factors are exact
// and the sums are float, so that only the order of the sum differs from float weights.
TEST(FrozenProducts, MultiplyBfloat16) {
  if (!cpu::multiplies_bf16()) GTEST_SKIP() << "this CPU has no instructions for bfloat16";
  const GemmDims d{96, 160, 128};
  cpu::Team team(2);
  const HalfWeights<math::Bf16> w(d.K * d.F);
  const auto halves = [](const std::vector<float>& from) {
    std::vector<math::Bf16> to;
    for (const float value : from) to.push_back(math::narrow<math::Bf16>(value));
    return to;
  };
  const auto floats = [](const std::vector<math::Bf16>& from) {
    std::vector<float> to;
    for (const math::Bf16 value : from) to.push_back(math::widen(value));
    return to;
  };
  const auto x = halves(drawn_floats(d.N * d.F, 3)), dy = halves(drawn_floats(d.N * d.K, 4));
  const std::vector<float> b = drawn_floats(d.K, 5);
  std::vector<float> y(dy.size()), dx(x.size()), dw(w.wide.size()), y32(y), dx32(dx), dw32(dw);
  std::vector<math::Bf16> y16(dy);
  cpu::GemmForm form{cpu::Stored::kBf16, true, false};
  cpu::GemmForward forward(d, true, team, form), plain(d, true, team);
  forward.run(x.data(), w.stored.data(), b.data(), y.data(),
              Workspace(forward.workspace_bytes()).get());
  plain.run(floats(x).data(), w.wide.data(), b.data(), y32.data(),
            Workspace(plain.workspace_bytes()).get());
  cpu::GemmBackward backward(d, true, true, team, form), of_floats(d, true, true, team);
  backward.run(x.data(), w.stored.data(), dy.data(), dx.data(), dw.data(), nullptr,
               Workspace(backward.workspace_bytes()).get());
  of_floats.run(floats(x).data(), w.wide.data(), floats(dy).data(), dx32.data(), dw32.data(),
                nullptr, Workspace(of_floats.workspace_bytes()).get());
  const auto expect_near = [](const std::vector<float>& got, const std::vector<float>& wanted,
                              float share) {
    float most = 0;
    for (const float value : wanted) most = std::max(most, std::fabs(value));
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], share * most) << i;
  };
  expect_near(y, y32, 1e-6F);
  expect_near(dx, dx32, 1e-6F);
  expect_near(dw, dw32, 1e-6F);
  // The result is rounded once, after the sum.
  form.bf16_result = true;
  cpu::GemmForward adding({d.N, d.K, d.F, true}, true, team, form);
  adding.run(x.data(), w.stored.data(), b.data(), y16.data(),
             Workspace(adding.workspace_bytes()).get());
  for (size_t i = 0; i < y.size(); ++i) y32[i] += math::widen(dy[i]);
  expect_near(floats(y16), y32, 1.0F / 256);
}

/// Loss and gradient of a head, in double.
struct HeadResult {
  double loss = 0;
  std::vector<double> dx;
};
HeadResult head_in_double(const SoftmaxXentParams& p, int64_t F, const std::vector<float>& x,
                          const std::vector<float>& w, const std::vector<float>& b,
                          const std::vector<int32_t>& label, double dloss) {
  HeadResult result;
  result.dx.resize(x.size());
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  const auto weight = [&](int64_t k) { return p.weights.empty() ? 1.0 : p.weights[at(k)]; };
  double total = 0;
  for (const int32_t l : label) total += l == p.ignored ? 0 : weight(l);
  if (total == 0) return result;
  for (int64_t n = 0; n < p.rows; ++n) {
    if (label[at(n)] == p.ignored) continue;
    std::vector<double> z(at(p.classes)), c(at(p.classes));
    double most = -1e300, sum = 0, all = 0;
    for (int64_t k = 0; k < p.classes; ++k) {
      z[at(k)] = b.empty() ? 0 : static_cast<double>(b[at(k)]);
      for (int64_t f = 0; f < F; ++f) {
        z[at(k)] += static_cast<double>(x[at(n * F + f)]) * static_cast<double>(w[at(k * F + f)]);
      }
      most = std::max(most, z[at(k)]);
      c[at(k)] = weight(k) * ((k == label[at(n)] ? 1 - p.smoothing : 0) +
                              p.smoothing / static_cast<double>(p.classes));
      all += c[at(k)];
    }
    for (const double value : z) sum += std::exp(value - most);
    for (int64_t k = 0; k < p.classes; ++k) {
      const double log_p = z[at(k)] - most - std::log(sum);
      result.loss -= c[at(k)] * log_p / total;
      const double dz = dloss / total * (std::exp(log_p) * all - c[at(k)]);
      for (int64_t f = 0; f < F; ++f) {
        result.dx[at(n * F + f)] += dz * static_cast<double>(w[at(k * F + f)]);
      }
    }
  }
  return result;
}

struct HeadCase {
  SoftmaxXentParams p;
  int64_t F = 24;
  bool bias = false;
  int every = 1;  // one row in so many counts; 0: none
};

void expect_head(const HeadCase& test, int threads) {
  const SoftmaxXentParams& p = test.p;
  const int64_t F = test.F;
  cpu::Team team(threads);
  const HalfWeights<math::Bf16> w(p.classes * F);
  const std::vector<float> x = drawn_floats(p.rows * F, 3, 2);
  const std::vector<float> b = test.bias ? drawn_floats(p.classes, 4) : std::vector<float>();
  std::vector<int32_t> label;
  for (int64_t n = 0; n < p.rows; ++n) {
    const bool counts = test.every > 0 && n % test.every == 0;
    label.push_back(static_cast<int32_t>(counts ? (7 * n + 3) % p.classes : p.ignored));
  }
  const float dloss = 0.5;
  const HeadResult wanted = head_in_double(p, F, x, w.wide, b, label, dloss);
  std::vector<float> dx_of[2];
  float loss_of[2] = {};
  for (const int half : {0, 1}) {
    const void* weights = half == 1 ? static_cast<const void*>(w.stored.data()) : w.wide.data();
    cpu::HeadLoss::Form form;
    form.w = half == 1 ? cpu::Stored::kBf16 : cpu::Stored::kF32;
    form.bias = test.bias;
    cpu::HeadLoss head(p, F, form, team);
    dx_of[half].assign(x.size(), NAN);
    head.run({x.data(), weights, test.bias ? b.data() : nullptr, label.data(), &dloss,
              &loss_of[half], dx_of[half].data()},
             Workspace(head.workspace_bytes()).get());
  }
  EXPECT_EQ(loss_of[0], loss_of[1]) << "the storage of w changes no bit";
  EXPECT_EQ(dx_of[0], dx_of[1]);
  EXPECT_NEAR(loss_of[0], wanted.loss, 2e-6 * std::fabs(wanted.loss));
  double most = 0;
  for (const double value : wanted.dx) most = std::max(most, std::fabs(value));
  for (size_t i = 0; i < wanted.dx.size(); ++i) {
    ASSERT_NEAR(dx_of[0][i], wanted.dx[i], 3e-5 * most) << i;
  }
}

TEST(FrozenHead, IsTheProductItsLossAndTheirGradient) {
  std::vector<double> weights(70);
  for (size_t k = 0; k < weights.size(); ++k) weights[k] = 0.25 * static_cast<double>(k % 5);
  const std::vector<HeadCase> cases = {
      {{5, 2}, 3},
      {{33, 70}, 24, true},
      {{40, 70}, 24, false, 3},
      {{40, 70, 0.1, 4}, 24, true, 2},
      {{40, 70, 0.1, -1, weights}, 24, true, 2},
      {{10, 70}, 24, false, 0},
      // Several blocks of classes.
      {{70, 1000}, 600, false, 2},
  };
  for (const HeadCase& test : cases) {
    for (const int threads : {1, 2, 3}) {
      SCOPED_TRACE(std::to_string(test.p.rows) + " rows, " + std::to_string(test.p.classes) +
                   " classes, threads " + std::to_string(threads));
      expect_head(test, threads);
    }
  }
}

// In bfloat16, x and dx have 8 significant bits, and so has the gradient of the scores.
TEST(FrozenHead, OfBfloat16RoundsItsResults) {
  const SoftmaxXentParams p{70, 300};
  const int64_t F = 64;
  cpu::Team team(2);
  const HalfWeights<math::Bf16> w(p.classes * F);
  std::vector<math::Bf16> x, dx(static_cast<size_t>(p.rows * F));
  std::vector<float> wide;
  for (const float value : drawn_floats(p.rows * F, 3)) {
    x.push_back(math::narrow<math::Bf16>(value));
    wide.push_back(math::widen(x.back()));
  }
  std::vector<int32_t> label;
  for (int32_t n = 0; n < 70; ++n) label.push_back(n % 3 == 0 ? -1 : n);
  const float dloss = 1;
  float loss = 0;
  const auto kBf16 = cpu::Stored::kBf16;
  cpu::HeadLoss head(p, F, {kBf16, kBf16, kBf16, false}, team);
  head.run({x.data(), w.stored.data(), nullptr, label.data(), &dloss, &loss, dx.data()},
           Workspace(head.workspace_bytes()).get());
  const HeadResult wanted = head_in_double(p, F, wide, w.wide, {}, label, dloss);
  EXPECT_NEAR(loss, wanted.loss, 2e-6 * std::fabs(wanted.loss));
  double most = 0;
  for (const double value : wanted.dx) most = std::max(most, std::fabs(value));
  for (size_t i = 0; i < dx.size(); ++i) {
    ASSERT_NEAR(math::widen(dx[i]), wanted.dx[i], most / 128) << i;
  }
}

// Rows that do not count change neither the loss nor the gradient of the others.
TEST(FrozenHead, TheOtherRowsDoNotMatter) {
  const SoftmaxXentParams p{20, 50};
  const int64_t F = 16;
  cpu::Team team(2);
  const std::vector<float> w = drawn_floats(p.classes * F, 2);
  std::vector<float> x = drawn_floats(p.rows * F, 3);
  std::vector<int32_t> label(20, -1);
  for (const size_t n : {1, 7, 19}) label[n] = static_cast<int32_t>(n);
  const float dloss = 1;
  float loss[2] = {};
  std::vector<float> dx[2] = {x, x};
  for (const int run : {0, 1}) {
    cpu::HeadLoss head(p, F, {}, team);
    head.run({x.data(), w.data(), nullptr, label.data(), &dloss, &loss[run], dx[run].data()},
             Workspace(head.workspace_bytes()).get());
    for (size_t n = 0; n < label.size(); ++n) {
      if (label[n] < 0) std::fill_n(x.begin() + static_cast<int64_t>(n) * F, F, NAN);
    }
  }
  EXPECT_EQ(loss[0], loss[1]);
  EXPECT_EQ(dx[0], dx[1]);
}

}  // namespace
}  // namespace trainyard::kernels
