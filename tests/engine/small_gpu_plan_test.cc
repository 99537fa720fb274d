// Catches: a GPU of 2 GB for which the small models that it could train are refused, or on which a
// large one is refused without advice that helps.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <string>
#include <vector>

#include "src/models/families/family.h"
#include "src/planning/planner.h"
#include "tests/engine/planning_support.h"

namespace trainyard {
namespace {

constexpr int64_t kGpuBytes = 2048 * kMiB;

/// A GPU of 2 GiB without bfloat16. The daemon reserves a quarter of it for CUDA and its libraries
/// (CheckedInventory::overhead_least_bytes()).
Machine small_machine() {
  Machine machine = machine_with(1, kGpuBytes);
  Device& gpu = machine.devices.devices[1];
  gpu.model = "NVIDIA GeForce MX450";
  gpu.capability = 75;
  gpu.overhead_bytes = kGpuBytes / 4;
  return machine;
}

DatasetSchema images(int64_t side, size_t classes) {
  DatasetSchema schema;
  schema.kind = DatasetSchema::Kind::kImage;
  schema.image = {3, side, side};
  for (size_t i = 0; i < classes; ++i) schema.target.classes.push_back(std::to_string(i));
  schema.train_rows = 50'000;
  return schema;
}

JobToPlan job_with(const std::string& preset, const std::string& optimizer, int64_t batch_size) {
  JobToPlan job;
  job.model.preset = preset;
  job.recipe.epochs = 1;
  job.recipe.batch_size = batch_size;
  job.recipe.precision = Precision::kTf32;
  job.recipe.optimizer = default_optimizer(optimizer);
  job.recipe.optimizer.learning_rate = 1e-3;
  job.wish = DeviceWish::kGpu;
  return job;
}

struct Verdict {
  PlannedRun planned;
  MemoryFit fit;
};
/// Plans the job as a submission does. `workspace_bytes` is what the kernels may take.
Verdict submit(const JobToPlan& job, const DatasetSchema& schema, int64_t workspace_bytes = 0) {
  const Machine machine = small_machine();
  Verdict v{plan_on(machine, job, schema, std::nullopt, {}).value(), {}};
  v.fit = judge_memory(machine, job, schema, workspace_bytes, v.planned).value();
  return v;
}

// All workspaces together stay below this on a GPU of 2 GiB (src/runtime/cuda/budgets.h).
constexpr int64_t kWorkspace = 128 * kMiB;

TEST(SmallGpu, AGptOfTenMillionParametersFits) {
  DatasetSchema text;
  text.kind = DatasetSchema::Kind::kText;
  text.text.tokenizer = TokenizerKind::kByte;
  text.target.kind = TargetSchema::Kind::kNextToken;
  text.train_rows = 1'000'000;
  JobToPlan job = job_with("gpt2", "adamw", 16);
  job.model.parameters.set("size", std::string("mini"));
  job.recipe.context_length = 256;
  for (const Precision precision : {Precision::kTf32, Precision::kFp16}) {
    job.recipe.precision = precision;
    const Verdict v = submit(job, text, kWorkspace);
    EXPECT_TRUE(v.fit.fits) << v.fit.message;
    EXPECT_GT(v.planned.plan.run.parameter_count, 10'000'000);
    EXPECT_LE(v.fit.bytes_needed, kGpuBytes);
  }
}

TEST(SmallGpu, AResnet18AtThirtyTwoPixelsFits) {
  for (const Precision precision : {Precision::kTf32, Precision::kFp16}) {
    JobToPlan job = job_with("resnet18", "sgd", 128);
    job.recipe.optimizer.momentum = 0.9;
    job.recipe.precision = precision;
    const Verdict v = submit(job, images(32, 10), kWorkspace);
    EXPECT_TRUE(v.fit.fits) << v.fit.message;
    EXPECT_GT(v.planned.plan.run.parameter_count, 11'000'000);
  }
}

/// Changes the job as one way of the advice says: "recipe.optimizer.type: sgd with
/// recipe.batch_size: 4 and no recipe.clip_gradients.norm".
void take(const std::string& way, JobToPlan& job) {
  static const std::regex change(R"((no )?recipe\.([a-z_.]+)(: ([a-z0-9]+))?)");
  int taken = 0;
  for (auto it = std::sregex_iterator(way.begin(), way.end(), change); it != std::sregex_iterator();
       ++it, ++taken) {
    const std::string field = (*it)[2], value = (*it)[4];
    if (field == "optimizer.type") {
      job.recipe.optimizer = default_optimizer(value);
      job.recipe.optimizer.learning_rate = 1e-3;
    } else if (field == "batch_size") {
      job.recipe.batch_size = std::stoll(value);
    } else if (field == "accumulate_steps") {
      job.recipe.accumulate_steps = std::stoll(value);
    } else if (field == "clip_gradients.norm" && (*it)[1].matched) {
      job.recipe.clip_norm = 0;
    } else {
      FAIL() << "unknown change: " << (*it)[0];
    }
  }
  ASSERT_GT(taken, 0) << way;
}

/// Returns the ways of "... (...); A, B or C would fit".
std::vector<std::string> ways_of(const std::string& message) {
  const size_t begin = message.find("; ") + 2, end = message.rfind(" would fit");
  EXPECT_NE(end, message.npos) << message;
  std::vector<std::string> ways;
  static const std::regex between(", | or ");
  const std::string text = message.substr(begin, end - begin);
  for (auto it = std::sregex_token_iterator(text.begin(), text.end(), between, -1);
       it != std::sregex_token_iterator(); ++it) {
    ways.push_back(*it);
  }
  return ways;
}

void expect_that_the_advice_helps(const JobToPlan& job, const DatasetSchema& schema,
                                  int64_t workspace_bytes) {
  const Verdict refused = submit(job, schema, workspace_bytes);
  ASSERT_FALSE(refused.fit.fits);
  const std::string& message = refused.fit.message;
  EXPECT_TRUE(message.starts_with("the job needs ")) << message;
  const std::vector<std::string> ways = ways_of(message);
  ASSERT_FALSE(ways.empty());
  EXPECT_TRUE(std::ranges::any_of(ways, [](const std::string& way) {
    return way.starts_with("recipe.optimizer.type: sgd");
  })) << message;
  for (const std::string& way : ways) {
    SCOPED_TRACE(way);
    JobToPlan changed = job;
    take(way, changed);
    if (::testing::Test::HasFatalFailure()) return;
    const Verdict accepted = submit(changed, schema, workspace_bytes);
    EXPECT_TRUE(accepted.fit.fits) << accepted.fit.message;
    EXPECT_FALSE(accepted.planned.choice.has_value()) << "the advice alone is enough";
  }
}

TEST(SmallGpu, Vgg16WithAdamWIsRefusedWithWhatWouldFit) {
  const DatasetSchema schema = images(224, 1000);
  JobToPlan job = job_with("vgg16", "adamw", 32);
  EXPECT_GT(submit(job, schema).planned.plan.run.parameter_count, 138'000'000);
  expect_that_the_advice_helps(job, schema, 0);
  expect_that_the_advice_helps(job, schema, kWorkspace);
}

// Gradients that wait for their global norm, or for more micro-batches, exist all at once.
TEST(SmallGpu, TheAdviceUpdatesInPlaceWhereThatIsNeeded) {
  JobToPlan job = job_with("vgg16", "adamw", 32);
  job.recipe.clip_norm = 1;
  job.recipe.accumulate_steps = 4;
  expect_that_the_advice_helps(job, images(224, 1000), kWorkspace);
}

/// Llama 3.1 70B, as its config.json describes it.
constexpr const char* kLlama70b = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": 128001,
  "hidden_act": "silu", "hidden_size": 8192, "initializer_range": 0.02, "intermediate_size": 28672,
  "max_position_embeddings": 131072, "mlp_bias": false, "num_attention_heads": 64,
  "num_hidden_layers": 80, "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "transformers_version": "4.43.0", "use_cache": true, "vocab_size": 128256})";

// Its config alone says that an adapter of it cannot be trained on 24 GB: nothing is downloaded.
TEST(SmallGpu, ALanguageModelOf70BillionParametersIsRefusedByItsConfigAlone) {
  const LanguageModel llama = read_model_config(kLlama70b).value();
  EXPECT_EQ(llama.parameter_count(), 70'553'706'496);
  std::vector<FileTensor> tensors;
  for (const ExpectedTensor& t : llama.tensors) tensors.push_back({t.name, llama.dtype, t.shape});
  JobToPlan job = job_with("", "adamw", 1);
  job.model = llama.network;
  job.recipe.context_length = 512;
  job.recipe.lora = {.rank = 16, .alpha = 32, .targets = {"all-linear"}};
  job.recipe.initial_weights.source = "Llama-3.1-70B";
  DatasetSchema text;
  text.kind = DatasetSchema::Kind::kText;
  text.text.tokenizer = TokenizerKind::kByte;
  text.target.kind = TargetSchema::Kind::kNextToken;
  text.train_rows = 1'000'000;
  const Machine machine = machine_with(1, 24576 * kMiB, 24576 * kMiB);
  for (const DeviceWish wish : {DeviceWish::kGpu, DeviceWish::kCpu}) {
    job.wish = wish;
    PlannedRun planned = plan_on(machine, job, text, StartingTensors{tensors}, {}).value();
    const MemoryFit fit = judge_memory(machine, job, text, 0, planned).value();
    EXPECT_FALSE(fit.fits);
    EXPECT_GT(fit.bytes_needed, 141'000'000'000);
    EXPECT_NE(fit.message.find("(24 GiB"), std::string::npos) << fit.message;
    EXPECT_NE(fit.message.find("no batch_size fits; only a smaller model would"), std::string::npos)
        << fit.message;
  }
}

}  // namespace
}  // namespace trainyard
