// Tests of a program bound to memory: what programs share, and what the executor checks when values
// are written and read.
#include "src/runtime/executor.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <limits>
#include <string>

#include "src/autodiff/differentiate.h"
#include "src/base/check.h"
#include "src/optim/optimizer.h"
#include "src/runtime/cuda_error.h"
#include "src/runtime/host/host_memory.h"
#include "tests/support/run_case.h"

namespace trainyard {
namespace {

using testing::CaseBuilder;
using testing::CaseGraph;

CaseGraph small_net() {
  CaseBuilder b(DType::kF32);
  const TensorId y = b.one("y", "Gemm", {{"transB", int64_t{1}}},
                           {b.input("x", {4, 3}), b.parameter("w", {2, 3}), b.parameter("b", {2})});
  return b.finish(y);
}

void write_all(Executor& executor, const CaseGraph& c) {
  for (const auto& [id, values] : c.values) testing::write_values(executor, id, values);
}

// Training and evaluation run in one arena: evaluation must read the weights that training updates.
TEST(Executor, ProgramsOfAJobShareTheirParameters) {
  const auto backend = make_reference_backend();
  CaseGraph training = small_net();
  const auto gradients = differentiate(training.graph, training.loss);
  const UpdateInputs inputs =
      append_optimizer(training.graph, {.type = "sgd", .momentum = 0.9}, gradients, kNoTensor);
  const CaseGraph evaluation = small_net();
  Program train_program = compile(std::move(training.graph), {});
  const PersistentLayout layout = persistent_layout(train_program);
  PreparedProgram train(std::move(train_program), *backend);
  PreparedProgram evaluate(compile(evaluation.graph, {.persistent = &layout}), *backend);
  Arena arena(*backend, train.program().persistent_bytes,
              std::max(train.program().transient_bytes, evaluate.program().transient_bytes),
              std::max(train.workspace_bytes(), evaluate.workspace_bytes()));
  Executor trainer(std::move(train), arena);
  Executor evaluator(std::move(evaluate), arena);
  const auto loss_now = [&] {
    for (const auto& [id, values] : evaluation.values) {
      if (evaluation.graph.tensor(id).role == Role::kInput) {
        testing::write_values(evaluator, id, values);
      }
    }
    evaluator.run();
    return testing::read_values(evaluator, evaluation.loss)[0];
  };
  write_all(trainer, training);
  double previous = loss_now();
  for (int step = 0; step < 5; ++step) {
    for (const auto& [id, values] : training.values) {
      if (trainer.program().graph.tensor(id).role == Role::kInput) {
        testing::write_values(trainer, id, values);
      }
    }
    testing::write_values(trainer, inputs.learning_rate, {0.05});
    trainer.run();
    const double now = loss_now();
    EXPECT_LT(now, previous) << step;
    previous = now;
  }
  EXPECT_EQ(std::max(trainer.used_bytes(), evaluator.used_bytes()), arena.size_bytes());
}

TEST(Executor, InputsAndOutputsOutliveTheRun) {
  const auto backend = make_reference_backend();
  const CaseGraph c = small_net();
  PreparedProgram prepared(compile(c.graph, {}), *backend);
  Arena arena(*backend, prepared.program().persistent_bytes, prepared.program().transient_bytes,
              prepared.workspace_bytes());
  Executor executor(std::move(prepared), arena);
  write_all(executor, c);
  executor.run();
  const double first = testing::read_values(executor, c.loss)[0];
  executor.run();  // no input is written again
  EXPECT_EQ(testing::read_values(executor, c.loss)[0], first);
  for (const auto& [id, values] : c.values) {
    const std::vector<double> now = testing::read_values(executor, id);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(static_cast<float>(now[i]), static_cast<float>(values[i]));
    }
  }
}

TEST(Executor, FaultsOnAWrongSizeAndOnAnArenaThatIsTooSmall) {
  const auto backend = make_reference_backend();
  const CaseGraph c = small_net();
  const auto prepare = [&] { return PreparedProgram(compile(c.graph, {}), *backend); };
  const Program p = prepare().program();
  Arena small(*backend, p.persistent_bytes, p.transient_bytes - kHostAlignment, 0);
  EXPECT_THROW(Executor(prepare(), small), InvariantError);
  Arena arena(*backend, p.persistent_bytes, p.transient_bytes, 0);
  Executor executor(prepare(), arena);
  std::vector<std::byte> bytes(7);
  EXPECT_THROW(executor.write(c.loss, bytes), InvariantError);
  EXPECT_THROW(executor.read(c.loss, bytes), InvariantError);
}

/// Requires a larger alignment than its memory has by itself.
class DemandingBackend final : public HostBackend {
 public:
  std::string_view name() const override { return "demanding"; }
  bool has_kernel(std::string_view op_type) const override { return inner_->has_kernel(op_type); }
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    return inner_->prepare(graph, node);
  }
  int64_t alignment() const override { return kAlignment; }
  void* allocate(int64_t bytes) override {
    const auto memory = reinterpret_cast<uintptr_t>(HostBackend::allocate(bytes + 2 * kAlignment));
    base_ = reinterpret_cast<void*>(memory);
    const uintptr_t next = (memory + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<void*>(next + misplaced);
  }
  void release(void*) noexcept override { HostBackend::release(base_); }
  uintptr_t misplaced = 0;

 private:
  static constexpr int64_t kAlignment = 256;
  std::unique_ptr<Backend> inner_ = make_reference_backend();
  void* base_ = nullptr;
};

/// Returns the message of the exception that `f` throws; empty if there is none.
std::string fault_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const InvariantError& e) {
    return e.what();
  }
  return "";
}

