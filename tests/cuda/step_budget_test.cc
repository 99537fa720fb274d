// Catches: a training step that submits more works to a GPU, or moves more bytes, than before. The
// backend's own code runs on the fakes, which count and do not compute (tests/bench/step_count.h),
// so models have the sizes of the performance goals. The bytes are those that kernels really move,
// by the table of tests/bench/step_facts.cc. Prints each step's counts, and the least time that an
// H200 could need for it according to its data sheet: computed, not measured.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/bench/step_model.h"

namespace trainyard {
namespace {

using testing::WorkCounts;
using testing::WorkKind;

const DevicePeak kH200 = {67e12, 494.5e12, 989e12, 4.8e12, "data sheet"};

struct Budget {
  std::string model;
  int64_t batch;
  Precision precision;
  int64_t kernels;     // launches of our own kernels in the nodes of one step
  int64_t products;    // cuBLASLt
  int64_t dnn;         // cuDNN: convolutions, attention
  int64_t copies;      // copies and fills
  double gigabytes;    // moved by each pass of our kernels; libraries' operands once
  double dropout = 0;  // dropout ratio of transformers

  std::string title() const {
    return model + (dropout > 0 ? " with dropout" : "") + " " + std::string(name_of(precision));
  }
};

// The counts of a step when the budget was set, with a few percent of room for kernels and bytes. A
// change that needs more states its reason; a change that needs less lowers the budget.
const Budget kBudgets[] = {
    {"lenet5", 64, Precision::kFp32, 18, 6, 0, 0, 0.0380},
    {"lenet5", 64, Precision::kBf16, 21, 6, 0, 0, 0.0258},
    {"resnet18:224", 256, Precision::kFp32, 199, 3, 59, 2, 41.7},
    {"resnet18:224", 256, Precision::kBf16, 205, 3, 59, 2, 21.3},
    {"resnet50:224", 256, Precision::kFp32, 424, 102, 59, 2, 189},
    {"resnet50:224", 256, Precision::kBf16, 464, 3, 158, 2, 95.4},
    {"vgg16:224", 128, Precision::kFp32, 97, 9, 38, 0, 62.6},
    {"vgg16:224", 128, Precision::kBf16, 113, 9, 38, 0, 33.6},
    // In bf16 each of the head's 16 chunks has a small product more, for the last rows of the
    // weights' gradient (src/runtime/cuda/head_loss.cc).
    {"gpt2_small:1024", 64, Precision::kFp32, 228, 240, 0, 0, 281},
    {"gpt2_small:1024", 64, Precision::kBf16, 166, 208, 60, 0, 141},
    {"gpt2_small:1024", 64, Precision::kBf16, 216, 208, 0, 0, 144, /*dropout=*/0.1},
};

struct OpCount {
  int64_t nodes = 0, works = 0;
  double gigabytes = 0;
};

/// The step's counts, and the bytes and operations of its nodes.
struct Counted {
  bench::StepCount step;
  double gigabytes = 0, gigaflops = 0;
  double bytes_ms = 0, flops_ms = 0, least_ms = 0;  // on an H200 (kH200)
  std::map<std::string, OpCount> by_op;
};

Counted count(const Budget& budget) {
  static const bench::AlgorithmTimes times(bench::first_run_algorithms());
  Counted c;
  c.step = bench::count_step({budget.model, budget.batch, budget.precision, budget.dropout});
  for (const bench::NodeCount& node : c.step.nodes) {
    OpCount& op = c.by_op[std::string(node.work.op)];
    ++op.nodes;
    op.works += node.works.all();
    if (node.works.all() == 0) continue;  // a view: its result is in its operand's memory
    const double bytes = bench::moved_bytes(node, times);
    op.gigabytes += bytes / 1e9;
    c.gigabytes += bytes / 1e9;
    c.gigaflops += static_cast<double>(node.work.cost.flops) / 1e9;
    NodeWork work = node.work;
    work.cost.bytes = static_cast<int64_t>(bytes);
    c.flops_ms +=
        1e3 * least_seconds(work, {kH200.f32_flops, kH200.tf32_flops, kH200.half_flops, 0, ""});
    c.least_ms += 1e3 * least_seconds(work, kH200);
  }
  c.bytes_ms = c.gigabytes * 1e9 / kH200.bytes * 1e3;
  return c;
}

TEST(StepBudget, EveryModelKeepsToItsOwn) {
  std::printf(
      "| model | batch | kernels | products | cuDNN | copies | beside "
      "the recording | GB | GFLOP | ms at 4.8 TB/s | ms at peak FLOP/s | least ms |\n");
  std::vector<std::pair<std::string, Counted>> counts;
  for (const Budget& b : kBudgets) {
    SCOPED_TRACE(b.title());
    const Counted c = count(b);
    const WorkCounts recorded = c.step.of_nodes();
    const int64_t copies = recorded.of(WorkKind::kCopy) + recorded.of(WorkKind::kSet);
    std::printf(
        "| %s | %lld | %lld | %lld | %lld | %lld | %lld | %.4g | %.4g | %.3g | %.3g | "
        "%.3g |\n",
        b.title().c_str(), static_cast<long long>(b.batch),
        static_cast<long long>(recorded.of(WorkKind::kKernel)),
        static_cast<long long>(recorded.of(WorkKind::kProduct)),
        static_cast<long long>(recorded.of(WorkKind::kDnn)), static_cast<long long>(copies),
        static_cast<long long>(c.step.outside), c.gigabytes, c.gigaflops, c.bytes_ms, c.flops_ms,
        c.least_ms);
    EXPECT_LE(recorded.of(WorkKind::kKernel), b.kernels);
    EXPECT_LE(recorded.of(WorkKind::kProduct), b.products);
    EXPECT_LE(recorded.of(WorkKind::kDnn), b.dnn);
    EXPECT_LE(copies, b.copies);
    EXPECT_LE(c.gigabytes, b.gigabytes);
    // Each work of the recording must belong to a node or gather a step's rows; one more copies the
    // last results to their slot.
    EXPECT_GT(recorded.all(), 0);
    const int64_t together = c.step.together;
    EXPECT_EQ(c.step.recorded.all() - together * recorded.all(),
              c.step.has_resident_rows ? together + 1 : 0);
    counts.emplace_back(b.title(), c);
  }
  for (const auto& [title, count] : counts) {
    std::vector<std::pair<std::string, OpCount>> ops(count.by_op.begin(), count.by_op.end());
    std::ranges::stable_sort(
        ops, [](const auto& a, const auto& b) { return a.second.works > b.second.works; });
    std::printf("\n%s\n", title.c_str());
    for (const auto& [op, of] : ops) {
      std::printf("%6lld works  %5lld nodes  %9.4g GB  %s\n", static_cast<long long>(of.works),
                  static_cast<long long>(of.nodes), of.gigabytes, op.c_str());
    }
  }
}

}  // namespace
}  // namespace trainyard
