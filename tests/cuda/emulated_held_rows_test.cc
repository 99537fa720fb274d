// Catches: a batch that a GPU makes of rows that it holds and that differs from the host's in a
// bit; samples of another rank's or micro-batch's rows; rows gathered before they have arrived, or
// over those that a step still reads (the emulated streams run as late as they may, fake_cuda.h);
// memory that the plan does not tell.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "src/runtime/cuda/backend.h"
#include "src/train/loop.h"
#include "src/train/programs.h"
#include "src/train/recipe_check.h"
#include "src/train/step_profile.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/cuda/ranks.h"

namespace trainyard {
namespace {

using testing::bytes_of;
using testing::Recorder;
using testing::run_job;
using testing::Workspace;

/// The same GPU, batches from the host.
class FromHost final : public Backend {
 public:
  explicit FromHost(int ordinal) : inner_(ordinal) {}
  std::string_view name() const override { return inner_.name(); }
  bool has_kernel(std::string_view op) const override { return inner_.has_kernel(op); }
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    return inner_.prepare(graph, node);
  }
  std::unique_ptr<Kernel> prepare_group(const Graph& graph,
                                        std::span<const NodeId> nodes) override {
    return inner_.prepare_group(graph, nodes);
  }
  std::unique_ptr<Recording> record(const std::function<void()>& submit) override {
    return inner_.record(submit);
  }
  void* allocate(int64_t bytes) override { return inner_.allocate(bytes); }
  void release(void* memory) noexcept override { inner_.release(memory); }
  void copy_to_device(void* device, const void* host, int64_t bytes) override {
    inner_.copy_to_device(device, host, bytes);
  }
  void copy_to_host(void* host, const void* device, int64_t bytes) override {
    inner_.copy_to_host(host, device, bytes);
  }
  void synchronize() override { inner_.synchronize(); }
  bool runs_ahead() const override { return inner_.runs_ahead(); }
  void* allocate_host(int64_t bytes) override { return inner_.allocate_host(bytes); }
  void release_host(void* memory) noexcept override { inner_.release_host(memory); }
  void begin_copy_to_host(void* host, const void* device, int64_t bytes) override {
    inner_.begin_copy_to_host(host, device, bytes);
  }
  int64_t mark() override { return inner_.mark(); }
  void wait(int64_t mark) override { inner_.wait(mark); }
  Status connect(std::span<Backend* const> ranks) override {
    std::vector<Backend*> inner;
    for (Backend* rank : ranks) inner.push_back(&dynamic_cast<FromHost*>(rank)->inner_);
    return inner_.connect(inner);
  }
  Communicator* communicator() override { return inner_.communicator(); }

 private:
  cuda::CudaBackend inner_;
};

constexpr int kDevices = 2;

std::vector<RankDevice> gpus(int ranks) {
  testing::set_device_count(kDevices);
  return testing::connected(ranks, [](int r) { return std::make_shared<cuda::CudaBackend>(r); });
}
std::vector<RankDevice> gpus_from_host(int ranks) {
  testing::set_device_count(kDevices);
  return testing::connected(ranks, [](int r) { return std::make_shared<FromHost>(r); });
}

DatasetSchema ingest_file(const Workspace& w, const std::string& text, IngestRequest request) {
  std::ofstream(w / "input") << text;
  request.sources.push_back({"data", w / "input"});
  auto schema = ingest(request, w / "dataset", local_files());
  EXPECT_TRUE(schema.ok()) << schema.error().message;
  return schema.ok() ? *std::move(schema) : DatasetSchema{};
}

/// Numbers that follow no pattern, from 0 to 255.
int noise(int64_t i) { return static_cast<int>(static_cast<uint64_t>(i) * 2654435761u >> 9 & 255); }

/// Images of 3 classes, of bytes or of floats.
DatasetSchema ingest_images(const Workspace& w, const Shape& image, bool bytes, int64_t rows) {
  std::string text;
  for (int64_t i = 0; i < image.elements(); ++i) text += "x" + std::to_string(i) + ",";
  text += "y\n";
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < image.elements(); ++i) {
      text += std::to_string(noise(row * image.elements() + i)) + (bytes ? "," : ".37,");
    }
    text += "class" + std::to_string(row % 3) + "\n";
  }
  IngestRequest request;
  request.format = "csv";
  request.csv.target = "y";
  request.csv.image = {image[0], image[1], image[2]};
  const DatasetSchema schema = ingest_file(w, text, request);
  EXPECT_EQ(schema.image_dtype, bytes ? DType::kU8 : DType::kF32);
  return schema;
}

