// Catches: a training step that submits more to a GPU, or moves more bytes, than it did. The
// backend's own code runs on the fakes, which count and do not compute (fake_cuda.h), so models
// have the sizes of the performance goals. Prints each step's counts and the least time that an
// H200 could need for it by its data sheet: computed, not measured.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <vector>

#include "src/runtime/cuda/backend.h"
#include "src/runtime/profiling_backend.h"
#include "src/train/programs.h"
#include "src/train/session.h"
#include "tests/bench/bench_models.h"
#include "tests/cuda/fake_cuda.h"

namespace trainyard {
namespace {

using testing::WorkCounts;
using testing::WorkKind;

const DevicePeak kH200 = {67e12, 989e12, 4.8e12, "data sheet"};

struct Budget {
  std::string model;
  int64_t batch;
  Precision precision;
  int64_t kernels;     // of our own, in one step
  int64_t products;    // cuBLASLt
  int64_t dnn;         // cuDNN: convolutions, attention
  int64_t copies;      // and memory that is set
  double gigabytes;    // that the nodes read and write
  double dropout = 0;  // of transformers

  std::string title() const {
    return model + (dropout > 0 ? " with dropout" : "") + " " + std::string(name_of(precision));
  }
};

// What a step took when this was written, with a few per cent of room for kernels and bytes. Who
// needs more says why; who needs less lowers it.
const Budget kBudgets[] = {
    {"lenet5", 64, Precision::kFp32, 29, 6, 5, 0, 0.0459},
    {"lenet5", 64, Precision::kBf16, 42, 6, 5, 0, 0.0313},
    {"resnet18:224", 256, Precision::kFp32, 210, 3, 59, 2, 34.1},
    {"resnet18:224", 256, Precision::kBf16, 238, 3, 59, 2, 17.3},
    {"resnet50:224", 256, Precision::kFp32, 443, 3, 158, 2, 155},
    {"resnet50:224", 256, Precision::kBf16, 540, 3, 158, 2, 78.1},
    {"vgg16:224", 128, Precision::kFp32, 108, 9, 38, 0, 58.9},
    {"vgg16:224", 128, Precision::kBf16, 144, 9, 38, 0, 32.0},
    {"gpt2_small:1024", 64, Precision::kFp32, 287, 336, 0, 0, 195},
    {"gpt2_small:1024", 64, Precision::kBf16, 305, 240, 60, 0, 101},
    {"gpt2_small:1024", 64, Precision::kBf16, 355, 240, 0, 0, 104, /*dropout=*/0.1},
};

struct OpCount {
  int64_t nodes = 0, works = 0;
  double gigabytes = 0;
};

struct StepCount {
  WorkCounts recorded;
  int64_t outside = 0;  // what is submitted beside the recording: inputs and results
  double gigabytes = 0, gigaflops = 0;
  double bytes_ms = 0, flops_ms = 0, least_ms = 0;  // of kH200
  std::map<std::string_view, OpCount> by_op;
};

StepCount count_step(const Budget& budget) {
  testing::set_counting(true);
  testing::set_device_limit(int64_t{1} << 40);
  bench::BenchModel m = bench::bench_model(budget.model);
  if (budget.dropout > 0) m.model.parameters.set("dropout", budget.dropout);
  Recipe recipe;
  recipe.batch_size = budget.batch;
  recipe.optimizer = m.optimizer;
  recipe.precision = budget.precision;
  RunPrograms programs =
      compile_step(m.model, recipe, m.interface, {}, {kCudaAlignment, Processor::kGpu}).value();
  const Graph& graph = programs.train.program.graph;
  const auto zeros = [&](TensorId id) {
    return std::vector<std::byte>(static_cast<size_t>(graph.tensor(id).type.bytes()));
  };
  const std::vector<std::byte> input = zeros(programs.train.input),
                               target = zeros(programs.train.target);

  cuda::CudaBackend cuda(0);
  ProfilingBackend backend(cuda);
  Session session(std::move(programs), backend);
  StepCount count;
  int64_t step = 0;
  const auto run = [&] { session.run_step({input, target, step++, 0.01f}); };
  run();  // one by one
  run();  // recorded and replayed
  count.recorded = testing::recorded_works();
  const int64_t before = testing::submitted_works().all();
  run();
  count.outside = testing::submitted_works().all() - before - count.recorded.all();

  backend.begin();
  run();
  for (const NodeRun& node : backend.end()) {
    const NodeWork& work = backend.nodes().at(node.node);
    OpCount& op = count.by_op[work.op];
    const auto works = static_cast<int64_t>((node.end_s - node.begin_s) * 1e3 + 0.5);
    ++op.nodes;
    op.works += works;
    if (works == 0) continue;  // a view: its result lies where its operand does
    const double gigabytes = static_cast<double>(work.cost.bytes) / 1e9;
    op.gigabytes += gigabytes;
    count.gigabytes += gigabytes;
    count.gigaflops += static_cast<double>(work.cost.flops) / 1e9;
    count.flops_ms += 1e3 * least_seconds(work, {kH200.f32_flops, kH200.half_flops, 0, ""});
    count.least_ms += 1e3 * least_seconds(work, kH200);
  }
  count.bytes_ms = count.gigabytes * 1e9 / kH200.bytes * 1e3;
  return count;
}

TEST(StepBudget, EveryModelKeepsToItsOwn) {
  std::printf(
      "| model | batch | kernels | products | cuDNN | copies | beside "
      "the recording | GB | GFLOP | ms at 4.8 TB/s | ms at peak FLOP/s | least ms |\n");
  std::vector<std::pair<std::string, StepCount>> counts;
  for (const Budget& b : kBudgets) {
    SCOPED_TRACE(b.title());
    const StepCount c = count_step(b);
    const int64_t copies = c.recorded.of(WorkKind::kCopy) + c.recorded.of(WorkKind::kSet);
    std::printf(
        "| %s | %lld | %lld | %lld | %lld | %lld | %lld | %.4g | %.4g | %.3g | %.3g | "
        "%.3g |\n",
        b.title().c_str(), static_cast<long long>(b.batch),
        static_cast<long long>(c.recorded.of(WorkKind::kKernel)),
        static_cast<long long>(c.recorded.of(WorkKind::kProduct)),
        static_cast<long long>(c.recorded.of(WorkKind::kDnn)), static_cast<long long>(copies),
        static_cast<long long>(c.outside), c.gigabytes, c.gigaflops, c.bytes_ms, c.flops_ms,
        c.least_ms);
    EXPECT_LE(c.recorded.of(WorkKind::kKernel), b.kernels);
    EXPECT_LE(c.recorded.of(WorkKind::kProduct), b.products);
    EXPECT_LE(c.recorded.of(WorkKind::kDnn), b.dnn);
    EXPECT_LE(copies, b.copies);
    EXPECT_LE(c.gigabytes, b.gigabytes);
    // A step does something, and each work of the recording belongs to a node.
    int64_t works = 0;
    for (const auto& [op, of] : c.by_op) works += of.works;
    EXPECT_GT(c.recorded.all(), 0);
    EXPECT_EQ(works, c.recorded.all());
    counts.emplace_back(b.title(), c);
  }
  for (const auto& [title, count] : counts) {
    std::vector<std::pair<std::string_view, OpCount>> ops(count.by_op.begin(), count.by_op.end());
    std::ranges::stable_sort(
        ops, [](const auto& a, const auto& b) { return a.second.works > b.second.works; });
    std::printf("\n%s\n", title.c_str());
    for (const auto& [op, of] : ops) {
      std::printf("%6lld works  %5lld nodes  %9.4g GB  %s\n", static_cast<long long>(of.works),
                  static_cast<long long>(of.nodes), of.gigabytes, std::string(op).c_str());
    }
  }
}

}  // namespace
}  // namespace trainyard
