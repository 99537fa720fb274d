#include "tests/cuda/filter_gradients.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "src/base/cores.h"
#include "tests/support/run_case.h"

namespace trainyard::testing {
namespace {

constexpr double kElementFactor = 8;

/// Of the norm of a tensor.
double bound_of(Precision precision) {
  switch (precision) {
    case Precision::kBf16:
      return 2.0 / 512;
    case Precision::kFp16:
      return 2.0 / 4096;
    case Precision::kTf32:  // two factors, each to 11 bits
      return 2.0 / 2048;
    default:  // sums of up to 50,000 terms in another order
      return 6e-5;
  }
}

/// x and dy are computed, as in a network, and so stored as the precision says.
CaseGraph gradient_case(const FilterCase& f) {
  CaseBuilder b(DType::kF32);
  const int64_t pad = f.R == f.stride ? 0 : f.R / 2;  // patches have none
  const int64_t P = (f.H + 2 * pad - f.R) / f.stride + 1;
  const TensorId x = b.one("x", "Tanh", {}, {b.input("x_in", {f.N, f.C, f.H, f.H})});
  const TensorId dy = b.one("dy", "Tanh", {}, {b.input("dy_in", {f.N, f.K, P, P})});
  const std::vector<TensorId> gradients =
      b.node("conv/grad", "ConvGrad",
             {{"strides", std::vector<int64_t>{f.stride, f.stride}},
              {"pads", std::vector<int64_t>{pad, pad, pad, pad}}},
             {x, b.parameter("w", {f.K, f.C, f.R, f.R}), dy}, 3, Phase::kBackward);
  CaseGraph c = b.finish_update();
  c.graph.mark_output(gradients[1]);
  c.graph.mark_output(gradients[2]);
  return c;
}

void compare(const std::string& tensor, const std::vector<double>& got,
             const std::vector<double>& expected, double bound) {
  ASSERT_EQ(got.size(), expected.size());
  double squares = 0, difference = 0, worst = 0;
  size_t where = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double d = std::abs(got[i] - expected[i]);
    ASSERT_TRUE(std::isfinite(d)) << tensor << "[" << i << "] is " << got[i];
    squares += expected[i] * expected[i];
    difference += d * d;
    if (d > worst) {
      worst = d;
      where = i;
    }
  }
  const double norm = std::sqrt(squares);
  const double rms = norm / std::sqrt(static_cast<double>(got.size()));
  const double of_norm = std::sqrt(difference) / norm;
  std::printf(
      "  %s: differs by %.1e of its norm, %.1e is right; one element by %.1e of their rms\n",
      tensor.c_str(), of_norm, bound, worst / rms);
  EXPECT_LE(of_norm, bound) << tensor;
  EXPECT_LE(worst, kElementFactor * bound * rms)
      << tensor << "[" << where << "] is " << got[where] << ", expected " << expected[where];
}

}  // namespace

std::span<const FilterCase> real_filter_cases() {
  static const FilterCase kCases[] = {
      {"resnet50 conv1", 4, 3, 224, 64, 7, 2},
      {"resnet50 layer1 1x1", 8, 64, 56, 64, 1, 1},
      {"resnet50 layer1 1x1 out", 8, 64, 56, 256, 1, 1},
      {"resnet50 layer1 3x3", 8, 64, 56, 64, 3, 1},
      {"resnet50 layer2 1x1 by 2", 8, 256, 56, 512, 1, 2},
      {"resnet50 layer2 3x3 by 2", 8, 128, 56, 128, 3, 2},
      {"resnet50 layer3 3x3", 8, 256, 14, 256, 3, 1},
      {"resnet50 layer4 1x1 by 2", 8, 1024, 14, 2048, 1, 2},
      {"resnet50 layer4 3x3", 8, 512, 7, 512, 3, 1},
      {"vgg16 first", 2, 3, 224, 64, 3, 1},
      {"vgg16 second", 2, 64, 112, 128, 3, 1},
      {"vgg16 last", 4, 512, 14, 512, 3, 1},
      {"vit_base patches", 4, 3, 224, 768, 16, 16},
      {"resnet18 32 px", 64, 64, 32, 64, 3, 1},
      {"lenet5 first", 64, 1, 28, 20, 5, 1},
      {"lenet5 second", 64, 20, 12, 50, 5, 1},
      {"12 to 20 channels", 8, 12, 28, 20, 1, 1},
  };
  return kCases;
}

std::span<const FilterCase> small_filter_cases() {
  static const FilterCase kCases[] = {
      {"1x1, eights", 2, 8, 6, 16, 1, 1},     {"1x1 by 2, eights", 2, 16, 6, 8, 1, 2},
      {"3x3, eights", 2, 8, 6, 8, 3, 1},      {"3x3 by 2, eights", 2, 8, 7, 16, 3, 2},
      {"7x7 by 2, three", 1, 3, 14, 8, 7, 2}, {"patches", 2, 3, 8, 16, 4, 4},
      {"5x5, odd", 2, 5, 8, 7, 5, 1},         {"1x1, odd", 2, 12, 5, 20, 1, 1},
  };
  return kCases;
}

void expect_filter_gradients(Backend& cuda, std::span<const FilterCase> cases,
                             Precision precision) {
  const auto cpu = make_cpu_backend(usable_cores());
  for (const FilterCase& f : cases) {
    const CaseGraph c = gradient_case(f);
    for (const bool channels_last : {true, false}) {
      const std::string name = f.name + ", " + std::string(name_of(precision)) +
                               (channels_last ? ", channels-last" : ", row-major");
      SCOPED_TRACE(name);
      std::printf("%s\n", name.c_str());
      RunOptions options{channels_last, /*keep_all=*/false};
      options.precision = precision;
      const CaseResult expected = run_case(c, *cpu, options), got = run_case(c, cuda, options);
      ASSERT_EQ(expected.values.size(), 2U);
      for (const auto& [tensor, values] : expected.values) {
        compare(tensor, got.values.at(tensor), values, bound_of(precision));
      }
    }
  }
}

}  // namespace trainyard::testing
