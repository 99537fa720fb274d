// Catches: a job that uses other memory on a GPU than planned, or more once it trains. The emulated
// device's allocator counts, and does not know the plan (fake_cuda.h).
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>

#include "src/job/run_plan.h"
#include "src/job/train_job.h"
#include "src/runtime/cuda/backend.h"
#include "src/runtime/cuda/staging.h"
#include "src/runtime/forwarding_backend.h"
#include "src/train/trainer.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/cuda/ranks.h"
#include "tests/cuda/resident_rows.h"

namespace trainyard {
namespace {

using testing::device_bytes;
using testing::Workspace;

/// A GPU that counts the memory allocated through the backend, for programs and rows, separately
/// from the rest, and records both counts after each step.
class CountedBackend final : public ForwardingBackend {
 public:
  CountedBackend() : ForwardingBackend(std::make_unique<cuda::CudaBackend>(0)) {}
  void* allocate(int64_t bytes) override {
    const int64_t before = device_bytes();
    void* const memory = ForwardingBackend::allocate(bytes);
    asked_bytes_ += sizes_[memory] = device_bytes() - before;
    return memory;
  }
  void release(void* memory) noexcept override {
    asked_bytes_ -= sizes_[memory];
    ForwardingBackend::release(memory);
  }
  int64_t mark() override {
    ++marks;
    asked.insert(asked_bytes_);
    besides.insert(device_bytes() - asked_bytes_);
    return ForwardingBackend::mark();
  }

  int marks = 0;
  std::set<int64_t> asked, besides;  // in bytes, without duplicates

 private:
  int64_t asked_bytes_ = 0;
  std::map<void*, int64_t> sizes_;
};

// Copies to the GPU are staged in the backend's own memory, and a kernel allocates the table of its
// group's operands: the daemon reserves memory for both in addition to the plan.
constexpr int64_t kTablesMax = int64_t{64} << 10;

void expect_as_planned(const TrainJob& job) {
  const int64_t before = device_bytes();
  CountedBackend gpu;
  testing::Recorder recorder;
  const auto result = train(job, gpu, local_files(), recorder, {});
  ASSERT_TRUE(result.ok()) << result.error().message;
  const RunPlan& plan = recorder.plan;
  EXPECT_EQ(plan.dataset_bytes > 0, job.allows_resident_rows);
  EXPECT_GE(gpu.marks, 2) << "one behind an evaluation";
  EXPECT_EQ(gpu.asked, std::set{plan.memory.total() + plan.dataset_bytes});
  EXPECT_EQ(result->arena_used_bytes, plan.memory.total());
  EXPECT_EQ(result->arena_planned_bytes, plan.memory.total());
  EXPECT_EQ(gpu.besides.size(), 1U) << "allocated while it trains";
  const int64_t staged = static_cast<int64_t>(cuda::Staging::kSlots) *
                         cuda::Staging::slot_bytes(cuda::Device(0).memory_bytes());
  EXPECT_LE(*gpu.besides.rbegin() - before, staged + kTablesMax);
}

TEST(Memory, OfAConvolutionalNetworkIsAsPlanned) {
  const Workspace w;
  testing::make_dataset(w, /*images=*/true, 60);
  for (const Precision precision : {Precision::kFp32, Precision::kTf32, Precision::kBf16}) {
    for (const bool allows_resident_rows : {true, false}) {
      for (const int64_t parts : {1, 2}) {
        const std::string name = std::string(name_of(precision)) +
                                 (allows_resident_rows ? "-held-" : "-") + std::to_string(parts);
        SCOPED_TRACE(name);
        TrainJob job = testing::rank_job(w, name);
        job.recipe.precision = precision;
        job.recipe.accumulate_steps = parts;
        job.recipe.ema_decay = parts == 2 ? 0.9 : 0;
        job.allows_resident_rows = allows_resident_rows;
        expect_as_planned(job);
      }
    }
  }
}

TEST(Memory, OfALanguageModelIsAsPlanned) {
  const Workspace w;
  const DatasetSchema schema = testing::ingest_stream(w, 700);
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const std::string name(name_of(precision));
    SCOPED_TRACE(name);
    TrainJob job =
        testing::resident_job(w, name, testing::next_token_model(schema.text.vocabulary_size()));
    job.recipe.context_length = 5;
    job.recipe.precision = precision;
    expect_as_planned(job);
  }
}

}  // namespace
}  // namespace trainyard