/// A number with a gap, two columns of categories, a number to predict.
DatasetSchema ingest_table(const Workspace& w, int64_t rows) {
  std::string text = "a,b,c,d,y\n";
  for (int64_t i = 0; i < rows; ++i) {
    text += (i % 5 == 0 ? "" : std::to_string(0.1 * noise(i))) + ",u" + std::to_string(i % 4) +
            ",v" + std::to_string(i % 7) + "," + std::to_string(0.3 * noise(i + 999)) + "," +
            std::to_string(0.7 * noise(i + 77) + 0.5) + "\n";
  }
  IngestRequest request;
  request.format = "csv";
  request.csv.target = "y";
  return ingest_file(w, text, request);
}

DatasetSchema ingest_rows_of_text(const Workspace& w, int64_t rows) {
  std::string text = "y,words\n";
  for (int64_t i = 0; i < rows; ++i) {
    text += std::string(i % 2 == 0 ? "sport" : "money") + ",w" + std::to_string(i % 11) + " w" +
            std::to_string(noise(i) % 5) + " w" + std::to_string(i % 3) + "\n";
  }
  IngestRequest request;
  request.format = "csv";
  request.csv.target = "y";
  request.csv.text = {"words"};
  request.csv.max_length = 6;
  return ingest_file(w, text, request);
}

DatasetSchema ingest_stream(const Workspace& w, int64_t length) {
  std::string text;
  for (int64_t i = 0; i < length; ++i) text += static_cast<char>('a' + noise(i) % 7);
  IngestRequest request;
  request.format = "text";
  return ingest_file(w, text, request);
}

AugmentationSpec with(std::string kind, Attributes attributes = {}) {
  return {std::move(kind), std::move(attributes)};
}
std::vector<AugmentationSpec> moves() {
  return {with("random_crop", {{"padding", int64_t{2}}}), with("random_horizontal_flip"),
          with("random_vertical_flip", {{"p", 0.3}}), with("cutout", {{"size", int64_t{3}}})};
}

TrainJob job_in(const Workspace& w, const std::string& name, ModelSpec model) {
  TrainJob job;
  job.model = std::move(model);
  job.recipe.optimizer.type = "adam";
  job.recipe.optimizer.learning_rate = 0.01;
  job.recipe.seed = 5;
  job.recipe.steps = 9;  // of more than one epoch
  job.recipe.batch_size = 16;
  job.recipe.validation_split = 0.2;
  job.dataset = w / "dataset";
  job.checkpoints = w / (name + "-checkpoints");
  job.model_output = w / (name + "-model");
  return job;
}
ModelSpec preset(std::string name) {
  ModelSpec spec;
  spec.preset = std::move(name);
  return spec;
}
ModelSpec dense() {
  ModelSpec spec;
  spec.layers = {
      {"", "Gemm", {}, {{"units", int64_t{8}}}}, {"", "Tanh", {}, {}}, {"", "Gemm", {}, {}}};
  return spec;
}
ModelSpec next_token(int64_t vocabulary) {
  ModelSpec spec;
  spec.layers = {{"", "Embedding", {}, {{"embedding_dim", int64_t{8}}}},
                 {"", "Linear", {}, {{"units", vocabulary}}}};
  return spec;
}

