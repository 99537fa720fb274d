// Measures how planning time grows with the number of layers: layer lists whose blocks are repeated
// 500 to 5000 times are planned as in the daemon.
//
//   plan_bench                 a table: CPU milliseconds of plan_run() by shape of the network and
//                              layers
//   plan_bench SHAPE N         one shape, with N layers in all
//   plan_bench preset NAME     a preset on images of 224 x 224, such as resnet50, or gpt2 with
//                              124 M parameters
//   plan_bench sharding        the time to compare the sharding plans of presets, on one GPU and on
//                              eight: where all plans fit, where some do, where none does
//
// If the time is linear, all rows of a shape have the same microseconds per layer.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "src/job/recipe.h"
#include "src/job/run_plan.h"
#include "src/planning/job_plan.h"
#include "src/planning/sharding_plans.h"

namespace trainyard {
namespace {

using Steady = std::chrono::steady_clock;

double cpu_ms() {
  // CPU time of the process, since planning has one thread
  return static_cast<double>(std::clock()) * 1000 / CLOCKS_PER_SEC;
}

struct Shape {
  const char* name;
  const char* what;
  std::vector<LayerSpec> block;  // repeated in the model
  Recipe recipe = {};
  bool images = false;
};

LayerSpec layer(const std::string& op, Attributes attributes = {},
                std::vector<std::string> inputs = {}) {
  LayerSpec spec;
  spec.op = op;
  spec.attributes = std::move(attributes);
  spec.inputs = std::move(inputs);
  return spec;
}

std::vector<Shape> shapes() {
  const std::vector<LayerSpec> dense = {layer("Gemm", {{"units", int64_t{64}}}), layer("Relu")};
  const std::vector<LayerSpec> residual = {
      layer("LayerNormalization"), layer("Gemm", {{"units", int64_t{64}}}),
      layer("Gelu", {{"approximate", std::string("tanh")}}),
      layer("Gemm", {{"units", int64_t{64}}}), layer("Add", {}, {"gemm2", "input"})};
  const std::vector<LayerSpec> image = {
      layer("Conv", {{"out_channels", int64_t{8}},
                     {"kernel_shape", std::vector<int64_t>{3, 3}},
                     {"pads", std::vector<int64_t>{1, 1, 1, 1}}}),
      layer("BatchNormalization"), layer("Relu"),
      layer("Transpose", {{"perm", std::vector<int64_t>{0, 1, 3, 2}}})};
  std::vector<Shape> all = {
      {"dense", "gemm 64, relu", dense},
      {"wide", "gemm 16384, relu", {layer("Gemm", {{"units", int64_t{16384}}}), layer("Relu")}},
      {"adam", "dense with Adam", dense},
      {"bf16", "dense in bf16", dense},
      {"recompute", "dense, recompute: blocks", dense},
      {"residual", "normalization, gemm, gelu, gemm, sum", residual},
      {"image", "conv, normalization, relu, transpose", image}};
  all.push_back({"norm", "batch normalization", {layer("BatchNormalization")}});
  all.push_back({"split",
                 "split in 64, concat",
                 {layer("Split", {{"num_outputs", int64_t{64}}}), layer("Concat")}});
  for (int64_t i = 0; i < 64; ++i)
    all.back().block[1].inputs.push_back("split1." + std::to_string(i));
  all[7].images = true;
  all[2].recipe.optimizer.type = "adam";
  all[3].recipe.precision = Precision::kBf16;
  all[4].recipe.recompute = Recompute::kBlocks;
  all[6].images = true;
  return all;
}

ModelSpec model_of(const Shape& shape, int64_t layers) {
  BlockSpec block;
  block.name = "b";
  block.layers = shape.block;
  LayerSpec use;
  use.op = "Use";
  use.block = "b";
  use.repeat = layers / static_cast<int64_t>(shape.block.size());
  ModelSpec model;
  model.blocks = {block};
  if (!shape.images) model.layers.push_back(layer("Gemm", {{"units", int64_t{64}}}));
  if (shape.images)
    model.layers.push_back(layer(
        "Conv", {{"out_channels", int64_t{8}}, {"kernel_shape", std::vector<int64_t>{1, 1}}}));
  model.layers.push_back(use);
  model.layers.push_back(layer("Gemm"));
  return model;
}

DatasetSchema digits() {
  DatasetSchema schema;
  schema.kind = DatasetSchema::Kind::kImage;
  schema.image = {1, 8, 8};
  schema.target.classes = {"a", "b", "c"};
  schema.train_rows = 1000;
  schema.test_rows = 100;
  return schema;
}

void time_plan(const Shape& shape, int64_t layers) {
  Recipe recipe = shape.recipe;
  recipe.epochs = 1;
  recipe.batch_size = 64;
  const ModelSpec model = model_of(shape, layers);
  double best_ms = 1e300;
  int64_t bytes = 0;
  const Steady::time_point begin = Steady::now();
  do {
    const double start_ms = cpu_ms();
    const auto plan = plan_run(model, recipe, digits());
    const double ms = cpu_ms() - start_ms;
    if (!plan.ok()) {
      std::printf("%-10s %6ld  refused: %s\n", shape.name, static_cast<long>(layers),
                  plan.error().message.c_str());
      return;
    }
    best_ms = std::min(best_ms, ms);
    bytes = plan->memory.total();
  } while (Steady::now() - begin < std::chrono::seconds(3));
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  std::printf("%-10s %6ld %10.1f ms %8.2f us/layer %18ld bytes planned %6ld MiB\n", shape.name,
              static_cast<long>(layers), best_ms, best_ms * 1000 / static_cast<double>(layers),
              static_cast<long>(bytes), used.ru_maxrss / 1024);
  std::fflush(stdout);
}

struct PresetJob {
  ModelSpec model;
  DatasetSchema schema;
  Recipe recipe;
};

PresetJob job_of(const std::string& name) {
  PresetJob job;
  job.model.preset = name;
  job.recipe.epochs = 90;
  if (name == "gpt2") {
    job.schema.kind = DatasetSchema::Kind::kText;
    job.schema.text.tokenizer = TokenizerKind::kWord;
    for (int i = 0; i < 50'256; ++i) job.schema.text.pieces.push_back("w" + std::to_string(i));
    job.schema.target.kind = TargetSchema::Kind::kNextToken;
    job.schema.train_rows = 10'000'000;
    job.schema.test_rows = 100'000;
    job.model.parameters.set("size", std::string("small"));
    job.recipe.context_length = 1024;
    return job;
  }
  job.schema = digits();
  job.schema.image = {3, 224, 224};
  job.schema.train_rows = 1'281'167;
  job.schema.test_rows = 50'000;
  return job;
}

/// Measures with a memory limit that is `share` of what the unchanged recipe needs beyond the
/// memory kept between steps.
void time_layouts(const PresetJob& job, int64_t ranks, double share) {
  ShardingQuery query;
  query.free = {true, true, true};
  query.ranks = ranks;
  query.traits = {kCudaAlignment, Processor::kGpu};
  const RunPlan whole = plan_run(job.model, job.recipe, job.schema, ranks, query.traits).value();
  const int64_t kept = lasting_bytes(whole.memory);
  query.limit_bytes =
      kept + static_cast<int64_t>(share * static_cast<double>(whole.memory.total() - kept));
  for (const bool until_chosen : {false, true}) {
    query.until_chosen = until_chosen;
    const double start_ms = cpu_ms();
    const ShardingPlans found =
        enumerate_sharding_plans(job.model, job.recipe, job.schema, query).value();
    const double ms = cpu_ms() - start_ms;
    std::printf(
        "%-10s %ld GPUs, %3.0f%% of what it needs beyond what it keeps, %-11s %3zu rows %3ld "
        "programs %8.1f ms %6.1f ms each\n",
        job.model.preset.c_str(), static_cast<long>(ranks), 100 * share,
        until_chosen ? "choice:" : "all:", found.rows.size(), static_cast<long>(found.programs), ms,
        ms / static_cast<double>(found.programs));
    std::fflush(stdout);
  }
}

void time_all_layouts() {
  for (const char* name : {"gpt2", "resnet50", "vit_base"}) {
    PresetJob job = job_of(name);
    job.recipe.optimizer = default_optimizer("adamw");
    for (const int64_t ranks : {1, 8}) {
      for (const double share : {1.0, 0.4, 0.001}) time_layouts(job, ranks, share);
    }
  }
}

void time_preset(const std::string& name) {
  const auto [model, schema, recipe] = job_of(name);
  std::vector<double> times_ms;
  for (int i = 0; i < 21; ++i) {
    const double start_ms = cpu_ms();
    const auto plan = plan_run(model, recipe, schema);
    times_ms.push_back(cpu_ms() - start_ms);
    if (!plan.ok()) {
      std::printf("%s refused: %s\n", name.c_str(), plan.error().message.c_str());
      return;
    }
  }
  std::sort(times_ms.begin(), times_ms.end());
  std::printf("%-20s %8.2f ms median %8.2f ms best\n", name.c_str(), times_ms[10], times_ms[0]);
}

int run(int argc, char** argv) {
  if (argc > 2 && std::string(argv[1]) == "preset") {
    time_preset(argv[2]);
    return 0;
  }
  if (argc > 1 && std::string(argv[1]) == "sharding") {
    time_all_layouts();
    return 0;
  }
  for (const Shape& shape : shapes()) {
    if (argc > 1 && std::string(argv[1]) != shape.name) continue;
    if (argc > 2) {
      time_plan(shape, std::atol(argv[2]));
      continue;
    }
    std::printf("%s: %s\n", shape.name, shape.what);
    for (const int64_t layers : {500, 1000, 2000, 4000, 9000}) time_plan(shape, layers);
  }
  return 0;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) { return trainyard::run(argc, argv); }
