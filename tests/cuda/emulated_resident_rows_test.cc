// Catches: a batch gathered on the GPU from the resident dataset that differs from the host's in a
// bit; rows of another rank or micro-batch; rows gathered before they have arrived, or over rows
// that a step still reads (the emulated streams run as late as possible, fake_cuda.h); memory
// missing from the plan; an evaluation that copies rows which the GPU already has, or that gives
// other values with them; a step that differs in a bit when others are submitted with it, a loss
// that is reported for another step, a stop request that is ignored.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "src/calibration/step_profile.h"
#include "src/job/recipe.h"
#include "src/job/train_job.h"
#include "src/planning/programs.h"
#include "src/planning/recipe_check.h"
#include "src/planning/step_slots.h"
#include "src/runtime/cuda/backend.h"
#include "src/runtime/cuda/staging.h"
#include "src/runtime/forwarding_backend.h"
#include "src/train/evaluate.h"
#include "src/train/loop.h"
#include "src/train/trainer.h"
#include "tests/cuda/fake_cuda.h"
#include "tests/cuda/ranks.h"
#include "tests/cuda/resident_rows.h"

namespace trainyard {
namespace {

using testing::bytes_of;
using testing::Recorder;
using testing::resident_job;
using testing::run_job;
using testing::Workspace;

/// The same GPU, but batches come from the host.
class FromHost final : public ForwardingBackend {
 public:
  explicit FromHost(int ordinal)
      : ForwardingBackend(std::make_unique<cuda::CudaBackend>(ordinal)) {}
  bool supports_resident_rows() const override { return false; }
};

/// A GPU that counts submissions: each submission of steps ends with a mark.
class WatchedGpu final : public ForwardingBackend {
 public:
  WatchedGpu() : ForwardingBackend(std::make_unique<cuda::CudaBackend>(0)) {}
  int64_t mark() override {
    const int64_t mark = ForwardingBackend::mark();
    if (++submissions == stop_behind) stop.request_stop();
    return mark;
  }
  int64_t submissions = 0, stop_behind = 0;
  std::stop_source stop;
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

TEST(ResidentRows, BatchesAreTheHosts) {
  testing::set_device_count(kDevices);
  cuda::CudaBackend backend(0);
  testing::expect_resident_batches(backend);
}

/// Runs a job on GPUs with a resident dataset and again with batches from the host, and expects the
/// same results.
void expect_same_job(const Workspace& w, const std::function<TrainJob(const std::string&)>& job,
                     int ranks) {
  Recorder from_host, resident;
  run_job(job("host"), gpus_from_host(ranks), from_host);
  run_job(job("held"), gpus(ranks), resident);
  EXPECT_EQ(from_host.plan.dataset_bytes, 0);
  EXPECT_GT(resident.plan.dataset_bytes, 0);
  ASSERT_FALSE(resident.series["train/loss"].empty());
  for (const auto& [key, points] : from_host.series) {
    if (key == "train/samples_per_second" || key == "train/data_wait_share") continue;
    EXPECT_EQ(resident.series[key], points) << key;
  }
  EXPECT_EQ(bytes_of(w / "held-model/model.safetensors"),
            bytes_of(w / "host-model/model.safetensors"));
}

TEST(ResidentRows, ImagesTrainAsFromTheHost) {
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
        if (moved) j.recipe.augmentation = testing::moves();
        return j;
      };
      expect_same_job(w, job, ranks);
    }
  }
}

TEST(ResidentRows, TablesTrainAsFromTheHost) {
  const Workspace w;
  testing::ingest_table(w, 60);
  expect_same_job(
      w, [&](const std::string& name) { return resident_job(w, name, testing::dense_model()); }, 1);
}

TEST(ResidentRows, RowsOfTextTrainAsFromTheHost) {
  const Workspace w;
  testing::ingest_rows_of_text(w, 60);
  expect_same_job(
      w, [&](const std::string& name) { return resident_job(w, name, testing::bag_model()); }, 2);
}

