// Compares the training of low-rank additions to a small Llama with transformers and PEFT
// (tests/golden/make_peft_golden.py describes how), with its frozen weights stored as F32 and, as
// in their file, as bfloat16.
//
// Bound: the loss of each of 20 steps within 1e-4 relative; measured 5e-7. The storage of frozen
// weights changes no bit.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/base/files.h"
#include "src/checkpoint/typed_bytes.h"
#include "src/checkpoint/weights_file.h"
#include "src/models/lora.h"
#include "src/planning/programs.h"
#include "src/runtime/backend.h"
#include "src/train/session.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

constexpr double kPeftLossBound = 1e-4;

const Json& peft_golden() {
  static const Json json = [] {
    std::ifstream file(testing::source_path("tests/golden/peft.json"));
    return Json::parse(file);
  }();
  return json;
}

/// The tensors of the golden file, by name. Those of a case begin with its name and a slash.
class PeftTensors {
 public:
  PeftTensors()
      : file_(WeightsFile::open(testing::source_path("tests/golden/peft.safetensors")).value()) {
    for (size_t i = 0; i < file_.tensors().size(); ++i) index_[file_.tensors()[i].name] = i;
  }
  std::span<const std::byte> bytes(const std::string& name) const {
    return file_.bytes(index_.at(name));
  }
  std::vector<float> floats(const std::string& name) const {
    const size_t i = index_.at(name);
    return to_f32(file_.tensors()[i].dtype, file_.bytes(i));
  }
  /// The tensors of the model without additions, as a file of its own would have them.
  std::vector<FileTensor> of_base() const {
    std::vector<FileTensor> tensors;
    for (const FileTensor& t : file_.tensors()) {
      if (t.name.find('/') == std::string::npos) tensors.push_back(t);
    }
    return tensors;
  }

 private:
  WeightsFile file_;
  std::map<std::string, size_t> index_;
};

Recipe recipe_of_case(const Json& c, const std::string& frozen_storage) {
  Recipe recipe;
  recipe.batch_size = peft_golden()["rows"];
  recipe.optimizer = default_optimizer("adamw");
  recipe.optimizer.learning_rate = peft_golden()["learning_rate"];
  recipe.optimizer.weight_decay = peft_golden()["weight_decay"];
  recipe.lora.rank = c["rank"];
  recipe.lora.alpha = c["alpha"];
  recipe.lora.targets = c["targets"].get<std::vector<std::string>>();
  recipe.lora.rank_scaling = c["rank_scaling"];
  recipe.frozen_storage = frozen_storage;
  recipe.initial_weights.source = "base";
  recipe.initial_weights.tensors =
      std::make_shared<const std::vector<FileTensor>>(PeftTensors().of_base());
  return recipe;
}

ModelSpec small_llama() {
  ModelSpec model;
  model.preset = "decoder";
  for (const char* name : {"n_layer", "n_embd", "n_head", "n_kv_head", "hidden"}) {
    model.parameters.set(name, peft_golden()[name].get<int64_t>());
  }
  return model;
}

struct PeftRun {
  std::vector<float> losses;
  std::vector<std::byte> weights;  // all tensors of the snapshot, as F32
  int64_t trained = 0, parameter_bytes = 0;
};

PeftRun run_case(const Json& c, const Recipe& recipe) {
  const PeftTensors tensors;
  const int64_t vocabulary = peft_golden()["vocabulary"], context = peft_golden()["context"];
  const ModelInterface interface { {context}, vocabulary, TargetForm::kNextToken, vocabulary };
  const auto backend = make_cpu_backend(2);
  RunPrograms programs =
      compile_step(small_llama(), recipe, interface, {}, backend->traits()).value();
  PeftRun run;
  run.trained = programs.trained_parameter_count;
  run.parameter_bytes = programs.train.program.memory.parameter_bytes;
  Session session(std::move(programs), *backend);
  session.initialize(1);
  const std::string name = c["name"];
  for (const TensorInfo& t : session.weight_tensors()) {
    const std::vector<float> values =
        tensors.floats(is_lora(t.name) ? name + "/" + t.name : t.name);
    session.write_weight(t.name, std::as_bytes(std::span(values)));
  }
  const size_t bytes = tensors.bytes(name + "/tokens").size() / c["losses"].size();
  for (size_t step = 0; step < c["losses"].size(); ++step) {
    Session::StepInputs inputs;
    inputs.input = tensors.bytes(name + "/tokens").subspan(step * bytes, bytes);
    inputs.target = tensors.bytes(name + "/targets").subspan(step * bytes, bytes);
    inputs.step = static_cast<int64_t>(step);
    inputs.learning_rate = static_cast<float>(recipe.optimizer.learning_rate);
    run.losses.push_back(session.run_step(inputs).loss);
  }
  EXPECT_EQ(session.arena_used_bytes(), session.arena_planned_bytes());
  for (const TensorView& t : session.snapshot().weights) {
    std::vector<std::byte> widened;
    const std::span<const std::byte> bytes_of = typed_bytes(t, widened);
    run.weights.insert(run.weights.end(), bytes_of.begin(), bytes_of.end());
  }
  return run;
}