/// Batches of several epochs, made by the GPU, beside those of the host: bit by bit.
void expect_same_batches(const Workspace& w, const DatasetSchema& schema, const TrainJob& job) {
  const Dataset data = Dataset::open(w / "dataset", false).value();
  const auto shape = check_recipe(job.recipe, job.model, schema);
  ASSERT_TRUE(shape.ok()) << shape.error().message;
  ASSERT_TRUE(shape->held.has_value());
  const Split split = split_dataset(schema, shape->context_length, 0.2, 5);
  const Preprocessing p =
      fit_preprocessing(schema, data.train(), split.train,
                        {shape->context_length, false, shape->objective.interface.category_codes});
  const auto options = [&](bool samples) {
    return loader_options(job.recipe, schema, p, split, 0, samples);
  };
  Loader host(schema, p, data.train(), split.train, options(false));
  Loader records(schema, p, data.train(), split.train, options(true));
  testing::set_device_count(kDevices);
  cuda::CudaBackend backend(0);
  const Augmenter augmenter = make_augmenter(job.recipe.augmentation, schema, p);
  void* const any = backend.allocate(4);
  backend.copy_to_device(any, "any", 4);  // makes what copies need
  const int64_t before = testing::device_bytes();
  HeldDataset held(backend, {*shape->held,
                             RowTransform(schema, p),
                             data.train(),
                             {augmenter.mean().begin(), augmenter.mean().end()}});
  EXPECT_EQ(testing::device_bytes() - before, shape->held->bytes);
  for (int64_t step = 0; step < 2 * host.steps_per_epoch() + 1; ++step) {
    const Batch& expected = host.next();
    const Batch& asked = records.next();
    if (!schema.stream()) {
      EXPECT_EQ(asked.target_class, expected.target_class);
    }
    EXPECT_TRUE(asked.input.empty() && asked.tokens.empty());
    const auto inputs = expected.input_bytes(), targets = expected.target_bytes();
    std::vector<std::byte> input(inputs.size()), target(targets.size());
    auto* const x = static_cast<std::byte*>(backend.allocate(std::ssize(input)));
    auto* const y = static_cast<std::byte*>(backend.allocate(std::ssize(target)));
    held.gather(asked.samples, x, y);
    backend.synchronize();
    backend.copy_to_host(input.data(), x, std::ssize(input));
    backend.copy_to_host(target.data(), y, std::ssize(target));
    backend.release(x);
    backend.release(y);
    ASSERT_TRUE(std::ranges::equal(input, inputs)) << "step " << step;
    ASSERT_TRUE(std::ranges::equal(target, targets)) << "step " << step;
  }
  backend.release(any);
}

TEST(HeldRows, BatchesAreTheHosts) {
  const auto images = [](const Shape& image, bool bytes, std::vector<AugmentationSpec> list) {
    SCOPED_TRACE(image.to_string() + (bytes ? " of bytes, " : " of floats, ") +
                 std::to_string(list.size()) + " augmentations");
    const Workspace w;
    TrainJob job = job_in(w, "a", dense());
    job.recipe.augmentation = std::move(list);
    expect_same_batches(w, ingest_images(w, image, bytes, 50), job);
  };
  // Elements that are a multiple of four, planes that are none; neither; lines of a multiple.
  for (const Shape& image : {Shape{4, 3, 5}, Shape{3, 5, 7}, Shape{1, 6, 8}}) {
    for (const bool bytes : {true, false}) {
      images(image, bytes, {});
      images(image, bytes, moves());
      images(
          image, bytes,
          {with("cutout", {{"size", int64_t{2}}}), with("random_crop", {{"padding", int64_t{3}}})});
    }
  }
}

