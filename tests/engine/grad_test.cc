// Compares every op's gradient with central differences of its own forward pass, in double. A wrong
// formula, a wrong sum over readers, an output that is not written and memory that is reused too
// early all give a number that differs.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "src/graph/op.h"
#include "tests/support/graph_cases.h"
#include "tests/support/run_case.h"

namespace trainyard {
namespace {

using testing::CaseGraph;
using testing::CaseResult;
using testing::graph_cases;
using testing::GraphCase;
using testing::RunOptions;

constexpr double kStep = 1e-5;
constexpr double kRelativeMax = 1e-6;

/// The forward pass of a case, prepared once and run for many parameter values.
class Loss {
 public:
  Loss(const CaseGraph& c, Backend& backend)
      : c_(c),
        prepared_(compile(c.graph, {}), backend),
        arena_(backend, prepared_.program().persistent_bytes, prepared_.program().transient_bytes,
               prepared_.workspace_bytes()),
        executor_(std::move(prepared_), arena_) {
    for (const auto& [id, v] : c_.values) testing::write_values(executor_, id, v);
  }

  void write(TensorId parameter, const std::vector<double>& values) {
    testing::write_values(executor_, parameter, values);
  }
  /// Writes state and inputs again before the run, since a run may change them; parameters keep the
  /// values written last.
  double run() {
    for (const auto& [id, v] : c_.values) {
      if (c_.graph.tensor(id).role != Role::kParameter) testing::write_values(executor_, id, v);
    }
    executor_.run();
    return testing::read_values(executor_, c_.loss)[0];
  }

 private:
  const CaseGraph& c_;
  PreparedProgram prepared_;
  Arena arena_;
  Executor executor_;
};

/// The backward pass is run in all of these ways; the slow finite differences are computed only
/// once.
const std::vector<std::pair<std::string, RunOptions>>& ways() {
  static const std::vector<std::pair<std::string, RunOptions>> all = {
      {"every tensor kept", {.channels_last = true, .keep_all = true, .runs = 1}},
      {"reused memory", {.channels_last = true, .keep_all = false, .runs = 2}},
      {"row-major", {.channels_last = false, .keep_all = false, .runs = 1}},
      {"for a GPU", {.keep_all = false, .processor = Processor::kGpu}},
  };
  return all;
}

void check_gradients(const GraphCase& test) {
  const auto backend = make_reference_backend();
  const CaseGraph forward = test.build(DType::kF64);
  std::map<TensorId, TensorId> gradients;
  const CaseGraph backward = testing::with_gradients(test.build(DType::kF64), &gradients);
  EXPECT_FALSE(gradients.empty());
  std::vector<CaseResult> results;
  for (const auto& [name, options] : ways()) {
    results.push_back(testing::run_case(backward, *backend, options));
  }
  Loss loss(forward, *backend);
  for (const auto& [parameter, gradient] : gradients) {
    const std::string& name = forward.graph.tensor(parameter).name;
    const std::string& gradient_name = backward.graph.tensor(gradient).name;
    std::vector<double> values = forward.values.at(parameter);
    for (const CaseResult& result : results) {
      ASSERT_EQ(result.values.at(gradient_name).size(), values.size());
    }
    for (size_t i = 0; i < values.size(); ++i) {
      const double original = values[i];
      values[i] = original + kStep;
      loss.write(parameter, values);
      const double above = loss.run();
      values[i] = original - kStep;
      loss.write(parameter, values);
      const double below = loss.run();
      values[i] = original;
      const double numeric = (above - below) / (2 * kStep);
      for (size_t way = 0; way < results.size(); ++way) {
        const double analytic = results[way].values.at(gradient_name)[i];
        // Cancellation in the differences costs digits of the loss, which is of order 1: hence the
        // floor.
        const double scale = std::max({std::abs(numeric), std::abs(analytic), 1e-2});
        ASSERT_LT(std::abs(numeric - analytic) / scale, kRelativeMax)
            << test.name << ", " << ways()[way].first << ": " << name << "[" << i << "] analytic "
            << analytic << " numeric " << numeric;
      }
    }
    loss.write(parameter, values);
  }
}

TEST(Gradient, MatchesCentralDifferences) {
  for (const GraphCase& test : graph_cases()) {
    if (test.is_large || test.build(DType::kF64).loss == kNoTensor) continue;
    SCOPED_TRACE(test.name);
    check_gradients(test);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// A NaN in a computed tensor is memory that no kernel wrote.
TEST(GraphCases, WriteEveryElementOfEveryOutput) {
  const auto backend = make_reference_backend();
  for (const GraphCase& test : graph_cases()) {
    for (const DType dtype : {DType::kF32, DType::kF64}) {
      SCOPED_TRACE(test.name + " " + std::string(name_of(dtype)));
      CaseGraph c = test.build(dtype);
      std::map<TensorId, TensorId> gradients;
      if (c.loss != kNoTensor) c = testing::with_gradients(std::move(c), &gradients);
      const CaseResult result = testing::run_case(c, *backend, {});
      EXPECT_EQ(result.used_bytes, result.planned_bytes);
      EXPECT_FALSE(result.values.empty());
      for (const auto& [name, values] : result.values) {
        for (const double v : values) ASSERT_TRUE(std::isfinite(v)) << name;
      }
    }
  }
}

// A new op without a case fails here, by name.
TEST(GraphCases, CoverEveryRegisteredOp) {
  std::set<std::string> covered;
  for (const GraphCase& test : graph_cases()) {
    CaseGraph c = test.build(DType::kF32);
    std::map<TensorId, TensorId> gradients;
    if (c.loss != kNoTensor) c = testing::with_gradients(std::move(c), &gradients);
    for (const Processor processor : {Processor::kCpu, Processor::kGpu}) {
      const Program program =
          compile(c.graph, {.precision = Precision::kBf16, .processor = processor});
      for (const Node& node : program.graph.nodes()) covered.insert(std::string(node.op->type()));
    }
  }
  for (const Op* op : all_ops()) {
    if (is_exchange(op->type())) continue;  // needs several devices: *ranks_test.cc
    EXPECT_TRUE(covered.contains(std::string(op->type())))
        << op->type() << " has no row in tests/support/graph_cases.cc";
  }
}

TEST(GraphCases, HaveKernelsOnTheReferenceBackend) {
  const auto backend = make_reference_backend();
  for (const Op* op : all_ops()) {
    EXPECT_TRUE(backend->has_kernel(op->type())) << op->type();
  }
}

TEST(GraphCases, HaveUniqueNames) {
  std::set<std::string> names;
  for (const GraphCase& test : graph_cases()) EXPECT_TRUE(names.insert(test.name).second);
}

}  // namespace
}  // namespace trainyard