TEST(ResidentRows, StreamsTrainAsFromTheHost) {
  const Workspace w;
  const DatasetSchema schema = testing::ingest_stream(w, 700);
  const auto job = [&](const std::string& name) {
    TrainJob j = resident_job(w, name, testing::next_token_model(schema.text.vocabulary_size()));
    j.recipe.context_length = 5;
    j.recipe.accumulate_steps = 2;
    return j;
  };
  expect_same_job(w, job, 2);
}

TEST(ResidentRows, ResumeLikeNeverStopped) {
  const Workspace w;
  testing::make_dataset(w, true, 60);
  TrainJob whole = testing::rank_job(w, "whole"), parts = testing::rank_job(w, "parts");
  whole.recipe.augmentation = parts.recipe.augmentation = testing::moves();
  Recorder rw, first, second;
  run_job(whole, gpus(1), rw);
  std::stop_source stop;
  first.stop_step = 5;
  first.stop = &stop;
  EXPECT_EQ(train(parts, gpus(1), local_files(), first, stop.get_token()).error().reason,
            "STOPPED");
  run_job(parts, gpus(1), second);
  EXPECT_EQ(second.plan.first_step, 5);
  EXPECT_GT(second.plan.dataset_bytes, 0);
  EXPECT_EQ(bytes_of(parts.model_output / "model.safetensors"),
            bytes_of(whole.model_output / "model.safetensors"));
}

TEST(ResidentRows, WhatTheHostMustMakeComesFromIt) {
  const Workspace w;
  testing::make_dataset(w, true, 60);
  TrainJob job = testing::rank_job(w, "rotated");
  job.recipe.augmentation = {{"random_rotation", {{"degrees", 10.0}}}};
  Recorder recorder;
  run_job(job, gpus(1), recorder);
  EXPECT_EQ(recorder.plan.dataset_bytes, 0);
}

/// A job of 40 steps with no evaluation or checkpoint before the end.
TrainJob long_job(const Workspace& w, const std::string& name) {
  TrainJob job = testing::rank_job(w, name);
  job.recipe.steps = 40;
  job.recipe.evaluate_every_steps = job.recipe.checkpoint_every_steps = 40;
  job.recipe.augmentation = testing::moves();
  return job;
}

RankDevice watched(const std::shared_ptr<WatchedGpu>& gpu) { return {"devices/gpu-0", gpu}; }

TEST(StepsTogether, ComputeTheBitsOfStepsOneByOne) {
  const Workspace w;
  testing::make_dataset(w, /*images=*/true, 60);
  const std::vector<std::pair<const char*, std::function<void(Recipe&)>>> recipes = {
      {"plain", [](Recipe&) {}},
      {"adam by a schedule",
       [](Recipe& r) {
         r.optimizer = {.type = "adam"};
         r.schedule.type = "cosine";
         r.schedule.warmup_steps = 7;
       }},
      {"averages of micro-batches",
       [](Recipe& r) {
         r.accumulate_steps = 2;
         r.ema_decay = 0.9;
       }},
      {"fp16 with loss scaling", [](Recipe& r) { r.precision = Precision::kFp16; }},
      {"evaluations and checkpoints in between", [](Recipe& r) {
         r.evaluate_every_steps = 9;
         r.checkpoint_every_steps = 13;
         r.keep_best = {"val/loss", ""};
       }}};
  for (size_t i = 0; i < recipes.size(); ++i) {
    SCOPED_TRACE(recipes[i].first);
    expect_same_job(
        w,
        [&](const std::string& name) {
          TrainJob job = long_job(w, std::to_string(i) + name);
          job.model_output = w / (name + "-model");
          std::filesystem::remove_all(job.model_output);
          recipes[i].second(job.recipe);
          return job;
        },
        1);
  }
}