TEST(Executor, FaultsOnMemoryWithoutTheBackendsAlignment) {
  DemandingBackend backend;
  const CaseGraph c = small_net();
  const auto bind = [&](int64_t alignment) {
    PreparedProgram prepared(compile(c.graph, {.alignment = alignment}), backend);
    const Program& p = prepared.program();
    Arena arena(backend, p.persistent_bytes, p.transient_bytes, prepared.workspace_bytes());
    EXPECT_EQ((arena.workspace() - arena.persistent()) % 256, 0);
    const Executor executor(std::move(prepared), arena);
  };
  EXPECT_EQ(fault_of([&] { bind(256); }), "");
  EXPECT_NE(fault_of([&] {
              bind(64);
            }).find("laid out in multiples of 64 bytes, the demanding backend requires 256"),
            std::string::npos);
  backend.misplaced = 64;
  EXPECT_NE(fault_of([&] { bind(256); }).find("is not at a multiple of the 256 bytes"),
            std::string::npos);
}

TEST(Executor, NamesTheFirstTensorThatIsNotFiniteWhenAsked) {
  const auto backend = make_reference_backend();
  const CaseGraph c = small_net();
  ASSERT_EQ(setenv("TRAINYARD_CHECK_NUMERICS", "1", 1), 0);
  PreparedProgram prepared(compile(c.graph, {}), *backend);
  Arena arena(*backend, prepared.program().persistent_bytes, prepared.program().transient_bytes,
              prepared.workspace_bytes());
  Executor executor(std::move(prepared), arena);
  unsetenv("TRAINYARD_CHECK_NUMERICS");
  write_all(executor, c);
  executor.run();  // all values are finite, so no fault
  std::vector<double> bias = {0.5, std::numeric_limits<double>::quiet_NaN()};
  testing::write_values(executor, c.graph.find_tensor("b").value(), bias);
  try {
    executor.run();
    FAIL() << "a NaN went unnoticed";
  } catch (const NumericsError& e) {
    EXPECT_STREQ(e.what(),
                 "node y (Gemm) computed a value that is not finite: y [4, 2], element 1");
  }
}

/// A GPU whose kernels fault, which only synchronize() reports.
class FaultyBackend final : public HostBackend {
 public:
  std::string_view name() const override { return "faulty"; }
  bool has_kernel(std::string_view op_type) const override { return inner_->has_kernel(op_type); }
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    return inner_->prepare(graph, node);
  }
  void synchronize() override {
    if (is_faulty) throw CudaError("waiting: an illegal access", 700, CudaFault::kProgram);
  }
  bool is_faulty = false;

 private:
  std::unique_ptr<Backend> inner_ = make_reference_backend();
};

TEST(Executor, NamesTheNodeThatFaultsWhenAsked) {
  FaultyBackend backend;
  const CaseGraph c = small_net();
  PreparedProgram prepared(compile(c.graph, {}), backend);
  Arena arena(backend, prepared.program().persistent_bytes, prepared.program().transient_bytes,
              prepared.workspace_bytes());
  Executor executor(std::move(prepared), arena);
  write_all(executor, c);
  backend.is_faulty = true;
  EXPECT_NO_THROW(executor.run());  // nothing has synchronized yet
  executor.wait_after_nodes(true);
  try {
    executor.run();
    FAIL() << "a fault went unnoticed";
  } catch (const CudaError& e) {
    EXPECT_STREQ(e.what(), "node y (Gemm): waiting: an illegal access");
    EXPECT_EQ(e.code(), 700);
    EXPECT_EQ(e.fault(), CudaFault::kProgram);
  }
}

TEST(ReferenceBackend, FaultsOnAnOpWithoutAKernel) {
  class Unknown final : public Op {
   public:
    std::string_view type() const override { return "Unknown"; }
    Result<std::vector<TensorType>> infer(const InferContext& c) const override {
      return std::vector{c.input(0)};
    }
  };
  const Unknown op;
  const auto backend = make_reference_backend();
  EXPECT_FALSE(backend->has_kernel("Unknown"));
  CaseBuilder b(DType::kF32);
  CaseGraph c = b.finish(b.parameter("p", {2}));
  const NodeId node = c.graph.add_node("n", op, {}, {0}, {"out"}).value();
  c.graph.mark_output(c.graph.node(node).outputs[0]);  // otherwise dead code elimination removes it
  EXPECT_THROW(PreparedProgram(compile(std::move(c.graph), {}), *backend), InvariantError);
}

}  // namespace
}  // namespace trainyard
