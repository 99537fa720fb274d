// Measures the memory that sharding saves and the time of a step: plain data parallelism and
// resources.shard with optimizer, head, mlp, parameters and their combinations, on ranks that are
// threads of this process with one core each.
//
//   shard_bench [hidden=2048] [steps=40] [rounds=5] [ranks=2] [optimizer=adamw] [classes=10]
//               [layers=3] [model=mlp] [way]...
//
// The model is an MLP with `layers` layers of width `hidden` on 784 inputs; or, with gpt2, a GPT-2
// with `layers` blocks and `classes` words, whose head shares the embedding's table, on 8 windows
// of 64 words. Ways in which the model cannot be split are omitted, and if ways are named (such as
// "none", "[optimizer, head]"), so are all others. Rounds of all ways alternate, so that other load
// on the machine affects all of them. A step's time is the median over all rounds; next to it is
// the forecast by which sharding plans would be ranked, from rates measured first with one thread.
// Each way has one line. Its last number is the share of the fp32 peak, measured in the same run on
// as many threads, that the products of one rank's step reach.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/peak_flops.h"
#include "src/calibration/calibrate.h"
#include "src/forecast/forecast.h"
#include "src/job/recipe.h"
#include "src/job/run_plan.h"
#include "src/planning/job_plan.h"
#include "src/planning/programs.h"
#include "src/planning/run_work.h"
#include "src/runtime/open_backend.h"
#include "src/train/replicated_session.h"

namespace trainyard {
namespace {

using Steady = std::chrono::steady_clock;

constexpr int64_t kInputs = 784, kBatch = 64;
constexpr int64_t kWindows = 8, kContext = 64, kHeadWidth = 64;

struct Options {
  int64_t hidden, steps, rounds, ranks;
  std::string optimizer;
  int64_t classes, layers;
  std::string model;
  std::vector<std::string> ways;  // all ways if none is named

  bool is_text() const { return model == "gpt2"; }
  bool has(Shard shard) const {
    return ways.empty() || std::ranges::find(ways, name_of(shard)) != ways.end();
  }
};

struct Job {
  Job(const Options& options, Shard shard) : ranks(options.ranks) {
    model.preset = options.model;
    recipe.steps = 1000;
    options.is_text() ? take_words(options) : take_images(options);
    recipe.optimizer = default_optimizer(options.optimizer);
    recipe.optimizer.learning_rate = 1e-4;
    if (options.optimizer == "sgd") recipe.optimizer.momentum = 0.9;
    recipe.shard = shard;
  }
  void take_images(const Options& options) {
    model.parameters.set("hidden",
                         std::vector<int64_t>(static_cast<size_t>(options.layers), options.hidden));
    recipe.batch_size = kBatch;
    schema.kind = DatasetSchema::Kind::kImage;
    schema.image = {1, 28, 28};
    for (int64_t i = 0; i < options.classes; ++i) {
      schema.target.classes.push_back(std::to_string(i));
    }
    schema.train_rows = 60000;
  }
  void take_words(const Options& options) {
    model.parameters = {{"n_embd", options.hidden},
                        {"n_layer", options.layers},
                        {"n_head", std::max(int64_t{1}, options.hidden / kHeadWidth)}};
    recipe.batch_size = kWindows;
    recipe.context_length = kContext;
    schema.kind = DatasetSchema::Kind::kText;
    schema.text.tokenizer = TokenizerKind::kWord;
    for (int64_t i = 1; i < options.classes; ++i) schema.text.pieces.push_back(std::to_string(i));
    schema.target.kind = TargetSchema::Kind::kNextToken;
    schema.train_rows = 1000000;
  }
  Result<RunPlan> plan() const { return plan_run(model, recipe, schema, ranks); }

  const int64_t ranks;
  ModelSpec model;
  Recipe recipe;
  DatasetSchema schema;
};

class Way {
 public:
  Way(const Options& options, const Job& job) {
    std::vector<RankDevice> devices;
    std::vector<Backend*> backends;
    for (int64_t r = 0; r < options.ranks; ++r) {
      devices.push_back({"rank-" + std::to_string(r), make_cpu_backend(1)});
      backends.push_back(devices.back().backend.get());
    }
    backends.front()->connect(backends).value();
    const DeviceTraits traits = backends.front()->traits();
    const RunShape shape =
        check_recipe(job.recipe, job.model, job.schema, options.ranks, traits).value();
    std::vector<RunPrograms> programs;
    for (int64_t r = 0; r < options.ranks; ++r) {
      programs.push_back(compile_run(job.model, job.recipe, job.schema, shape, r).value());
    }
    plan = describe_run(programs.front(), shape, job.recipe);
    plan.work = run_work(programs.front(), shape, job.recipe, job.schema, plan);
    session_ = std::make_unique<ReplicatedSession>(std::move(programs), std::move(devices), 1);
    session_->initialize(1);
    plan.memory.workspace_bytes = session_->workspace_bytes();
    const int64_t targets = options.is_text() ? kWindows * kContext : kBatch;
    for (int64_t i = 0; i < targets; ++i) {
      target_.push_back(static_cast<int32_t>(i * 7919 % options.classes));
      words_.push_back(static_cast<int32_t>(i * 104729 % options.classes));
    }
    for (int64_t i = 0; i < kBatch * kInputs; ++i) {
      pixels_.push_back(static_cast<float>((i * 31) % 97) / 97.0F);
    }
    is_text_ = options.is_text();
  }

