// Tests of frozen weights that a job reads from the mapped file of initial weights. They catch a
// mapped run whose bits differ from those of a run with a copy, a plan that does not name the
// mapped bytes or counts them as memory of the job, weights that a job changes or loses with its
// file, and a model that is imported in other numbers than its file has.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>

#include "src/artifact/model_artifact.h"
#include "src/base/half.h"
#include "src/checkpoint/merged_weights.h"
#include "src/checkpoint/safetensors.h"
#include "src/inference/generator.h"
#include "src/inference/imported_model.h"
#include "src/job/train_job.h"
#include "src/planning/programs.h"
#include "src/train/session.h"
#include "tests/engine/run_job.h"
#include "tests/engine/tested_backend.h"
#include "tests/engine/train_support.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;
using testing::bytes_of;
using testing::Recorder;
using testing::run_job;
using testing::Workspace;

/// A tensor of F32 as the bytes of bfloat16 numbers, rounded towards zero.
std::vector<std::byte> to_bf16(std::span<const std::byte> f32) {
  std::vector<std::byte> halves;
  for (size_t i = 0; i < f32.size(); i += 4) {
    halves.push_back(f32[i + 2]);
    halves.push_back(f32[i + 3]);
  }
  return halves;
}

/// A small language model, trained here, and files of its weights in bfloat16.
class MappedWeights : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 700; ++i) text += static_cast<char>('a' + i * i % 11);
    std::ofstream(w_ / "input.txt") << text;
    IngestRequest request;
    request.format = "text";
    request.sources.push_back({"data", w_ / "input.txt"});
    ASSERT_TRUE(ingest(request, w_ / "dataset", local_files()).ok());
    TrainJob base = job_in("base");
    base.recipe.lora = {};
    base.recipe.initial_weights = {};
    base.recipe.steps = 20;
    Recorder recorder;
    const auto trained = run_job(base, recorder);
    ASSERT_TRUE(trained.ok()) << trained.error().message;
    write_halves(base.model_output / kModelWeightsFile);
  }

  /// Writes `plain`, in which no tensor is aligned, and `aligned`, as an upload would.
  void write_halves(const fs::path& f32) {
    const SafetensorsFile file = SafetensorsFile::open(f32).value();
    std::vector<std::vector<std::byte>> halves;
    std::vector<TensorView> tensors;
    for (const TensorView& t : file.tensors()) {
      halves.push_back(to_bf16(t.bytes));
      tensors.push_back({t.name, t.type, halves.back(), Storage::kBf16});
      half_bytes_ += t.stored_bytes() / 2;
    }
    for (std::string filler; true; filler += ' ') {  // moves the data until it is not aligned
      ASSERT_TRUE(
          write_safetensors(local_files(), w_ / "plain", tensors, {{"filler", filler}}).ok());
      if (WeightsFile::open(w_ / "plain")->tensors()[0].offset % kMappedAlignment != 0) break;
    }
    const MergedWeights merged =
        MergedWeights::merge(WeightsFile::open(w_ / "plain").value()).value();
    std::string bytes;
    merged.read(0, merged.size(), bytes);
    std::ofstream(w_ / "aligned", std::ios::binary) << bytes;
  }

  TrainJob job_in(const std::string& name, const std::string& weights = "aligned") const {
    TrainJob job;
    job.model.preset = "gpt2";
    job.model.parameters = {
        {"n_layer", int64_t{2}}, {"n_head", int64_t{2}}, {"n_embd", int64_t{32}}, {"dropout", 0.0}};
    job.recipe.optimizer = default_optimizer("adam");
    job.recipe.optimizer.learning_rate = 0.01;
    job.recipe.context_length = 8;
    job.recipe.batch_size = 16;
    job.recipe.steps = 12;
    job.recipe.checkpoint_every_steps = 4;
    job.recipe.evaluate_every_steps = 3;
    job.recipe.validation_split = 0.1;
    job.recipe.keep_best.metric = "val/loss";
    job.recipe.lora.rank = 2;
    job.recipe.lora.alpha = 8;
    job.recipe.lora.targets = {"all-linear"};
    job.recipe.initial_weights.source = "base";
    job.initial_weights = w_ / weights;
    job.dataset = w_ / "dataset";
    job.checkpoints = w_ / (name + "-checkpoints");
    job.model_output = w_ / (name + "-model");
    return job;
  }
  std::string model_of(const std::string& name) const {
    return bytes_of(w_ / (name + "-model") / kModelWeightsFile);
  }
  TrainResult run_ok(const TrainJob& job, Recorder& recorder, std::stop_token stop = {}) {
    auto result = run_job(job, recorder, std::move(stop));
    EXPECT_TRUE(result.ok()) << result.error().message;
    return result.ok() ? *std::move(result) : TrainResult{};
  }
  /// Stops a run after its first checkpoint.
  void run_in_part(const std::string& name) {
    std::stop_source stop;
    Recorder recorder;
    recorder.stop = &stop;
    recorder.stop_step = 4;
    EXPECT_EQ(run_job(job_in(name), recorder, stop.get_token()).error().reason, "STOPPED");
  }

  Workspace w_;
  int64_t half_bytes_ = 0;
};