TEST(HeldRows, BatchesOfTablesAndTextAreTheHosts) {
  {
    const Workspace w;
    expect_same_batches(w, ingest_table(w, 50), job_in(w, "a", dense()));
  }
  {
    const Workspace w;
    const DatasetSchema schema = ingest_table(w, 50);
    ModelSpec codes = preset("mlp");
    codes.parameters.set("hidden", int64_t{8});
    codes.parameters.set("embedding", std::string("auto"));
    expect_same_batches(w, schema, job_in(w, "a", codes));
  }
  {
    const Workspace w;
    const DatasetSchema schema = ingest_rows_of_text(w, 50);
    ModelSpec bag;
    bag.layers = {{"", "EmbeddingBag", {}, {{"embedding_dim", int64_t{4}}}}, {"", "Gemm", {}, {}}};
    expect_same_batches(w, schema, job_in(w, "a", bag));
  }
  {
    const Workspace w;
    const DatasetSchema schema = ingest_stream(w, 700);
    TrainJob job = job_in(w, "a", next_token(schema.text.vocabulary_size()));
    job.recipe.context_length = 5;
    expect_same_batches(w, schema, job);
  }
}

/// A job on GPUs that hold its rows, beside the same one that is brought its batches.
void expect_same_job(const Workspace& w, const std::function<TrainJob(const std::string&)>& job,
                     int ranks) {
  Recorder from_host, held;
  run_job(job("host"), gpus_from_host(ranks), from_host);
  run_job(job("held"), gpus(ranks), held);
  EXPECT_EQ(from_host.plan.dataset_bytes, 0);
  EXPECT_GT(held.plan.dataset_bytes, 0);
  ASSERT_FALSE(held.series["train/loss"].empty());
  for (const auto& [key, points] : from_host.series) {
    if (key == "train/samples_per_second" || key == "train/data_wait_share") continue;
    EXPECT_EQ(held.series[key], points) << key;
  }
  EXPECT_EQ(bytes_of(w / "held-model/model.safetensors"),
            bytes_of(w / "host-model/model.safetensors"));
}

TEST(HeldRows, ImagesTrainAsFromTheHost) {
  const Workspace w;
  testing::make_dataset(w, /*images=*/true, 60);
  for (const bool moved : {false, true}) {
    for (const auto& [ranks, parts] : {std::pair(1, 1), std::pair(1, 2), std::pair(2, 2)}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(parts) + " parts");
      const auto job = [&, ranks = ranks, parts = parts](const std::string& name) {
        const std::string numbered =
            std::to_string(moved) + std::to_string(ranks) + std::to_string(parts) + name;
        TrainJob j = testing::rank_job(w, numbered);
        j.model_output = w / (name + "-model");
        std::filesystem::remove_all(j.model_output);
        j.recipe.accumulate_steps = parts;
        if (moved) j.recipe.augmentation = moves();
        return j;
      };
      expect_same_job(w, job, ranks);
    }
  }
}

TEST(HeldRows, TablesTrainAsFromTheHost) {
  const Workspace w;
  ingest_table(w, 60);
  expect_same_job(
      w, [&](const std::string& name) { return job_in(w, name, dense()); }, 1);
}

TEST(HeldRows, RowsOfTextTrainAsFromTheHost) {
  const Workspace w;
  ingest_rows_of_text(w, 60);
  ModelSpec bag;
  bag.layers = {{"", "EmbeddingBag", {}, {{"embedding_dim", int64_t{4}}}}, {"", "Gemm", {}, {}}};
  expect_same_job(
      w, [&](const std::string& name) { return job_in(w, name, bag); }, 2);
}

TEST(HeldRows, StreamsTrainAsFromTheHost) {
  const Workspace w;
  const DatasetSchema schema = ingest_stream(w, 700);
  const auto job = [&](const std::string& name) {
    TrainJob j = job_in(w, name, next_token(schema.text.vocabulary_size()));
    j.recipe.context_length = 5;
    j.recipe.accumulate_steps = 2;
    return j;
  };
  expect_same_job(w, job, 2);
}

