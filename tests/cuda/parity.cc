#include "tests/cuda/parity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "src/graph/op.h"
#include "src/ops/gemm.h"
#include "src/ops/tf32.h"
#include "tests/cuda/nth_candidate.h"
#include "tests/cuda/workspace.h"
#include "tests/support/run_case.h"

namespace trainyard::testing {
namespace {

// As in cpu_parity_test.cc: float against double, and bf16 values that the two backends round
// differently.
constexpr double kRelativeMax = 3e-5;
// In addition to the cpu backend's roundings, products of bf16 tensors round an F32 operand to
// bf16, as PyTorch's autocast does: half a unit in the last place of each factor.
constexpr double kRelativeMaxBf16 = 12.0 / 256;
// The bound for products that round an F32 operand to 11 bits instead of 8.
constexpr double kRelativeMax11Bits = 12.0 / 2048;

/// Returns where a tensor and the workspace are in the arena, whose beginning is aligned: two
/// buffers that overlap, or a misaligned one, show in these numbers.
std::string places_of(const std::string& name, const CaseResult& result) {
  const Program& program = result.program;
  const int64_t workspace = program.persistent_bytes + program.transient_bytes;
  std::string text;
  for (size_t id = 0; id < program.placements.size(); ++id) {
    if (program.graph.tensor(static_cast<TensorId>(id)).name != name) continue;
    const Placement& p = program.placements[id];
    text = name + " has the bytes from " +
           std::to_string(p.offset_bytes +
                          (p.segment == Segment::kTransient ? program.persistent_bytes : 0)) +
           " to " +
           std::to_string(p.offset_bytes + p.size_bytes +
                          (p.segment == Segment::kTransient ? program.persistent_bytes : 0)) +
           " of the arena, ";
  }
  return text + "the workspace those from " + std::to_string(workspace) + " to " +
         std::to_string(result.planned_bytes);
}

/// Returns whether products of the program begin with the other term of a sum. Only programs for a
/// CPU have such products, and lack the sum's tensors.
bool adds_in_products(const Program& program) {
  return std::ranges::any_of(program.graph.nodes(), [](const Node& n) {
    return n.op->type() == "GemmAdd" || n.op->type() == "GemmGradAdd";
  });
}

void compare(const CaseResult& actual, const CaseResult& expected, double relative_max) {
  EXPECT_LE(actual.used_bytes, actual.planned_bytes);
  const bool lacks_sums = adds_in_products(expected.program);
  for (const auto& [name, got] : actual.values) {
    // A GPU's 16-bit copy of a bias, which the reference reads in F32; and ReLU's mask of a
    // product.
    const bool is_copy = name.ends_with("/bf16") || name.ends_with("/f16");
    const bool is_mask = name.ends_with("/mask");  // ReLU's mask, in the library's own format
    if ((is_copy || is_mask || lacks_sums) && !expected.values.contains(name)) continue;
    ASSERT_TRUE(expected.values.contains(name)) << name;
    const std::vector<double>& values = expected.values.at(name);
    ASSERT_EQ(got.size(), values.size());
    double scale = 1e-3;
    for (const double v : values) scale = std::max(scale, std::abs(v));
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_LE(std::abs(got[i] - values[i]), relative_max * scale)
          << name << "[" << i << "] " << got[i] << ", expected " << values[i] << "; "
          << places_of(name, actual);
    }
  }
}

/// Counts the failures of the running test so far.
int failures_so_far() {
  const ::testing::TestResult* const result =
      ::testing::UnitTest::GetInstance()->current_test_info()->result();
  int failures = 0;
  for (int i = 0; i < result->total_part_count(); ++i) {
    failures += result->GetTestPartResult(i).failed();
  }
  return failures;
}

/// NaN equals NaN here, since a case may contain one.
bool equal_bits(const CaseResult& a, const CaseResult& b) {
  return std::equal(a.values.begin(), a.values.end(), b.values.begin(), b.values.end(),
                    [](const auto& x, const auto& y) {
                      return x.first == y.first &&
                             std::equal(x.second.begin(), x.second.end(), y.second.begin(),
                                        y.second.end(), [](double p, double q) {
                                          return p == q || (std::isnan(p) && std::isnan(q));
                                        });
                    });
}

bool is_covered(const Backend& cuda, const CaseGraph& c) {
  for (const Node& n : c.graph.nodes()) {
    if (!cuda.has_kernel(n.op->type())) return false;
  }
  return true;
}

/// Selects the cases whose names contain TRAINYARD_CASE, if it is set: for work on one kernel.
bool is_wanted(const GraphCase& test, std::string_view part = "") {
  const char* other = std::getenv("TRAINYARD_CASE");
  return test.name.find(part) != std::string::npos &&
         (other == nullptr || test.name.find(other) != std::string::npos);
}

/// A case with its backward pass, and the same for the reference loops: in double or, for 16 bits,
/// with the same roundings.
struct GraphPair {
  CaseGraph narrow, wide;
};
GraphPair build(const GraphCase& test, Precision precision) {
  const bool half = precision == Precision::kBf16 || precision == Precision::kFp16;
  std::map<TensorId, TensorId> gradients;
  GraphPair pair{test.build(DType::kF32), {}};
  pair.wide = half ? pair.narrow : test.build(DType::kF64);
  if (pair.narrow.loss == kNoTensor) return pair;
  pair.narrow = with_gradients(std::move(pair.narrow), &gradients);
  pair.wide = half ? pair.narrow : with_gradients(std::move(pair.wide), &gradients);
  return pair;
}

/// Whether the heads have more elements than the kernels on tensor cores support.
bool is_wide_attention(const Graph& graph, const Node& node) {
  if (!node.op->type().starts_with("Attention")) return false;
  const bool forward = node.op->type() == "Attention";
  const Shape& y = graph.tensor(forward ? node.outputs[0] : node.inputs[0]).type.shape;
  return y[2] / node.attributes.get_int("q_num_heads", 1) > 128;
}

}  // namespace