TEST(StepsTogether, AreSubmittedSixteenAtATime) {
  const Workspace w;
  testing::make_dataset(w, true, 60);
  testing::set_device_count(kDevices);
  const auto submissions = [&](const std::string& name, const std::function<void(TrainJob&)>& set) {
    auto gpu = std::make_shared<WatchedGpu>();
    TrainJob job = long_job(w, name);
    set(job);
    Recorder recorder;
    run_job(job, {watched(gpu)}, recorder);
    EXPECT_EQ(recorder.series["train/loss"].size(), 40u);
    return gpu->submissions;
  };
  EXPECT_EQ(submissions("together", [](TrainJob&) {}), 6) << "1, 16, 16, 4, 2, 1";
  EXPECT_EQ(submissions("host", [](TrainJob& job) { job.allows_resident_rows = false; }), 40);
  EXPECT_EQ(submissions("faults", [](TrainJob& job) { job.names_faults = true; }), 40)
      << "each node is waited for, and a step is named";
}

TEST(StepsTogether, AStopComesBehindThoseUnderWayAndResumesLikeNeverStopped) {
  const Workspace w;
  testing::make_dataset(w, true, 60);
  Recorder of_whole, first, second;
  const TrainJob whole = long_job(w, "whole"), parts = long_job(w, "parts");
  run_job(whole, gpus_from_host(1), of_whole);
  auto gpu = std::make_shared<WatchedGpu>();
  gpu->stop_behind = 2;
  const auto stopped = train(parts, {watched(gpu)}, local_files(), first, gpu->stop.get_token());
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().message, "stopped after step 17 of 40");
  EXPECT_EQ(first.series["train/loss"].size(), 17u);
  run_job(parts, gpus(1), second);
  EXPECT_EQ(second.plan.first_step, 17);
  EXPECT_EQ(bytes_of(parts.model_output / "model.safetensors"),
            bytes_of(whole.model_output / "model.safetensors"));
}

TEST(StepsTogether, ALossThatIsNotFiniteNamesItsStep) {
  const Workspace w;
  testing::ingest_table(w, 60);
  const auto refusal = [&](const std::string& name, const std::vector<RankDevice>& devices) {
    ModelSpec linear;
    linear.layers = {{"", "Gemm", {}, {}}};
    TrainJob job = resident_job(w, name, linear);
    job.recipe.steps = 40;
    job.recipe.evaluate_every_steps = job.recipe.checkpoint_every_steps = 40;
    job.recipe.optimizer.type = "sgd";
    job.recipe.optimizer.learning_rate = 30;  // the error grows a hundredfold with each step
    Recorder recorder;
    const auto result = train(job, devices, local_files(), recorder, {});
    EXPECT_FALSE(result.ok());
    return std::pair(result.ok() ? Error{} : result.error(), recorder.series["train/loss"]);
  };
  const auto [alone, losses_alone] = refusal("alone", gpus_from_host(1));
  const auto [together, losses] = refusal("together", gpus(1));
  EXPECT_EQ(alone.reason, "LOSS_NOT_FINITE");
  EXPECT_EQ(together.message, alone.message);
  EXPECT_EQ(together.metadata, alone.metadata);
  ASSERT_FALSE(losses.empty());
  const auto [step, loss] = *losses.rbegin();
  EXPECT_EQ(std::to_string(step), together.metadata.at("step"));
  EXPECT_FALSE(std::isfinite(loss));
  EXPECT_EQ(losses.size(), losses_alone.size()) << "no loss of a later step";
  EXPECT_TRUE(step > 2 && step < 17) << step << " is not among several of one submission";
}