  void run(int64_t steps) {
    for (int64_t i = 0; i < steps; ++i) {
      const auto start = Steady::now();
      session_->run_step(
          {is_text_ ? std::as_bytes(std::span(words_)) : std::as_bytes(std::span(pixels_)),
           std::as_bytes(std::span(target_)), step_++, 1e-4F});
      ms.push_back(std::chrono::duration<double, std::milli>(Steady::now() - start).count());
    }
  }
  double median_ms() {
    std::ranges::sort(ms);
    return ms[ms.size() / 2];
  }
  int64_t arena_bytes() const { return session_->arena_planned_bytes(); }

  RunPlan plan;
  std::vector<double> ms;

 private:
  std::unique_ptr<ReplicatedSession> session_;
  std::vector<float> pixels_;
  std::vector<int32_t> words_, target_;
  bool is_text_ = false;
  int64_t step_ = 0;
};

/// Returns the FLOPs of the products in one rank's step.
double product_flops(const RunPlan& plan) {
  double flops = 0;
  for (const WorkItem& item : plan.work.step.items) {
    if (item.node.m > 0) flops += item.count * item.node.flops;
  }
  return flops;
}

/// `peak` is the FLOP/s of one thread while all ranks' threads work.
void report(const char* name, Way& way, const RateModel& rates, double peak) {
  const double mib = 1024.0 * 1024.0;
  const auto of = [&](int64_t bytes) { return static_cast<double>(bytes) / mib; };
  int64_t sent = 0;
  for (const PlannedExchange& exchange : way.plan.exchanges) sent += exchange.sent_bytes;
  std::printf(
      "%-22s  weights %8.2f MiB  optimizer %8.2f MiB  gradients %8.2f MiB  arena %8.2f MiB, "
      "planned "
      "%8.2f  sent %8.2f MiB a step  step %8.2f ms, forecast %8.2f  products %8.3f GFLOP, %4.1f %% "
      "of peak\n",
      name, of(way.plan.memory.parameter_bytes), of(way.plan.memory.optimizer_bytes),
      of(way.plan.memory.gradient_bytes), of(way.arena_bytes()), of(way.plan.memory.total()),
      of(sent), way.median_ms(), 1e3 * forecast_step(way.plan.work.step, rates)->time.seconds,
      product_flops(way.plan) / 1e9,
      100 * product_flops(way.plan) / (1e-3 * way.median_ms()) / peak);
}

int bench(const Options& options) {
  const std::unique_ptr<Backend> device = make_cpu_backend(1);
  const RateModel rates(calibrate(*device, {}).value());
  const double peak = 1e9 * kernels::cpu::measure_peak_gflops(static_cast<int>(options.ranks)) /
                      static_cast<double>(options.ranks);
  std::printf("fp32 peak, measured: %.1f GFLOP/s for each of %lld ranks\n", peak / 1e9,
              static_cast<long long>(options.ranks));
  std::vector<std::pair<Shard, std::unique_ptr<Way>>> ways;
  std::vector<Shard> sets = shard_sets();
  sets.insert(sets.begin(), Shard::kNone);
  for (const Shard shard : sets) {
    if (!options.has(shard)) continue;
    const Job job(options, shard);
    if (const auto plan = job.plan(); !plan.ok()) {
      std::printf("%-22s  %s\n", name_of(shard).c_str(), plan.error().message.c_str());
      continue;
    }
    ways.emplace_back(shard, std::make_unique<Way>(options, job));
    ways.back().second->run(3);  // warms up
    ways.back().second->ms.clear();
  }
  for (int64_t round = 0; round < options.rounds; ++round) {
    for (auto& [shard, way] : ways) way->run(options.steps);
  }
  for (auto& [shard, way] : ways) report(name_of(shard).c_str(), *way, rates, peak);
  return 0;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  const auto number = [&](int i, int64_t otherwise) {
    return argc > i ? std::strtoll(argv[i], nullptr, 10) : otherwise;
  };
  trainyard::Options options{number(1, 2048),
                             number(2, 40),
                             number(3, 5),
                             number(4, 2),
                             argc > 5 ? argv[5] : "adamw",
                             number(6, 10),
                             number(7, 3),
                             argc > 8 ? argv[8] : "mlp",
                             {}};
  for (int i = 9; i < argc; ++i) options.ways.emplace_back(argv[i]);
  return trainyard::bench(options);
}