TEST_F(MappedWeights, HaveTheBitsOfACopyAndARowOfThePlan) {
  Recorder copied, mapped, wide;
  const TrainResult of_copied = run_ok(job_in("copied", "plain"), copied);
  const TrainResult of_mapped = run_ok(job_in("mapped"), mapped);
  TrainJob f32 = job_in("f32");
  f32.recipe.frozen_storage = "fp32";
  run_ok(f32, wide);
  EXPECT_EQ(copied.series.at("train/loss"), mapped.series.at("train/loss"));
  EXPECT_EQ(wide.series.at("train/loss"), mapped.series.at("train/loss"));
  EXPECT_EQ(copied.series.at("val/loss"), mapped.series.at("val/loss"));
  EXPECT_EQ(model_of("copied"), model_of("mapped"));
  EXPECT_EQ(model_of("f32"), model_of("mapped"));

  EXPECT_EQ(copied.plan.memory.mapped_bytes, 0);
  EXPECT_EQ(copied.plan.mapped_parts, "");
  EXPECT_EQ(wide.plan.memory.mapped_bytes, 0);
  // All tensors of this model are multiples of the alignment, so that all are mapped.
  EXPECT_EQ(mapped.plan.memory.mapped_bytes, half_bytes_);
  EXPECT_EQ(mapped.plan.memory.parameter_bytes, copied.plan.memory.parameter_bytes - half_bytes_);
  EXPECT_EQ(mapped.plan.memory.total(), of_mapped.arena_planned_bytes);
  EXPECT_EQ(of_mapped.arena_used_bytes, of_mapped.arena_planned_bytes);
  EXPECT_EQ(of_copied.arena_planned_bytes - of_mapped.arena_planned_bytes, half_bytes_);
  // A checkpoint has the frozen weights once, and is not written from a copy of them.
  EXPECT_EQ(copied.plan.checkpoints.size_bytes - mapped.plan.checkpoints.size_bytes, half_bytes_);
  EXPECT_EQ(copied.plan.host_bytes - mapped.plan.host_bytes, 2 * half_bytes_);
}

TEST_F(MappedWeights, TheDaemonPlansThemFromTheTableOfTensors) {
  TrainJob job = job_in("planned");
  const DatasetSchema schema = read_schema(job.dataset).value();
  const WeightsFile file = WeightsFile::open(job.initial_weights).value();
  job.recipe.initial_weights.tensors =
      std::make_shared<const std::vector<FileTensor>>(file.tensors());
  const RunPlan all = plan_run(job.model, job.recipe, schema).value();
  EXPECT_EQ(all.memory.mapped_bytes, half_bytes_);
  EXPECT_EQ(all.mapped_parts, plan_run(job.model, job.recipe, schema).value().mapped_parts);
  job.recipe.lora = {};
  job.recipe.parameter_groups = {{.match = "h0_*", .freeze = true}};
  const RunPlan some = plan_run(job.model, job.recipe, schema).value();
  EXPECT_GT(some.memory.mapped_bytes, 0);
  EXPECT_LT(some.memory.mapped_bytes, half_bytes_);
  EXPECT_NE(some.mapped_parts, all.mapped_parts) << "they share only a part of the memory";
  DeviceTraits gpu;
  gpu.processor = Processor::kGpu;
  EXPECT_EQ(plan_run(job.model, job.recipe, schema, 1, gpu).value().memory.mapped_bytes, 0);
}