TEST(HeldRows, ResumeLikeNeverStopped) {
  const Workspace w;
  testing::make_dataset(w, true, 60);
  TrainJob whole = testing::rank_job(w, "whole"), parts = testing::rank_job(w, "parts");
  whole.recipe.augmentation = parts.recipe.augmentation = moves();
  Recorder rw, first, second;
  run_job(whole, gpus(1), rw);
  std::stop_source stop;
  first.on_checkpoint = [&](int64_t) { stop.request_stop(); };
  EXPECT_EQ(train(parts, gpus(1), local_files(), first, stop.get_token()).error().reason,
            "STOPPED");
  run_job(parts, gpus(1), second);
  EXPECT_EQ(second.plan.first_step, 5);
  EXPECT_GT(second.plan.dataset_bytes, 0);
  EXPECT_EQ(bytes_of(parts.model_output / "model.safetensors"),
            bytes_of(whole.model_output / "model.safetensors"));
}

TEST(HeldRows, WhatTheHostMustMakeComesFromIt) {
  const Workspace w;
  testing::make_dataset(w, true, 60);
  TrainJob job = testing::rank_job(w, "rotated");
  job.recipe.augmentation = {with("random_rotation", {{"degrees", 10.0}})};
  Recorder recorder;
  run_job(job, gpus(1), recorder);
  EXPECT_EQ(recorder.plan.dataset_bytes, 0);
}

TEST(HeldRows, AStepBringsItsSamplesAloneAndAllocatesNothing) {
  const Workspace w;
  ingest_images(w, {1, 6, 8}, true, 50);
  TrainJob job = job_in(w, "counted", dense());
  job.recipe.augmentation = moves();
  const Dataset data = Dataset::open(w / "dataset", false).value();
  const DatasetSchema& schema = data.schema();
  const RunShape shape = check_recipe(job.recipe, job.model, schema).value();
  const Split split = split_dataset(schema, 0, 0.2, 5);
  const Preprocessing p = fit_preprocessing(schema, data.train(), split.train);
  testing::set_device_count(kDevices);
  /// Works of the sixth step that are no part of its recording, by kind.
  const auto works = [&](bool held) {
    cuda::CudaBackend backend(0);
    Session session(compile_step(job.model, job.recipe, schema.interface()).value(), backend);
    session.initialise(5);
    EXPECT_EQ(held && hold_rows(job.recipe, shape, data, p, backend, session), held);
    Loader loader(schema, p, data.train(), split.train,
                  loader_options(job.recipe, schema, p, split, 0, held));
    testing::WorkCounts before;
    int64_t bytes = 0;
    for (int64_t step = 0; step < 6; ++step) {
      const Batch& batch = loader.next();
      before = testing::submitted_works();
      if (step == 1) bytes = testing::device_bytes();
      session.run_step({batch.input_bytes(), batch.target_bytes(), step, 0.01f, batch.samples});
    }
    EXPECT_EQ(testing::device_bytes(), bytes);
    testing::WorkCounts counts = testing::submitted_works();
    for (size_t k = 0; k < counts.by_kind.size(); ++k) {
      counts.by_kind[k] -= before.by_kind[k] + testing::recorded_works().by_kind[k];
    }
    return counts;
  };
  const testing::WorkCounts from_host = works(false), held = works(true);
  EXPECT_EQ(from_host.of(testing::WorkKind::kKernel), 0);
  EXPECT_EQ(held.of(testing::WorkKind::kKernel), 1);
  EXPECT_EQ(held.of(testing::WorkKind::kCopy), from_host.of(testing::WorkKind::kCopy) - 1)
      << "samples, instead of input and target";
}

TEST(HeldRows, AreProfiledAsTheyTrain) {
  const Workspace w;
  testing::make_dataset(w, true, 60);
  testing::set_device_count(kDevices);
  cuda::CudaBackend backend(0);
  const auto profile =
      profile_job(testing::rank_job(w, "profile"), backend, {.steps_max = 3, .seconds = 0}, {});
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->steps, 3);
}

}  // namespace
}  // namespace trainyard
