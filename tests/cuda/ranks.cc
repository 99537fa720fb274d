#include "tests/cuda/ranks.h"
#include "src/job/train_job.h"
#include "src/train/trainer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace trainyard::testing {

std::vector<RankDevice> connected(int ranks,
                                  const std::function<std::shared_ptr<Backend>(int)>& make) {
  std::vector<RankDevice> devices;
  std::vector<Backend*> backends;
  for (int r = 0; r < ranks; ++r) {
    devices.push_back({"devices/gpu-" + std::to_string(r), make(r)});
    backends.push_back(devices.back().backend.get());
  }
  if (ranks > 1) backends.front()->connect(backends).value();
  return devices;
}

std::vector<RankDevice> cpu_ranks(int ranks) {
  return connected(ranks, [](int) { return std::shared_ptr<Backend>(make_cpu_backend(1)); });
}

TrainJob rank_job(const Workspace& w, const std::string& name) {
  TrainJob job;
  job.model = image_model();
  job.recipe.steps = 8;
  job.recipe.batch_size = 16;
  job.recipe.optimizer.type = "sgd";
  job.recipe.optimizer.momentum = 0.9;
  job.recipe.optimizer.learning_rate = 0.02;
  job.recipe.clip_norm = 1;
  job.recipe.metrics = {"gradient_norm"};
  job.recipe.seed = 5;
  job.recipe.validation_split = 0.2;
  job.recipe.evaluate_every_steps = 4;
  job.recipe.checkpoint_every_steps = 5;
  job.dataset = w / "dataset";
  job.checkpoints = w / (name + "-checkpoints");
  job.model_output = w / (name + "-model");
  return job;
}

void run_job(const TrainJob& job, const std::vector<RankDevice>& devices, Recorder& recorder) {
  const auto result = train(job, devices, local_files(), recorder, {});
  ASSERT_TRUE(result.ok()) << result.error().message;
}

void sample_classes(TrainJob& job) {
  job.model.loss = {"SampledSoftmaxCrossEntropyLoss", {{"samples", int64_t{1}}}};
}

void tie_the_head(TrainJob& job) {
  const std::filesystem::path folder = job.dataset.parent_path();
  job.dataset = folder / "text";
  if (!std::filesystem::exists(job.dataset)) {
    std::string text;
    for (int i = 0; i < 900; ++i) text += static_cast<char>('a' + (i * i + i / 5) % 13);
    std::ofstream(folder / "input.txt") << text;
    IngestRequest request;
    request.format = "text";
    request.text.test_share = 0.1;
    request.sources.push_back({"data", folder / "input.txt"});
    const auto schema = ingest(request, job.dataset, local_files());
    if (!schema.ok()) ADD_FAILURE() << schema.error().message;
  }
  job.model = {};
  job.model.preset = "gpt2";
  job.model.parameters = {{"size", std::string("nano")},
                          {"n_layer", int64_t{1}},
                          {"n_head", int64_t{2}},
                          {"n_embd", int64_t{24}},
                          {"dropout", 0.2}};
  job.recipe.context_length = 6;
}

void split_pairs(TrainJob& job, const char* activation) {
  const auto dense = [](const char* name, int64_t units) {
    return LayerSpec{name, "Gemm", {}, {{"units", units}}};
  };
  Attributes attributes;
  if (std::string(activation) == "Gelu") attributes.set("approximate", std::string("tanh"));
  job.model = {};
  job.model.layers = {{"", "Flatten", {}, {}},
                      dense("fc1", 96),
                      {"", activation, {}, attributes},
                      {"", "Dropout", {}, {{"ratio", 0.25}}},
                      dense("fc2", 48),
                      {"", "Tanh", {}, {}},
                      dense("fc3", 80),
                      {"", activation, {}, attributes},
                      {"", "Gemm", {}, {}}};
}

void expect_like_the_cpus(const std::function<std::vector<RankDevice>()>& two_gpus,
                          int64_t accumulate_steps, Shard shard,
                          const std::function<void(TrainJob&)>& change) {
  const Workspace w;
  make_dataset(w, /*images=*/true, 60);
  const auto job = [&](const std::string& name) {
    TrainJob named = rank_job(w, name);
    named.recipe.accumulate_steps = accumulate_steps;
    named.recipe.shard = shard;
    if (change) change(named);
    return named;
  };
  Recorder of_cpus, of_gpus, again;
  run_job(job("cpu"), cpu_ranks(2), of_cpus);
  run_job(job("gpu"), two_gpus(), of_gpus);
  run_job(job("again"), two_gpus(), again);
  for (const char* key : {"train/loss", "train/gradient_norm", "val/loss"}) {
    ASSERT_EQ(of_cpus.series[key].size(), of_gpus.series[key].size());
    ASSERT_FALSE(of_gpus.series[key].empty());
    for (const auto& [step, value] : of_cpus.series[key]) {
      EXPECT_NEAR(of_gpus.series[key][step], value, 1e-4 * value) << key << " of step " << step;
    }
    EXPECT_EQ(of_gpus.series[key], again.series[key]) << key;
  }
  EXPECT_EQ(bytes_of(w / "gpu-model/model.safetensors"),
            bytes_of(w / "again-model/model.safetensors"));
}

}  // namespace trainyard::testing