TEST(StepsTogether, BringTheirSamplesInOneCopyAndAllocateNothing) {
  const Workspace w;
  testing::ingest_images(w, {1, 6, 8}, true, 50);
  TrainJob job = resident_job(w, "counted", testing::dense_model());
  job.recipe.augmentation = testing::moves();
  const Dataset data = Dataset::open(w / "dataset", false).value();
  const DatasetSchema& schema = data.schema();
  const RunShape shape =
      check_recipe(job.recipe, job.model, schema, 1, {kCudaAlignment, Processor::kGpu}).value();
  const Split split = split_dataset(schema, data.train(), 0, {0.2, 5});
  const Preprocessing p = fit_preprocessing(schema, data.train(), split.train);
  testing::set_device_count(kDevices);
  cuda::CudaBackend backend(0);
  RunPrograms programs = compile_run(job.model, job.recipe, schema, shape).value();
  const int64_t planned = describe_run(programs, shape, job.recipe).dataset_bytes;
  Session session(std::move(programs), backend);
  session.initialize(5);
  const int64_t without = testing::device_bytes();
  const BatchSource batches =
      BatchSource::on_device({job.recipe, shape, data, p, split}, backend, session);
  ASSERT_EQ(batches.kind(), BatchSource::Kind::kResident);
  EXPECT_EQ(testing::device_bytes() - without, planned);
  Loader loader = batches.open(0);
  int64_t step = 0;
  const auto next = [&] {
    Session::StepInputs inputs;
    inputs.samples = loader.next().samples;
    inputs.step = step++;
    inputs.learning_rate = 0.01f;
    return inputs;
  };
  /// The submitted works of `count` steps that are not part of a recording, by kind.
  const auto outside = [&](int64_t count) {
    const testing::WorkCounts before = testing::submitted_works();
    session.begin_steps(count, next);
    for (int64_t i = 0; i < count; ++i) session.finish_step();
    testing::WorkCounts counts = testing::submitted_works();
    for (size_t k = 0; k < counts.by_kind.size(); ++k) {
      counts.by_kind[k] -= before.by_kind[k] + testing::recorded_works().by_kind[k];
    }
    return counts;
  };
  EXPECT_EQ(session.together(16), 1) << "nothing is recorded before all kernels have run";
  outside(1);
  const int64_t bytes = testing::device_bytes();
  EXPECT_EQ(session.together(15), 8);
  for (const int64_t count : {1, 16}) {
    outside(count);  // the first time records
    const testing::WorkCounts counts = outside(count);
    EXPECT_EQ(counts.of(testing::WorkKind::kCopy), 2) << "inputs and results of " << count;
    EXPECT_EQ(counts.all(), 2);
  }
  EXPECT_EQ(testing::device_bytes(), bytes);
}

/// A GPU that counts the bytes copied to it from the host.
class CountingGpu final : public ForwardingBackend {
 public:
  CountingGpu() : ForwardingBackend(std::make_unique<cuda::CudaBackend>(0)) {}
  void copy_to_device(void* device, const void* host, int64_t bytes) override {
    brought += bytes;
    ForwardingBackend::copy_to_device(device, host, bytes);
  }
  int64_t brought = 0;
};

TEST(ResidentEvaluation, CopiesNoRowsFromTheHost) {
  const Workspace w;
  testing::make_dataset(w, /*images=*/true, 60);
  testing::set_device_count(kDevices);
  const auto brought_by = [&](int64_t every) {
    TrainJob job = testing::rank_job(w, "every" + std::to_string(every));
    job.recipe.evaluate_every_steps = every;
    job.recipe.augmentation = testing::moves();
    auto gpu = std::make_shared<CountingGpu>();
    Recorder recorder;
    run_job(job, {{"devices/gpu-0", gpu}}, recorder);
    EXPECT_EQ(std::ssize(recorder.series["val/loss"]), 8 / every);
    return gpu->brought;
  };
  // The validation part has 12 rows, which are one batch: only their row numbers are copied, 64
  // bytes each.
  const int64_t once = brought_by(8);
  EXPECT_EQ(brought_by(4) - once, 12 * 64);
  EXPECT_EQ(brought_by(1) - once, 7 * 12 * 64);
}

