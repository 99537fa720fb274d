#include "tests/engine/rank_support.h"

#include <gtest/gtest.h>

#include "src/job/train_job.h"
#include "src/runtime/open_backend.h"
#include "src/train/trainer.h"

namespace trainyard::testing {

std::vector<RankDevice> connected(std::vector<std::shared_ptr<Backend>> backends) {
  std::vector<RankDevice> devices;
  std::vector<Backend*> all;
  for (auto& backend : backends) {
    all.push_back(backend.get());
    devices.push_back({"devices/gpu-" + std::to_string(devices.size()), std::move(backend)});
  }
  if (all.size() > 1) all.front()->connect(all).value();
  return devices;
}

std::vector<RankDevice> small_devices(int64_t ranks, int64_t limit_bytes) {
  std::vector<std::shared_ptr<Backend>> backends;
  for (int64_t r = 0; r < ranks; ++r)
    backends.push_back(std::make_shared<SmallBackend>(limit_bytes));
  return connected(std::move(backends));
}
std::vector<RankDevice> cpu_devices(int64_t ranks) {
  std::vector<std::shared_ptr<Backend>> backends;
  for (int64_t r = 0; r < ranks; ++r) backends.push_back(make_cpu_backend(1));
  return connected(std::move(backends));
}

ModelSpec plain_model() {
  ModelSpec spec = image_model();
  std::erase_if(spec.layers, [](const LayerSpec& l) { return l.op == "BatchNormalization"; });
  return spec;
}

TrainJob plain_job(const Workspace& w, const std::string& name) {
  TrainJob job;
  job.model = plain_model();
  job.recipe.steps = 30;
  job.recipe.batch_size = 16;
  job.recipe.optimizer.type = "sgd";
  job.recipe.optimizer.momentum = 0.9;
  job.recipe.optimizer.learning_rate = 0.02;
  job.recipe.seed = 5;
  job.recipe.validation_split = 0.2;
  job.recipe.evaluate_every_steps = 10;
  job.dataset = w / "dataset";
  job.checkpoints = w / (name + "-checkpoints");
  job.model_output = w / (name + "-model");
  return job;
}

TrainResult run(const TrainJob& job, int64_t ranks, Recorder& recorder) {
  auto result = train(job, cpu_devices(ranks), local_files(), recorder, {});
  if (!result.ok()) ADD_FAILURE() << result.error().message;
  return result.ok() ? std::move(*result) : TrainResult{};
}

void go_on(TrainJob job, const RankLayout& layout, int64_t stop_step, Recorder& recorder) {
  job.recipe.shard = layout.shard;
  std::stop_source stop;
  recorder.stop_step = stop_step;
  recorder.stop = &stop;
  const auto result =
      train(job, cpu_devices(layout.ranks), local_files(), recorder, stop.get_token());
  EXPECT_EQ(result.ok() ? "" : result.error().reason, stop_step == 0 ? "" : "STOPPED")
      << (result.ok() ? "" : result.error().message);
}

Recorder expect_to_resume(const std::function<TrainJob(const std::string&)>& job_of, int64_t ranks,
                          int64_t step) {
  const TrainJob never = job_of("never"), parts = job_of("parts");
  Recorder of_never, first, second;
  run(never, ranks, of_never);
  go_on(parts, {ranks, parts.recipe.shard}, step, first);
  run(parts, ranks, second);
  EXPECT_EQ(second.plan.first_step, step);
  EXPECT_TRUE(second.lines.empty()) << second.lines.front();
  EXPECT_TRUE(weights_of(parts) == weights_of(never));
  return of_never;
}

std::string weights_of(const TrainJob& job) {
  return bytes_of(job.model_output / "model.safetensors");
}

}  // namespace trainyard::testing