double relative_max_of(Precision precision) {
  switch (precision) {
    case Precision::kBf16:
      return kRelativeMaxBf16;
    case Precision::kTf32:
    case Precision::kFp16:
      return kRelativeMax11Bits;
    default:
      return kRelativeMax;
  }
}

void expect_parity(Backend& cuda, Precision precision, Cases which, std::string_view part,
                   FirstProposal* choices) {
  std::set<std::string_view> seen;  // ops of the cases run so far
  const auto reference = make_reference_backend();
  const double relative_max = relative_max_of(precision);
  for (const GraphCase& test : graph_cases()) {
    const auto [narrow, wide] = build(test, precision);
    if (!is_wanted(test, part) || !is_covered(cuda, narrow)) continue;
    bool has_new = false;
    for (const Node& n : narrow.graph.nodes()) has_new |= seen.insert(n.op->type()).second;
    if (which == Cases::kOneOfEachOp && !has_new) continue;
    for (const bool channels_last : {true, false}) {
      RunOptions options{channels_last};
      options.precision = precision;
      const CaseResult expected = run_case(wide, *reference, options);
      for (const bool keep_all : {true, false}) {
        SCOPED_TRACE(test.name + (channels_last ? " channels-last" : " row-major") +
                     (keep_all ? " kept" : " reused"));
        options.keep_all = keep_all;
        options.runs = 3;  // kernel by kernel, recorded, replayed
        if (choices != nullptr) choices->forget();
        const int failures_before = failures_so_far();
        try {
          compare(run_case(narrow, cuda, options), expected, relative_max);
        } catch (const std::exception& e) {  // a library refuses; the other cases still run
          ADD_FAILURE() << e.what();
        }
        if (choices != nullptr && failures_so_far() > failures_before) {
          std::printf("engines of the failing case:%s\n", lines_of(choices->taken()).c_str());
        }
      }
    }
  }
}