TEST_F(MappedWeights, AJobOnTwoDevicesMapsThemOnce) {
  const TrainJob job = job_in("two");
  const auto of_two = [&](const std::string& weights, Recorder& recorder) {
    TrainJob both = job;
    both.initial_weights = w_ / weights;
    both.checkpoints = w_ / (weights + "-two");
    std::vector<RankDevice> devices;
    for (const char* name : {"a", "b"}) devices.push_back({name, make_cpu_backend(1)});
    EXPECT_TRUE(
        devices[0]
            .backend
            ->connect(std::vector<Backend*>{devices[0].backend.get(), devices[1].backend.get()})
            .ok());
    const auto result = train(both, devices, local_files(), recorder, {});
    EXPECT_TRUE(result.ok()) << result.error().message;
  };
  Recorder copied, mapped;
  of_two("plain", copied);
  of_two("aligned", mapped);
  EXPECT_EQ(mapped.plan.memory.mapped_bytes, half_bytes_);
  EXPECT_EQ(copied.series.at("train/loss"), mapped.series.at("train/loss"));
}

TEST_F(MappedWeights, StayWhenTheFileIsRemovedOrReplaced) {
  Recorder calm, robbed;
  run_ok(job_in("calm"), calm);
  robbed.on_checkpoint = [&](int64_t) {
    std::ofstream(w_ / "other") << "other bytes";
    fs::rename(w_ / "other", w_ / "aligned");  // files of the server are never changed in place
  };
  run_ok(job_in("robbed"), robbed);
  EXPECT_EQ(calm.series.at("train/loss"), robbed.series.at("train/loss"));
  EXPECT_EQ(model_of("calm"), model_of("robbed"));
}

TEST_F(MappedWeights, AResumedJobContinuesWithTheSameBits) {
  Recorder calm, resumed, without_file;
  run_ok(job_in("calm"), calm);
  run_in_part("resumed");
  run_ok(job_in("resumed"), resumed);
  EXPECT_EQ(resumed.plan.memory.mapped_bytes, half_bytes_);
  EXPECT_EQ(model_of("calm"), model_of("resumed"));

  run_in_part("without");
  fs::rename(w_ / "aligned", w_ / "away");
  run_ok(job_in("without"), without_file);
  EXPECT_EQ(without_file.plan.memory.mapped_bytes, 0) << "the checkpoint has the weights";
  EXPECT_EQ(model_of("calm"), model_of("without"));
}

TEST_F(MappedWeights, ACheckpointCountsMoreThanAFileThatHasChanged) {
  Recorder calm, resumed;
  run_ok(job_in("calm"), calm);
  run_in_part("changed");
  std::string bytes = bytes_of(w_ / "aligned");
  bytes[bytes.size() - 100] ^= 1;
  std::ofstream(w_ / "aligned", std::ios::binary) << bytes;
  run_ok(job_in("changed"), resumed);
  EXPECT_NE(resumed.line_with("another file has taken the place of the initial weights"), "");
  EXPECT_EQ(resumed.plan.memory.mapped_bytes, 0);
  EXPECT_EQ(model_of("calm"), model_of("changed"));
}