TEST(PeftGolden, LossesFollowPeft) {
  for (const Json& c : peft_golden()["cases"]) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const PeftRun run = run_case(c, recipe_of_case(c, "fp32"));
    EXPECT_EQ(run.trained, c["trained"].get<int64_t>());
    double worst = 0;
    for (size_t step = 0; step < run.losses.size(); ++step) {
      const double loss = run.losses[step], wanted = c["losses"][step];
      worst = std::max(worst, std::fabs(loss - wanted) / wanted);
      ASSERT_NEAR(loss, wanted, kPeftLossBound * wanted) << "step " << step;
    }
    std::printf("  %-12s losses within %.1e\n", c["name"].get<std::string>().c_str(), worst);
  }
}

// The frozen weights of the file are bfloat16, so `auto` stores them in 16 bits. Every kernel
// widens them to the numbers that F32 weights have.
TEST(PeftGolden, TheStorageOfFrozenWeightsChangesNoBit) {
  for (const Json& c : peft_golden()["cases"]) {
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      SCOPED_TRACE(c["name"].get<std::string>() + " " + std::string(name_of(precision)));
      Recipe wide = recipe_of_case(c, "fp32"), narrow = recipe_of_case(c, "auto");
      wide.precision = narrow.precision = precision;
      const PeftRun of_wide = run_case(c, wide), of_narrow = run_case(c, narrow);
      EXPECT_EQ(of_wide.losses, of_narrow.losses);
      EXPECT_TRUE(of_wide.weights == of_narrow.weights);
      // All sizes are multiples of the alignment, so the plan halves the frozen bytes exactly.
      const int64_t trained = c["trained"].get<int64_t>() * 4;
      EXPECT_LT(of_narrow.parameter_bytes, of_wide.parameter_bytes - 16000);
      EXPECT_GT(of_narrow.parameter_bytes, trained);
    }
  }
}

// Micro-batches weigh their losses by their counted tokens: a factor that the fused head takes, so
// that its scores exist for some rows at a time there too.
TEST(PeftGolden, TheHeadIsFusedInMicroBatches) {
  const int64_t vocabulary = peft_golden()["vocabulary"], context = peft_golden()["context"];
  ModelInterface interface { {context}, vocabulary, TargetForm::kNextToken, vocabulary };
  interface.documents = true;
  Recipe recipe = recipe_of_case(peft_golden()["cases"][0], "auto");
  recipe.batch_size *= 2;
  recipe.accumulate_steps = 2;
  const auto programs = compile_step(small_llama(), recipe, interface).value();
  ASSERT_NE(programs.train.loss_share, kNoTensor);
  int64_t heads = 0;
  for (const Node& node : programs.train.program.graph.nodes()) {
    heads += node.op->type() == "GemmSoftmaxCrossEntropyLoss" ? 1 : 0;
    EXPECT_NE(node.op->type(), "SoftmaxCrossEntropyLoss");
  }
  EXPECT_EQ(heads, 1);
}