// A last batch is padded with copies of its last row, which do not count in the metrics.
TEST(ResidentEvaluation, OfAnyNumberOfRowsGivesTheHostsValues) {
  const Workspace w;
  testing::ingest_images(w, {3, 5, 7}, /*bytes=*/true, 50);
  TrainJob job = resident_job(w, "a", testing::dense_model());
  job.recipe.augmentation = testing::moves();
  job.recipe.validation_split = 0.5;
  const Dataset data = Dataset::open(w / "dataset", false).value();
  const DatasetSchema& schema = data.schema();
  RunShape shape =
      check_recipe(job.recipe, job.model, schema, 1, {kCudaAlignment, Processor::kGpu}).value();
  // A job would evaluate all 25 rows in one batch.
  shape.evaluation_batch = shape.resident->evaluation_rows = 7;
  const Split split = split_dataset(schema, data.train(), 0, {0.5, 5});
  const Preprocessing p = fit_preprocessing(schema, data.train(), split.train);
  testing::set_device_count(kDevices);
  cuda::CudaBackend backend(0);
  Session session(compile_run(job.model, job.recipe, schema, shape).value(), backend);
  session.initialize(5);
  ASSERT_EQ(BatchSource::on_device({job.recipe, shape, data, p, split}, backend, session).kind(),
            BatchSource::Kind::kResident);
  Evaluator evaluator(session, schema, p, shape.objective,
                      {"loss", "accuracy", "confusion_matrix"});
  int batches = 0;
  for (const size_t rows : {size_t{1}, size_t{7}, size_t{8}, size_t{25}}) {
    SCOPED_TRACE(rows);
    const auto part = std::span(split.validation).first(rows);
    const Evaluation host = evaluator.evaluate(data.train(), part);
    const Evaluation device = evaluator.evaluate(
        data.train(), part, [&] { ++batches; }, RowsFrom::kDevice);
    EXPECT_EQ(device.values, host.values);
    EXPECT_EQ(device.confusion, host.confusion);
  }
  EXPECT_EQ(batches, 1 + 1 + 2 + 4);
}

TEST(ResidentEvaluation, OfEveryKindOfRowsGivesTheHostsValues) {
  testing::set_device_count(kDevices);
  cuda::CudaBackend backend(0);
  testing::expect_resident_evaluations(backend);
}

TEST(StepsFromTheHost, BringWhatAProgramReadsInOneCopy) {
  const Workspace w;
  testing::make_dataset(w, /*images=*/true, 60);
  testing::set_device_count(kDevices);
  const Dataset data = Dataset::open(w / "dataset", false).value();
  const DatasetSchema& schema = data.schema();
  for (const int64_t parts : {1, 2}) {
    SCOPED_TRACE(std::to_string(parts) + " micro-batches");
    TrainJob job = testing::rank_job(w, "a");
    job.recipe.accumulate_steps = parts;
    const RunShape shape =
        check_recipe(job.recipe, job.model, schema, 1, {kCudaAlignment, Processor::kGpu}).value();
    const Split split = split_dataset(schema, data.train(), 0, {0.2, 5});
    const Preprocessing p = fit_preprocessing(schema, data.train(), split.train);
    cuda::CudaBackend backend(0);
    Session session(compile_run(job.model, job.recipe, schema, shape).value(), backend, parts);
    session.initialize(5);
    Loader loader = BatchSource({job.recipe, shape, data, p, split}).open(0);
    testing::WorkCounts counts;
    for (int64_t step = 0; step < 3; ++step) {
      const Batch& b = loader.next();
      const testing::WorkCounts before = testing::submitted_works();
      const int64_t replayed = testing::replayed_works();
      session.begin_step({b.input_bytes(), b.target_bytes(), step, 0.01f});
      session.finish_step();
      counts = testing::submitted_works();
      for (size_t k = 0; k < counts.by_kind.size(); ++k) counts.by_kind[k] -= before.by_kind[k];
      if (step == 2) {
        // Each run needs a copy and a launch for its inputs; the update needs only the learning
        // rate.
        const int64_t inputs = 2 * parts + (parts == 1 ? 0 : 1);
        const int64_t results = 2 * parts + 1;  // losses, scores, the gradient norm
        EXPECT_EQ(counts.all() - (testing::replayed_works() - replayed), inputs + results);
      }
    }
  }
}

