// tests/engine/rank_support.h: jobs on several devices that are host backends.
#pragma once

#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "src/job/train_job.h"
#include "src/runtime/host/host_memory.h"
#include "src/runtime/open_backend.h"
#include "src/train/trainer.h"
#include "tests/engine/train_support.h"

namespace trainyard::testing {

std::vector<RankDevice> connected(std::vector<std::shared_ptr<Backend>> backends);
std::vector<RankDevice> cpu_devices(int64_t ranks);

/// A CPU with limited memory.
class SmallBackend final : public HostBackend {
 public:
  explicit SmallBackend(int64_t limit_bytes)
      : limit_bytes_(limit_bytes), inner_(make_cpu_backend(1)) {}
  std::string_view name() const override { return "cpu"; }
  bool has_kernel(std::string_view op_type) const override { return inner_->has_kernel(op_type); }
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    return inner_->prepare(graph, node);
  }
  void* allocate(int64_t bytes) override {
    if (bytes > limit_bytes_) throw std::bad_alloc();
    return HostBackend::allocate(bytes);
  }
  Status connect(std::span<Backend* const> ranks) override {
    std::vector<Backend*> inner;
    for (Backend* rank : ranks) inner.push_back(dynamic_cast<SmallBackend&>(*rank).inner_.get());
    return inner.front()->connect(inner);
  }
  Communicator* communicator() override { return inner_->communicator(); }

 private:
  const int64_t limit_bytes_;
  std::unique_ptr<Backend> inner_;
};

/// Returns CPUs with limited memory that train together.
std::vector<RankDevice> small_devices(int64_t ranks, int64_t limit_bytes);

/// Returns a model without batch normalization, whose statistics are each rank's own, but with
/// everything else that draws random numbers or reduces over rows.
ModelSpec plain_model();
/// Returns a job of 30 steps with plain_model() on the dataset in the workspace.
TrainJob plain_job(const Workspace& w, const std::string& name);
/// Trains the job; a refusal fails the test.
TrainResult run(const TrainJob& job, int64_t ranks, Recorder& recorder);

/// The number of ranks, and what is sharded over them.
struct RankLayout {
  int64_t ranks;
  Shard shard;
};
/// Resumes from the newest checkpoint, and trains to `stop_step` or, if that is 0, to the end.
void go_on(TrainJob job, const RankLayout& layout, int64_t stop_step, Recorder& recorder);
/// Trains a job that writes a checkpoint at `step` once without a stop, and once stopped there and
/// resumed; expects the same result. `job_of` gives the job a name. Returns the recorder of the run
/// without a stop.
Recorder expect_to_resume(const std::function<TrainJob(const std::string& name)>& job_of,
                          int64_t ranks, int64_t step);

/// Returns the content of the trained model's weight file.
std::string weights_of(const TrainJob& job);

}  // namespace trainyard::testing