TEST_F(MappedWeights, AProgramCannotWriteThem) {
  TrainJob job = job_in("written");
  const auto file = std::make_shared<const WeightsFile>(WeightsFile::open(w_ / "aligned").value());
  job.recipe.initial_weights.tensors =
      std::make_shared<const std::vector<FileTensor>>(file->tensors());
  const ModelInterface interface = read_schema(job.dataset)->interface(job.recipe.context_length);
  const auto backend = make_cpu_backend(1);
  const auto compiled = [&] {
    return compile_step(job.model, job.recipe, interface, {}, backend->traits()).value();
  };
  Program updates = compiled().train.program;
  EXPECT_NO_THROW(verify(updates));
  const TensorId trained = updates.graph.find_tensor("h0_q.lora_a").value_or(kNoTensor);
  for (TensorId id = 0; id < std::ssize(updates.placements); ++id) {
    if (!updates.graph.tensor(id).is_mapped()) continue;
    EXPECT_EQ(updates.placements[static_cast<size_t>(id)].segment, Segment::kMapped);
    EXPECT_NE(id, trained);
  }
  // A tensor that the optimizer updates, placed in the file.
  for (const Node& node : updates.graph.nodes()) {
    const std::vector<int64_t> mutated = node.op->mutated_inputs(node);
    if (mutated.empty()) continue;
    const TensorId id = node.inputs[static_cast<size_t>(mutated.front())];
    if (updates.graph.tensor(id).role != Role::kParameter) continue;
    updates.graph.set_mapped(id, 0);
    updates.placements[static_cast<size_t>(id)] = {Segment::kMapped, 0, 64};
    EXPECT_ANY_THROW(verify(updates));
    break;
  }

  Session session(compiled(), *backend, 1, {}, file);
  session.initialize(1);
  const Snapshot before = session.snapshot();
  size_t compared = 0;
  for (const TensorView& t : before.weights) {
    for (size_t i = 0; i < file->tensors().size(); ++i) {
      if (file->tensors()[i].name != t.name) continue;
      EXPECT_EQ(t.bytes.data(), file->bytes(i).data()) << t.name << " is a copy";
      ++compared;
    }
  }
  EXPECT_EQ(compared, file->tensors().size());
}

/// The kernel's counts of the pages of a mapped file, in KiB.
struct MappedPages {
  int64_t resident = 0, proportional = 0, changed = 0;
};
std::vector<MappedPages> pages_of(const fs::path& path) {
  std::vector<MappedPages> maps;
  bool counts = false;
  std::ifstream smaps("/proc/self/smaps");
  for (std::string line; std::getline(smaps, line);) {
    std::istringstream words(line);
    std::string key;
    int64_t kib = 0;
    words >> key;
    if (!key.ends_with(':')) {  // the first line of a map: addresses and path
      counts = line.ends_with(path.string());
      if (counts) maps.emplace_back();
      continue;
    }
    if (!counts) continue;
    words >> kib;
    if (key == "Rss:") maps.back().resident = kib;
    if (key == "Pss:") maps.back().proportional = kib;
    if (key == "Private_Dirty:" || key == "Anonymous:") maps.back().changed += kib;
  }
  return maps;
}

// Two jobs, each with a map of its own as in two processes: every page is counted half in each.
TEST_F(MappedWeights, TwoJobsShareThePagesOfTheFile) {
  const TrainJob job = job_in("shared");
  const ModelInterface interface = read_schema(job.dataset)->interface(job.recipe.context_length);
  const auto backend = make_cpu_backend(1);
  const auto open = [&] {
    const auto file =
        std::make_shared<const WeightsFile>(WeightsFile::open(job.initial_weights).value());
    Recipe recipe = job.recipe;
    recipe.initial_weights.tensors =
        std::make_shared<const std::vector<FileTensor>>(file->tensors());
    RunPrograms programs =
        compile_step(job.model, recipe, interface, {}, backend->traits()).value();
    auto session = std::make_unique<Session>(std::move(programs), *backend, 1, Rank(), file);
    session->initialize(1);
    const std::vector<int32_t> tokens(16 * 8);
    Session::StepInputs inputs;
    inputs.input = inputs.target = std::as_bytes(std::span(tokens));
    session->run_step(inputs);
    (void)session->checksums();  // reads all weights
    return session;
  };
  const auto first = open();
  if (pages_of(w_ / "aligned").empty()) GTEST_SKIP() << "the kernel does not count pages of maps";
  const auto second = open();
  const std::vector<MappedPages> maps = pages_of(w_ / "aligned");
  ASSERT_EQ(maps.size(), 2u);
  for (const MappedPages& map : maps) {
    EXPECT_GE(map.resident * 1024, half_bytes_);
    EXPECT_EQ(map.changed, 0);
  }
  EXPECT_EQ(maps[0].proportional + maps[1].proportional, maps[0].resident);
}