// A checkpoint has frozen weights as they are stored, without a copy of them in memory, and a job
// that resumes continues with the same bits, also if it stores them as F32.
TEST(PeftGolden, ACheckpointKeepsFrozenWeightsAsTheyAreStored) {
  const Json& c = peft_golden()["cases"][0];
  const int64_t vocabulary = peft_golden()["vocabulary"], context = peft_golden()["context"];
  const ModelInterface interface { {context}, vocabulary, TargetForm::kNextToken, vocabulary };
  const auto backend = make_cpu_backend(2);
  const PeftTensors tensors;
  const auto open = [&](const std::string& frozen_storage) {
    return std::make_unique<Session>(compile_step(small_llama(), recipe_of_case(c, frozen_storage),
                                                  interface, {}, backend->traits())
                                         .value(),
                                     *backend);
  };
  const size_t bytes = tensors.bytes("linear/tokens").size() / c["losses"].size();
  const auto train = [&](Session& session, size_t step) {
    Session::StepInputs inputs;
    inputs.input = tensors.bytes("linear/tokens").subspan(step * bytes, bytes);
    inputs.target = tensors.bytes("linear/targets").subspan(step * bytes, bytes);
    inputs.step = static_cast<int64_t>(step);
    inputs.learning_rate = 5e-3F;
    return session.run_step(inputs).loss;
  };
  const auto first = open("auto");
  first->initialize(1);
  for (const TensorInfo& t : first->weight_tensors()) {
    const std::vector<float> values = tensors.floats((is_lora(t.name) ? "linear/" : "") + t.name);
    first->write_weight(t.name, std::as_bytes(std::span(values)));
  }
  train(*first, 0);
  const Snapshot snapshot = first->snapshot();
  for (size_t i = 0; i < snapshot.weights.size(); ++i) {
    const TensorView& t = snapshot.weights[i];
    EXPECT_EQ(t.storage == Storage::kBf16, !is_lora(t.name)) << t.name;
    EXPECT_EQ(t.bytes.size(), static_cast<size_t>(t.stored_bytes()));
  }
  const auto folder =
      std::filesystem::temp_directory_path() / ("peft_golden_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  ASSERT_TRUE(write_safetensors(local_files(), folder / "w", snapshot.weights, {}).ok());
  ASSERT_TRUE(write_safetensors(local_files(), folder / "o", snapshot.optimizer, {}).ok());
  EXPECT_FALSE(SafetensorsFile::open(folder / "w").ok()) << "a model's file has no such numbers";
  const float next = train(*first, 1);
  for (const char* frozen_storage : {"auto", "fp32"}) {
    const auto resumed = open(frozen_storage);
    const Status loaded = resumed->load(
        SafetensorsFile::open(folder / "w", SafetensorsFile::Halves::kAccepted).value(),
        SafetensorsFile::open(folder / "o").value());
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_EQ(train(*resumed, 1), next) << frozen_storage;
  }
  std::filesystem::remove_all(folder);
}

// A file of F32 numbers gives no reason to round them.
TEST(PeftGolden, AutoKeepsNumbersThatHave32Bits) {
  const Json& c = peft_golden()["cases"][0];
  Recipe recipe = recipe_of_case(c, "auto");
  std::vector<FileTensor> tensors = *recipe.initial_weights.tensors;
  for (FileTensor& t : tensors) t.dtype = t.name == "embed.weight" ? "BF16" : "F32";
  recipe.initial_weights.tensors = std::make_shared<const std::vector<FileTensor>>(tensors);
  const int64_t vocabulary = peft_golden()["vocabulary"], context = peft_golden()["context"];
  const ModelInterface interface { {context}, vocabulary, TargetForm::kNextToken, vocabulary };
  const RunPrograms programs = compile_step(small_llama(), recipe, interface).value();
  for (const TensorInfo& t : programs.train.program.graph.tensors()) {
    if (t.role != Role::kParameter) continue;
    EXPECT_EQ(t.is_bf16(), t.name == "embed.weight") << t.name;
  }
}

// Nothing is computed for what is not trained: no gradient of a frozen weight or scale, and no
// gradient of what the first additions read.
TEST(PeftGolden, ComputesNoGradientBelowTheFirstAddition) {
  Json c = peft_golden()["cases"][0];
  c["targets"] = {"h1_q"};
  const int64_t vocabulary = peft_golden()["vocabulary"], context = peft_golden()["context"];
  const ModelInterface interface { {context}, vocabulary, TargetForm::kNextToken, vocabulary };
  const RunPrograms programs =
      compile_step(small_llama(), recipe_of_case(c, "auto"), interface).value();
  const Graph& graph = programs.train.program.graph;
  for (const Node& node : graph.nodes()) {
    if (node.phase != Phase::kBackward) continue;
    EXPECT_FALSE(node.name.starts_with("h0_") || node.name.starts_with("embed")) << node.name;
    EXPECT_FALSE(node.name.starts_with("h1_attn_norm")) << node.name;
    for (const TensorId id : node.outputs) {
      if (id == kNoTensor || graph.tensor(id).role != Role::kGradient) continue;
      EXPECT_NE(graph.tensor(id).name.find("lora"), std::string::npos) << graph.tensor(id).name;
    }
  }
}

}  // namespace
}  // namespace trainyard
