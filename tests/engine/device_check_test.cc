// The tests fail if the device check trusts a device that computes wrong results, or rejects one
// that computes correctly.
#include "src/calibration/device_check.h"

#include <gtest/gtest.h>

#include "src/graph/op.h"
#include "src/runtime/executor.h"
#include "src/runtime/forwarding_backend.h"

namespace trainyard {
namespace {

/// The cpu backend with one op that computes wrong results.
class BrokenBackend final : public ForwardingBackend {
 public:
  BrokenBackend(std::string op, bool changes)
      : ForwardingBackend(make_cpu_backend(2)), op_(std::move(op)), changes_(changes) {}
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    auto kernel = ForwardingBackend::prepare(graph, node);
    if (node.op->type() != op_) return kernel;
    return std::make_unique<Broken>(std::move(kernel), changes_ ? &runs_ : nullptr);
  }

 private:
  /// Adds an error to some elements of the output: always the same, or one that grows with each
  /// run.
  struct Broken final : Kernel {
    Broken(std::unique_ptr<Kernel> k, int64_t* r) : kernel(std::move(k)), runs(r) {}
    int64_t workspace_bytes() const override { return kernel->workspace_bytes(); }
    bool accepts_stored_types() const override { return kernel->accepts_stored_types(); }
    void run(const KernelArgs& args) override {
      kernel->run(args);
      const float more = runs == nullptr ? 0.5F : 1e-5F * static_cast<float>((*runs)++);
      for (int i = 0; i < 4; ++i) args.out<float>(0)[4 * i] += more;
    }
    std::unique_ptr<Kernel> kernel;
    int64_t* runs;
  };
  std::string op_;
  bool changes_;
  int64_t runs_ = 0;
};

TEST(DeviceCheck, TrustsTheCpu) {
  const auto cpu = make_cpu_backend(2);
  double loss = 0, weights = 0;
  const auto judge = make_reference_backend();
  const DeviceCheck check = check_device(*cpu, *judge, [&](const DeviceCheckRow& row) {
    std::printf("%s: loss %.1e, weights %.1e\n", row.network.c_str(), row.loss, row.weights);
    if (row.network.ends_with("bf16")) return true;
    loss = std::max(loss, row.loss);
    weights = std::max(weights, row.weights);
    return true;
  });
  EXPECT_EQ(check.failure(), "");
  EXPECT_EQ(check.rows.size(), 11U);
  std::printf("largest differences: loss %.1e, weights %.1e\n", loss, weights);
}

TEST(DeviceCheck, ReportsTheDifference) {
  BrokenBackend wrong("LayerNormalization", false);
  const DeviceCheck check = check_device(wrong, *make_cpu_backend(2));
  for (const DeviceCheckRow& row : check.rows) {
    const bool has_it = row.network.starts_with("gpt2") || row.network.starts_with("transformer");
    EXPECT_EQ(!row.failure.empty(), has_it) << row.network << ": " << row.failure;
  }
  EXPECT_NE(check.failure().find("gpt2: its weights differ from the CPU's by"), std::string::npos)
      << check.failure();
}

/// The cpu backend, except that the gradient of one filter of one convolution has the wrong sign.
class WrongFilterBackend final : public ForwardingBackend {
 public:
  WrongFilterBackend() : ForwardingBackend(make_cpu_backend(2)) {}
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    auto kernel = ForwardingBackend::prepare(graph, node);
    if (node.op->type() != "ConvGrad" || !node.name.starts_with("layer2/0/conv2")) return kernel;
    const Shape& w = graph.tensor(node.outputs[1]).type.shape;
    return std::make_unique<WrongFilter>(std::move(kernel), w.elements() / w[0]);
  }

 private:
  struct WrongFilter final : Kernel {
    WrongFilter(std::unique_ptr<Kernel> k, int64_t n) : kernel(std::move(k)), count(n) {}
    int64_t workspace_bytes() const override { return kernel->workspace_bytes(); }
    bool accepts_stored_types() const override { return kernel->accepts_stored_types(); }
    void run(const KernelArgs& args) override {
      kernel->run(args);
      for (int64_t i = 0; i < count; ++i) args.out<float>(1)[i] *= -1;
    }
    std::unique_ptr<Kernel> kernel;
    int64_t count;
  };
};

// One filter of eight is wrong, in one of twenty convolutions. In bf16, losses and weights do not
// show it.
TEST(DeviceCheck, FindsOneWrongFilterGradient) {
  WrongFilterBackend wrong;
  const DeviceCheck check = check_device(wrong, *make_cpu_backend(2));
  for (const DeviceCheckRow& row : check.rows) {
    if (!row.network.starts_with("resnet18")) {
      EXPECT_EQ(row.failure, "") << row.network;
      continue;
    }
    EXPECT_NE(row.failure, "") << row.network;
  }
  const std::string& bf16 = check.rows.at(9).failure;
  EXPECT_EQ(check.rows.at(9).network, "resnet18 bf16");
  EXPECT_NE(bf16.find("its gradient of layer2/0/conv2.weight differs"), std::string::npos) << bf16;
}

TEST(DeviceCheck, StopsOnRequest) {
  BrokenBackend wrong("LayerNormalization", false);
  const auto judge = make_cpu_backend(2);
  const DeviceCheck check =
      check_device(wrong, *judge, [](const DeviceCheckRow& row) { return row.failure.empty(); });
  EXPECT_EQ(check.rows.back().network, "gpt2");
  EXPECT_LT(check.rows.size(), 11U);
}

TEST(DeviceCheck, FindsResultsThatDoNotRepeat) {
  BrokenBackend changing("GlobalAveragePool", true);
  const DeviceCheck check = check_device(changing, *make_cpu_backend(2));
  EXPECT_EQ(check.failure(), "resnet18: a second run gave different bits");
}

}  // namespace
}  // namespace trainyard