TEST_F(MappedWeights, ASmallPartThatIsNotAlignedIsCopied) {
  TrainJob job = job_in("odd");
  const WeightsFile file = WeightsFile::open(job.initial_weights).value();
  auto tensors = std::make_shared<std::vector<FileTensor>>(file.tensors());
  tensors->front().offset += 2;
  tensors->back().offset = FileTensor::kNoOffset;
  int64_t copied = 0;
  for (const FileTensor& t : {tensors->front(), tensors->back()}) copied += t.shape.elements() * 2;
  job.recipe.initial_weights.tensors = tensors;
  const RunPlan plan = plan_run(job.model, job.recipe, read_schema(job.dataset).value()).value();
  EXPECT_EQ(plan.memory.mapped_bytes, half_bytes_ - copied);
}

/// Returns what the model of a folder answers.
std::string answer_of(const fs::path& model) {
  const auto backend = make_cpu_backend(1);
  auto generator = Generator::open(model, *backend);
  EXPECT_TRUE(generator.ok()) << generator.error().message;
  std::string text;
  const Status s = (*generator)
                       ->generate(std::vector<Prompt>{{.text = "ab"}},
                                  {.tokens = 12, .sampling = {.temperature = 0}}, {},
                                  [&](const Continuation& part) { text += part.text; });
  EXPECT_TRUE(s.ok()) << s.error().message;
  return text;
}

TEST_F(MappedWeights, AnImportedModelKeepsNumbersOf16BitsAndCanBeMapped) {
  const fs::path description = w_ / "base-model" / "model.json";
  const auto info = import_model(local_files(), description, w_ / "plain", w_ / "imported");
  ASSERT_TRUE(info.ok()) << info.error().message;
  const WeightsFile file = WeightsFile::open(w_ / "imported" / kModelWeightsFile).value();
  for (const FileTensor& t : file.tensors()) {
    EXPECT_EQ(t.dtype, "BF16") << t.name;
    EXPECT_EQ(t.offset % kMappedAlignment, 0) << t.name;
  }
  Recorder mapped, copied;
  TrainJob job = job_in("from-imported");
  job.initial_weights = w_ / "imported" / kModelWeightsFile;
  run_ok(job, mapped);
  run_ok(job_in("copied", "plain"), copied);
  EXPECT_EQ(mapped.plan.memory.mapped_bytes, half_bytes_);
  EXPECT_EQ(model_of("from-imported"), model_of("copied"));

  // The same numbers as F32 answer the same.
  const SafetensorsFile halves =
      SafetensorsFile::open(w_ / "plain", SafetensorsFile::Halves::kAccepted).value();
  std::vector<std::vector<std::byte>> storage;
  std::vector<TensorView> wide;
  for (const TensorView& t : halves.tensors()) {
    const std::vector<float> values = to_f32("BF16", t.bytes);
    const auto bytes = std::as_bytes(std::span(values));
    storage.emplace_back(bytes.begin(), bytes.end());
    wide.push_back({t.name, t.type, storage.back()});
  }
  ASSERT_TRUE(write_safetensors(local_files(), w_ / "wide", wide, {}).ok());
  ASSERT_TRUE(import_model(local_files(), description, w_ / "wide", w_ / "imported-wide").ok());
  EXPECT_EQ(answer_of(w_ / "imported"), answer_of(w_ / "imported-wide"));
  EXPECT_GT(
      fs::file_size(w_ / "imported-wide" / kModelWeightsFile),
      fs::file_size(w_ / "imported" / kModelWeightsFile) + static_cast<size_t>(half_bytes_) - 1024);
}

}  // namespace
}  // namespace trainyard
