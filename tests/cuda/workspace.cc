#include "tests/cuda/workspace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "src/graph/op.h"
#include "tests/cuda/parity.h"
#include "tests/support/run_case.h"

namespace trainyard::testing {

class WorkspaceBackend::ChangedKernel final : public Kernel {
 public:
  ChangedKernel(std::unique_ptr<Kernel> inner, WorkspaceBackend& backend, const Node& node)
      : inner_(std::move(inner)), backend_(backend), name_(node.name), op_(node.op->type()) {}
  int64_t workspace_bytes() const override {
    const int64_t bytes = inner_->workspace_bytes();
    return bytes > 0 ? bytes + backend_.change_.offset : 0;
  }
  bool accepts_stored_types() const override { return inner_->accepts_stored_types(); }
  void run(const KernelArgs& args) override {
    if (args.workspace == nullptr) return inner_->run(args);
    KernelArgs changed = args;
    changed.workspace = static_cast<std::byte*>(args.workspace) + backend_.change_.offset;
    const int64_t bytes = inner_->workspace_bytes();
    if (const std::optional<int> fill = backend_.change_.fill; fill.has_value()) {
      const std::vector<std::byte> filled(static_cast<size_t>(bytes),
                                          static_cast<std::byte>(*fill));
      backend_.copy_to_device(changed.workspace, filled.data(), bytes);
    }
    backend_.uses_.push_back({name_, op_, bytes, reinterpret_cast<uintptr_t>(changed.workspace)});
    inner_->run(changed);
  }

 private:
  std::unique_ptr<Kernel> inner_;
  WorkspaceBackend& backend_;
  std::string name_, op_;
};

std::unique_ptr<Kernel> WorkspaceBackend::prepare(const Graph& graph, const Node& node) {
  auto kernel = ForwardingBackend::prepare(graph, node);
  const bool convolves = node.op->type().find("Conv") != std::string_view::npos;
  if (change_.offset != 0 && !convolves) return kernel;
  return std::make_unique<ChangedKernel>(std::move(kernel), *this, node);
}

std::string name_of(const WorkspaceCase& c) {
  return std::string(trainyard::name_of(c.precision)) +
         (c.channels_last ? " channels-last" : " row-major") + (c.keep_all ? " kept" : " reused");
}

std::vector<WorkspaceCase> workspace_cases() {
  std::vector<WorkspaceCase> all;
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    for (const bool channels_last : {false, true}) {
      for (const bool keep_all : {true, false}) all.push_back({precision, channels_last, keep_all});
    }
  }
  return all;
}

WorkspaceRun run_in_workspace(Backend& cuda, const WorkspaceCase& c,
                              const WorkspaceChange& change) {
  const auto& cases = graph_cases();
  const auto test = std::ranges::find(cases, "BatchNormalization/fours", &GraphCase::name);
  std::map<TensorId, TensorId> gradients;
  const CaseGraph graph = with_gradients(test->build(DType::kF32), &gradients);
  RunOptions options{c.channels_last, c.keep_all};
  options.precision = c.precision;
  const auto reference = make_reference_backend();
  const CaseResult expected = run_case(graph, *reference, options);
  WorkspaceBackend backend(cuda, change);
  WorkspaceRun run;
  run.values = run_case(graph, backend, options).values;
  run.uses = backend.uses();
  for (const auto& [name, got] : run.values) {
    const std::vector<double>& values = expected.values.at(name);
    double scale = 1e-3;
    for (const double v : values) scale = std::max(scale, std::abs(v));
    for (size_t i = 0; i < values.size(); ++i) {
      const double difference = std::abs(got[i] - values[i]) / scale;
      if (difference <= run.worst) continue;
      run.worst = std::isnan(difference) ? INFINITY : difference;
      run.where = name + "[" + std::to_string(i) + "]";
    }
  }
  return run;
}

void expect_right_in_any_workspace(Backend& cuda) {
  for (const WorkspaceCase& c : workspace_cases()) {
    SCOPED_TRACE(name_of(c));
    const double bound = relative_max_of(c.precision);
    const WorkspaceRun plain = run_in_workspace(cuda, c, {});
    std::printf("workspace as planned: %s: differs by %.1e (%s), at most %.1e is right\n",
                name_of(c).c_str(), plain.worst, plain.where.c_str(), bound);
    EXPECT_LE(plain.worst, bound) << plain.where;
    EXPECT_TRUE(std::ranges::any_of(plain.uses, [](const WorkspaceBackend::Use& u) {
      return u.op.find("Conv") != std::string::npos;
    })) << "no convolution has a workspace";
    for (const WorkspaceBackend::Use& u : plain.uses) {
      EXPECT_EQ(u.address % static_cast<uintptr_t>(cuda.alignment()), 0U) << u.node;
      std::printf("  %s (%s): %lld bytes at %llu of 1024\n", u.node.c_str(), u.op.c_str(),
                  static_cast<long long>(u.bytes),
                  static_cast<unsigned long long>(u.address % 1024));
    }
    for (const int fill : {0x00, 0x3C, 0xFF}) {  // the last is NaN
      const WorkspaceRun filled = run_in_workspace(cuda, c, {.fill = fill});
      std::printf("workspace of 0x%02X: %s: differs by %.1e (%s)\n", static_cast<unsigned>(fill),
                  name_of(c).c_str(), filled.worst, filled.where.c_str());
      EXPECT_EQ(filled.values, plain.values) << "an engine reads what it has not written";
    }
  }
  if (Algorithms* const algorithms = cuda.algorithms(); algorithms != nullptr) {
    for (const auto& [device, choices] : algorithms->used()) {
      for (const auto& [key, choice] : choices) {
        std::printf("choice: %s: %s\n", key.c_str(), choice.c_str());
      }
    }
  }
}

}  // namespace trainyard::testing