namespace {

/// Returns how many candidates of the case were compared.
int64_t compare_candidates(const GraphCase& test, Backend& backend, NthCandidate& candidates,
                           const RunOptions& options) {
  const auto [narrow, wide] = build(test, options.precision);
  std::optional<CaseResult> expected;
  int64_t compared = 0;
  size_t number = 0;
  do {
    SCOPED_TRACE(test.name + (options.channels_last ? " channels-last" : " row-major") +
                 ", candidate " + std::to_string(number + 1));
    candidates.take(number++);
    const int failures_before = failures_so_far();
    try {
      const CaseResult result = run_case(narrow, backend, options);
      if (candidates.most() < 2) break;  // no choice
      if (!expected.has_value()) expected = run_case(wide, *make_reference_backend(), options);
      compare(result, *expected, relative_max_of(options.precision));
      ++compared;
    } catch (const std::exception& e) {  // a library refuses; the other candidates still run
      ADD_FAILURE() << e.what();
    }
    if (failures_so_far() > failures_before) {
      std::printf("engines of the failing case:%s\n", lines_of(candidates.taken()).c_str());
    }
  } while (number < candidates.most());
  return compared;
}

}  // namespace

void expect_parity_of_candidates(Backend& cuda, Precision precision) {
  const auto candidates = std::make_shared<NthCandidate>();
  cuda.use_algorithms(candidates);
  WorkspaceBackend nan_first(cuda, {.fill = 0xFF});
  CandidateTime time;
  int64_t compared = 0;
  // If time runs out, the cases in row-major are omitted, which image networks do not use.
  for (const bool channels_last : {true, false}) {
    RunOptions options{channels_last, /*keep_all=*/false};
    options.precision = precision;
    size_t number = 0;
    for (const GraphCase& test : graph_cases()) {
      if (!is_in_part(number++) || !is_wanted(test)) continue;
      if (!is_covered(cuda, build(test, precision).narrow)) continue;
      if (time.is_left()) {
        compared += compare_candidates(test, nan_first, *candidates, options);
      } else {
        time.leave_out(test.name + (channels_last ? " channels-last" : " row-major"));
      }
    }
  }
  time.report(compared);
  if (std::getenv("TRAINYARD_CASE") == nullptr) {
    EXPECT_GT(compared, 0);
  }
}

void expect_tf32_in_products_alone(Backend& cuda) {
  int rounded = 0, whole = 0;
  for (const GraphCase& test : graph_cases()) {
    std::map<TensorId, TensorId> gradients;
    CaseGraph c = test.build(DType::kF32);
    if (c.loss != kNoTensor) c = with_gradients(std::move(c), &gradients);
    if (!is_wanted(test) || !is_covered(cuda, c)) continue;
    RunOptions options;
    options.passes = {false, false, false, false};  // both programs then have the same nodes
    const CaseResult plain = run_case(c, cuda, options);
    options.precision = Precision::kTf32;
    const CaseResult result = run_case(c, cuda, options);
    const auto& nodes = result.program.graph.nodes();
    const auto rounds = [&](const Node& node) {
      return allows_tf32(node) && !is_wide_attention(result.program.graph, node);
    };
    if (std::any_of(nodes.begin(), nodes.end(), rounds)) {
      ++rounded;
      EXPECT_NE(result.values, plain.values) << test.name;
    } else {
      ++whole;
      EXPECT_TRUE(equal_bits(result, plain)) << test.name;
    }
  }
  if (std::getenv("TRAINYARD_CASE") != nullptr) return;
  EXPECT_GT(rounded, 0);
  EXPECT_GT(whole, 0);
}