/// Copies blocks of pieces of these lengths, `times` blocks without waiting in between, and expects
/// all pieces to arrive.
void expect_arrival(cuda::CudaBackend& backend, const std::vector<int64_t>& lengths, size_t times) {
  SCOPED_TRACE(::testing::PrintToString(lengths));
  std::vector<std::vector<std::byte>> host;
  std::vector<std::unique_ptr<DeviceBuffer>> device;
  for (size_t i = 0; i < times * lengths.size(); ++i) {
    const int64_t n = lengths[i % lengths.size()];
    auto& bytes = host.emplace_back(static_cast<size_t>(n));
    for (size_t k = 0; k < bytes.size(); ++k) {
      bytes[k] = static_cast<std::byte>(k * 7 + i * 31 + k / 4096);
    }
    device.push_back(std::make_unique<DeviceBuffer>(backend, (n + 3) / 4 * 4));
  }
  for (size_t first = 0; first < host.size(); first += lengths.size()) {
    std::vector<HostPiece> pieces;
    for (size_t i = first; i < first + lengths.size(); ++i) {
      pieces.push_back({device[i]->get(), host[i].data(), std::ssize(host[i])});
    }
    backend.copy_block_to_device(pieces);
  }
  backend.synchronize();
  for (size_t i = 0; i < host.size(); ++i) {
    std::vector<std::byte> back(host[i].size());
    backend.copy_to_host(back.data(), device[i]->get(), std::ssize(back));
    EXPECT_TRUE(back == host[i]) << i;
  }
}

TEST(StepsFromTheHost, PiecesOfAnyLengthArrive) {
  testing::set_device_count(kDevices);
  cuda::CudaBackend backend(0);
  backend.copy_block_to_device({});
  const int64_t slot = cuda::Staging::slot_bytes(cuda::Device(0).memory_bytes());
  // Lengths below and above the limit for copies straight to their place; about a slot and more;
  // more pieces than one launch handles.
  for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{12},
                                              {1, 3, 64, 65, 1000},
                                              {300, int64_t{70} << 10, 8},
                                              {slot - 16, 16, 5},
                                              {slot + 100, 4, 12},
                                              {4, 2 * slot + 1, 7, 9},
                                              {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}) {
    expect_arrival(backend, lengths, 2);
  }
}

// Catches a staging slot that is overwritten before its pieces have been copied out: streams run
// late.
TEST(StepsFromTheHost, PiecesArriveThoughSlotsAreUsedAgain) {
  testing::set_device_count(kDevices);
  cuda::CudaBackend backend(0);
  expect_arrival(backend, {300, int64_t{70} << 10, 8}, 3 * cuda::Staging::kSlots);
  expect_arrival(backend, {300, 8, 1000}, 3 * cuda::Staging::kSlots);
}

TEST(StepsTogether, CopyPiecesOfAnyLengthInOneLaunch) {
  testing::set_device_count(kDevices);
  cuda::CudaBackend backend(0);
  const std::vector<int64_t> lengths = {1, 31, 33, 1025, 2, 3, 70'000, 5};
  const int64_t all = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  std::vector<uint32_t> words(static_cast<size_t>(all)), copied(words.size() * 2);
  std::iota(words.begin(), words.end(), 1u);
  const DeviceBuffer from(backend, 4 * all), to(backend, 8 * all);
  backend.copy_to_device(from.get(), words.data(), 4 * all);
  std::vector<kernels::CopyPiece> pieces;
  int64_t at = 0;
  for (const int64_t n : lengths) {  // destinations have gaps of the same lengths
    pieces.push_back({to.get() + 8 * at, from.get() + 4 * at, n});
    at += n;
  }
  backend.copy_pieces(pieces);
  backend.synchronize();
  backend.copy_to_host(copied.data(), to.get(), 8 * all);
  std::vector<uint32_t> expected;
  at = 0;
  for (const int64_t n : lengths) {
    expected.insert(expected.end(), words.begin() + at, words.begin() + at + n);
    expected.resize(expected.size() + static_cast<size_t>(n));
    at += n;
  }
  EXPECT_EQ(copied, expected);
}

TEST(ResidentRows, AreProfiledAsTheyTrain) {
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
