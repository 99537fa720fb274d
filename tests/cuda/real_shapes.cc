#include "tests/cuda/real_shapes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>

#include "src/base/cores.h"
#include "src/base/text.h"
#include "tests/cuda/nth_candidate.h"
#include "tests/cuda/workspace.h"
#include "tests/support/run_case.h"

namespace trainyard::testing {
namespace {

constexpr double kElementFactor = 8;

/// The allowed error relative to the norm of a tensor.
double bound_of(Precision precision) {
  switch (precision) {
    case Precision::kBf16:
      return 2.0 / 512;
    case Precision::kFp16:
      return 2.0 / 4096;
    case Precision::kTf32:  // two factors, each rounded to 11 bits
      return 2.0 / 2048;
    default:  // sums of up to 50,000 terms in another order
      return 6e-5;
  }
}

std::string name_of(const ShapeCase& shape, Precision precision) {
  return shape.name + ", " + std::string(trainyard::name_of(precision));
}

/// Marks the node's result and the gradients of its inputs as outputs. Outputs stay F32, so for
/// tensors that must be stored in `precision`, the output is their double.
CaseGraph finish(CaseBuilder b, TensorId y, const std::vector<TensorId>& gradients) {
  const TensorId doubled_y = b.one("2 y", "Add", {}, {y, y});
  const TensorId doubled_dx = b.one("2 dx", "Add", {}, {gradients[0], gradients[0]});
  CaseGraph c = b.finish_update();
  for (const TensorId id : {doubled_y, doubled_dx, gradients[1], gradients[2]}) {
    c.graph.mark_output(id);
  }
  return c;
}

/// A convolution of x [N, C, H, H] with filters [K, C, R, R], with pads that keep the size.
ShapeCase convolution(const std::string& name, int64_t N, int64_t C, int64_t H, int64_t K,
                      int64_t R, int64_t stride) {
  return {name, [=] {
            CaseBuilder b(DType::kF32);
            const int64_t pad = R == stride ? 0 : R / 2;  // patch embeddings have no pads
            const int64_t P = (H + 2 * pad - R) / stride + 1;
            const Attributes window{{"strides", std::vector<int64_t>{stride, stride}},
                                    {"pads", std::vector<int64_t>{pad, pad, pad, pad}}};
            const TensorId x = b.one("x", "Tanh", {}, {b.input("x_in", {N, C, H, H})});
            const TensorId dy = b.one("dy", "Tanh", {}, {b.input("dy_in", {N, K, P, P})});
            const TensorId w = b.parameter("w", {K, C, R, R});
            const TensorId y = b.one("y", "Conv", window, {x, w, b.parameter("b", {K})});
            const std::vector<TensorId> gradients =
                b.node("conv/grad", "ConvGrad", window, {x, w, dy}, 3, Phase::kBackward);
            return finish(std::move(b), y, gradients);
          }};
}

/// A product of x [N, F] and w [K, F].
ShapeCase product(const std::string& name, int64_t N, int64_t F, int64_t K) {
  return {name, [=] {
            CaseBuilder b(DType::kF32);
            const Attributes transposed{{"transB", int64_t{1}}};
            const TensorId x = b.one("x", "Tanh", {}, {b.input("x_in", {N, F})});
            const TensorId dy = b.one("dy", "Tanh", {}, {b.input("dy_in", {N, K})});
            const TensorId w = b.parameter("w", {K, F});
            const TensorId y = b.one("y", "Gemm", transposed, {x, w, b.parameter("b", {K})});
            const std::vector<TensorId> gradients =
                b.node("gemm/grad", "GemmGrad", transposed, {x, w, dy}, 3, Phase::kBackward);
            return finish(std::move(b), y, gradients);
          }};
}

/// Describes what is wrong with a tensor; empty if nothing is.
std::string compare(const std::string& tensor, const std::vector<double>& got,
                    const std::vector<double>& expected, double bound) {
  double squares = 0, difference = 0, worst = 0;
  size_t where = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double d = std::abs(got[i] - expected[i]);
    if (!std::isfinite(d)) {
      return tensor + "[" + std::to_string(i) + "] is " + short_number(got[i]) + ", expected " +
             short_number(expected[i]);
    }
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
  if (of_norm > bound) {
    return tensor + " differs by " + short_number(of_norm) + " of its norm, at most " +
           short_number(bound) + " is right";
  }
  if (worst > kElementFactor * bound * rms) {
    return tensor + "[" + std::to_string(where) + "] is " + short_number(got[where]) +
           ", expected " + short_number(expected[where]);
  }
  return "";
}

/// Compares one run; `name` begins the sentences added to `wrong`.
void check_case(const CaseGraph& c, Backend& cuda, const RunOptions& options,
                const CaseResult& expected, const std::string& name,
                std::vector<std::string>& wrong) {
  std::printf("%s\n", name.c_str());
  try {
    const CaseResult got = run_case(c, cuda, options);
    for (const auto& [tensor, values] : expected.values) {
      const std::string what =
          compare(tensor, got.values.at(tensor), values, bound_of(options.precision));
      if (!what.empty()) wrong.push_back(name + ": " + what);
    }
  } catch (const std::exception& e) {  // a library refuses; the others still run
    wrong.push_back(name + ": " + e.what());
  }
}

}  // namespace

const std::vector<ShapeCase>& real_shapes() {
  static const std::vector<ShapeCase> kCases = {
      convolution("resnet50 conv1", 4, 3, 224, 64, 7, 2),
      convolution("resnet50 layer1 1x1", 8, 64, 56, 64, 1, 1),
      convolution("resnet50 layer1 1x1 out", 8, 64, 56, 256, 1, 1),
      convolution("resnet50 layer1 3x3", 8, 64, 56, 64, 3, 1),
      convolution("resnet50 layer2 1x1 by 2", 8, 256, 56, 512, 1, 2),
      convolution("resnet50 layer2 3x3 by 2", 8, 128, 56, 128, 3, 2),
      convolution("resnet50 layer3 3x3", 8, 256, 14, 256, 3, 1),
      convolution("resnet50 layer4 1x1 by 2", 8, 1024, 14, 2048, 1, 2),
      convolution("resnet50 layer4 3x3", 8, 512, 7, 512, 3, 1),
      convolution("vgg16 first", 2, 3, 224, 64, 3, 1),
      convolution("vgg16 second", 2, 64, 112, 128, 3, 1),
      convolution("vgg16 last", 4, 512, 14, 512, 3, 1),
      convolution("vit_base patches", 4, 3, 224, 768, 16, 16),
      convolution("resnet18 32 px", 64, 64, 32, 64, 3, 1),
      convolution("lenet5 first", 64, 1, 28, 20, 5, 1),
      convolution("lenet5 second", 64, 20, 12, 50, 5, 1),
      convolution("12 to 20 channels", 8, 12, 28, 20, 1, 1),
      product("gpt2 qkv", 1024, 768, 2304),
      product("gpt2 projection of the MLP", 512, 3072, 768),
      product("gpt2 head", 64, 768, 50257),
      product("resnet50 head", 128, 2048, 1000),
      product("vgg16 second dense", 64, 4096, 4096),
      product("lenet5 head", 64, 500, 10),
  };
  return kCases;
}

const std::vector<ShapeCase>& small_shapes() {
  static const std::vector<ShapeCase> kCases = {
      convolution("1x1, eights", 2, 8, 6, 16, 1, 1),
      convolution("1x1 by 2, eights", 2, 16, 6, 8, 1, 2),
      convolution("3x3, eights", 2, 8, 6, 8, 3, 1),
      convolution("3x3 by 2, eights", 2, 8, 7, 16, 3, 2),
      convolution("7x7 by 2, three", 1, 3, 14, 8, 7, 2),
      convolution("patches", 2, 3, 8, 16, 4, 4),
      convolution("5x5, odd", 2, 5, 8, 7, 5, 1),
      convolution("1x1, odd", 2, 12, 5, 20, 1, 1),
      product("eights", 16, 24, 8),
      product("odd", 7, 13, 5),
  };
  return kCases;
}

namespace {

std::vector<std::string> find_wrong_first(Backend& cuda, const std::vector<ShapeCase>& cases,
                                          Precision precision, FirstProposal* choices) {
  std::vector<std::string> wrong;
  const auto cpu = make_cpu_backend(usable_cores());
  for (const ShapeCase& shape : cases) {
    const CaseGraph c = shape.build();
    for (const bool channels_last : {true, false}) {
      RunOptions options{channels_last, /*keep_all=*/false};
      options.precision = precision;
      if (choices != nullptr) choices->forget();
      const size_t wrong_before = wrong.size();
      check_case(c, cuda, options, run_case(c, *cpu, options),
                 name_of(shape, precision) + (channels_last ? ", channels-last" : ", row-major"),
                 wrong);
      if (choices != nullptr && wrong.size() > wrong_before) {
        wrong.back() += "; engines:" + lines_of(choices->taken());
      }
    }
  }
  return wrong;
}

std::vector<std::string> find_wrong_candidates(Backend& cuda, const std::vector<ShapeCase>& cases,
                                               Precision precision) {
  std::vector<std::string> wrong;
  const auto cpu = make_cpu_backend(usable_cores());
  const auto candidates = std::make_shared<NthCandidate>();
  cuda.use_algorithms(candidates);
  WorkspaceBackend nan_first(cuda, {.fill = 0xFF});
  CandidateTime time;
  int64_t compared = 0;
  size_t shape_number = 0;
  for (const ShapeCase& shape : cases) {
    if (!is_in_part(shape_number++)) continue;
    const std::string name = name_of(shape, precision) + ", candidate ";
    if (!time.is_left()) {
      time.leave_out(name + "1");
      continue;
    }
    const CaseGraph c = shape.build();
    RunOptions options{/*channels_last=*/true, /*keep_all=*/false};
    options.precision = precision;
    const CaseResult expected = run_case(c, *cpu, options);
    size_t number = 0;
    do {
      candidates->take(number++);
      const size_t wrong_before = wrong.size();
      check_case(c, nan_first, options, expected, name + std::to_string(number), wrong);
      if (wrong.size() > wrong_before) wrong.back() += "; engines:" + lines_of(candidates->taken());
      ++compared;
      for (const auto& [key, choice] : candidates->taken()) {
        std::printf("  %s: %s\n", key.c_str(), choice.c_str());
      }
    } while (number < candidates->most() && time.is_left());
    if (number < candidates->most()) time.leave_out(name + std::to_string(number + 1));
  }
  time.report(compared);
  return wrong;
}

}  // namespace

std::vector<std::string> find_wrong(Backend& cuda, const std::vector<ShapeCase>& cases,
                                    Precision precision, Candidates which, FirstProposal* choices) {
  return which == Candidates::kAll ? find_wrong_candidates(cuda, cases, precision)
                                   : find_wrong_first(cuda, cases, precision, choices);
}

void expect_right(Backend& cuda, const std::vector<ShapeCase>& cases, Precision precision,
                  Candidates which, FirstProposal* choices) {
  for (const std::string& what : find_wrong(cuda, cases, precision, which, choices)) {
    ADD_FAILURE() << what;
  }
}

}  // namespace trainyard::testing