namespace {

/// A layer followed by ReLU, with NaN and infinities in its input and its bias.
CaseGraph relu_of_nan(bool is_convolution) {
  const double inf = std::numeric_limits<double>::infinity();
  CaseBuilder b(DType::kF32);
  const TensorId x = b.input("x", is_convolution ? Shape{2, 8, 6, 6} : Shape{20, 24});
  const TensorId bias = b.parameter("b", {8});
  const TensorId pre =
      is_convolution
          ? b.one("pre", "Conv", {{"pads", std::vector<int64_t>{1, 1, 1, 1}}},
                  {x, b.parameter("w", {8, 8, 3, 3}), bias})
          : b.one("pre", "Gemm", {{"transB", int64_t{1}}}, {x, b.parameter("w", {8, 24}), bias});
  const TensorId y = b.one("y", "Relu", {}, {pre});
  CaseGraph c = b.finish(y);
  c.graph.mark_output(y);
  c.values[x][0] = std::nan("");
  c.values[x][35] = inf;
  c.values[x][8 * 36] = -inf;
  c.values[bias][3] = std::nan("");
  return c;
}

void expect_nan_through_relu(Backend& cuda, bool is_convolution, const RunOptions& options) {
  const CaseGraph c = relu_of_nan(is_convolution);
  const CaseResult expected = run_case(c, *make_reference_backend(), options);
  const CaseResult result = run_case(c, cuda, options);
  const auto& nodes = result.program.graph.nodes();
  const std::string_view op = is_convolution ? "ConvRelu" : "GemmRelu";
  ASSERT_TRUE(
      std::any_of(nodes.begin(), nodes.end(), [&](const Node& n) { return n.op->type() == op; }));
  const std::vector<double>&y = result.values.at("y"), &wanted = expected.values.at("y");
  int nans = 0, infinite = 0, finite = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    nans += std::isnan(wanted[i]);
    infinite += std::isinf(wanted[i]);
    finite += std::isfinite(wanted[i]);
    // An engine may spread them to neighbours, but must not lose any.
    if (std::isnan(wanted[i])) {
      EXPECT_TRUE(std::isnan(y[i])) << i;
    } else if (std::isinf(wanted[i])) {
      EXPECT_FALSE(std::isfinite(y[i])) << i;
    }
  }
  EXPECT_GE(nans, is_convolution ? 2 * 36 + 4 : 20 + 7);
  EXPECT_GT(infinite, 0);
  EXPECT_GT(finite, 0);
}

}  // namespace

void expect_nan_through_relu(Backend& cuda) {
  for (const Precision precision :
       {Precision::kFp32, Precision::kTf32, Precision::kBf16, Precision::kFp16}) {
    for (const bool channels_last : {true, false}) {
      SCOPED_TRACE(std::string(name_of(precision)) +
                   (channels_last ? " channels-last" : " row-major"));
      RunOptions options{channels_last, /*keep_all=*/false};
      options.precision = precision;
      expect_nan_through_relu(cuda, /*is_convolution=*/true, options);
      if (channels_last) expect_nan_through_relu(cuda, /*is_convolution=*/false, options);
    }
  }
}

void expect_repeats(Backend& cuda, Precision precision, std::string_view part) {
  RunOptions options;
  options.precision = precision;
  for (const GraphCase& test : graph_cases()) {
    std::map<TensorId, TensorId> gradients;
    CaseGraph c = test.build(DType::kF32);
    if (c.loss != kNoTensor) c = with_gradients(std::move(c), &gradients);
    if (!is_wanted(test, part) || !is_covered(cuda, c)) continue;
    const CaseResult first = run_case(c, cuda, options), second = run_case(c, cuda, options);
    for (const auto& [name, values] : first.values) {
      const std::vector<double>& again = second.values.at(name);
      ASSERT_EQ(values.size(), again.size());
      for (size_t i = 0; i < values.size(); ++i) {
        // A GPU runs threads in another order, so a race changes the bits.
        ASSERT_TRUE(values[i] == again[i] || (std::isnan(values[i]) && std::isnan(again[i])))
            << test.name << " " << name << "[" << i << "] " << values[i] << " and " << again[i];
      }
    }
  }
}

std::string missing_ops(const Backend& cuda) {
  std::string missing;
  for (const Op* op : all_ops()) {
    if (op == gemm_add_op() || op == gemm_grad_add_op()) continue;  // only in graphs for a CPU
    if (!cuda.has_kernel(op->type())) missing += " " + std::string(op->type());
  }
  return missing;
}

}  // namespace trainyard::testing
