// A step with very many classes: the loss over all of them on one rank and split by class over
// several, and over a sample of them. Ranks are threads of this process with one core each.
//
//   huge_head_bench [classes=1000000] [width=128] [batch=128] [samples=8192] [steps=7]
//                   [optimizer=adamw] [ways=exact,split2,split4,sampled,sampled2]
//
// The model is one layer of `width` on 64 inputs and the head. One way after another, because few
// machines hold several; a step's time is the median, with the least and the most beside it. One
// line for each way; labels are drawn by Zipf's law.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/math/candidates.h"
#include "src/runtime/open_backend.h"
#include "src/train/programs.h"
#include "src/train/replicated_session.h"
#include "src/train/session.h"

namespace trainyard {
namespace {

using Steady = std::chrono::steady_clock;

constexpr int64_t kInputs = 64;

struct Options {
  int64_t classes, width, batch, samples, steps;
  std::string optimizer, ways;
};

struct Way {
  std::string_view name;
  int64_t ranks;
  Shard shard;
  bool samples;
};
constexpr Way kWays[] = {{"exact", 1, Shard::kNone, false},
                         {"split2", 2, Shard::kHead, false},
                         {"split4", 4, Shard::kHead, false},
                         {"sampled", 1, Shard::kNone, true},
                         {"sampled2", 2, Shard::kNone, true}};

void run(const Options& options, const Way& way) {
  ModelSpec model;
  model.preset = "mlp";
  model.parameters.set("hidden", std::vector<int64_t>{options.width});
  if (way.samples) {
    model.loss = {"SampledSoftmaxCrossEntropyLoss", {{"samples", options.samples}}};
  }
  Recipe recipe;
  recipe.steps = 1000;
  recipe.batch_size = options.batch;
  recipe.optimizer = default_optimizer(options.optimizer);
  recipe.optimizer.learning_rate = 1e-3;
  recipe.shard = way.shard;
  const ModelInterface interface { {kInputs}, 0, TargetForm::kClass, options.classes };

  std::vector<RankDevice> devices;
  std::vector<Backend*> backends;
  for (int64_t r = 0; r < way.ranks; ++r) {
    devices.push_back({"rank-" + std::to_string(r), make_cpu_backend(1)});
    backends.push_back(devices.back().backend.get());
  }
  if (way.ranks > 1) backends.front()->connect(backends).value();
  const DeviceTraits traits = backends.front()->traits();
  std::vector<RunPrograms> programs;
  for (int64_t r = 0; r < way.ranks; ++r) {
    programs.push_back(compile_step(model, recipe, interface, {r, way.ranks}, traits).value());
  }
  RunShape shape;
  shape.ranks = way.ranks;
  const RunPlan plan = describe_run(programs.front(), shape, recipe);
  std::unique_ptr<TrainingSession> session;
  if (way.ranks == 1) {
    session = std::make_unique<Session>(std::move(programs.front()), *devices.front().backend);
  } else {
    session = std::make_unique<ReplicatedSession>(std::move(programs), std::move(devices), 1);
  }
  session->initialize(1);
  std::vector<float> input;
  for (int64_t i = 0; i < options.batch * kInputs; ++i) {
    input.push_back(static_cast<float>((i * 31) % 97) / 97.0F);
  }
  const math::Candidates zipf = math::candidates_of(options.classes, true);
  std::vector<double> ms;
  double loss = 0;
  for (int64_t step = 0; step < 2 + options.steps; ++step) {
    std::vector<int32_t> target;
    for (int64_t i = 0; i < options.batch; ++i) {
      target.push_back(static_cast<int32_t>(zipf.draw(1, 2, static_cast<uint64_t>(step), i)));
    }
    const auto start = Steady::now();
    loss = session
               ->run_step(
                   {std::as_bytes(std::span(input)), std::as_bytes(std::span(target)), step, 1e-3F})
               .loss;
    const std::chrono::duration<double, std::milli> took = Steady::now() - start;
    if (step >= 2) ms.push_back(took.count());  // the first ones touch the memory
  }
  std::ranges::sort(ms);
  int64_t sent = 0;
  for (const PlannedExchange& exchange : plan.exchanges) sent += exchange.sent_bytes;
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024.0); };
  std::printf(
      "%-9s ranks %lld  weights %8.1f MiB  optimizer %8.1f  gradients %8.1f  arena %8.1f  sent "
      "%7.2f MiB a step  step %9.2f ms (%.2f to %.2f)  loss %.3f\n",
      std::string(way.name).c_str(), static_cast<long long>(way.ranks),
      mib(plan.memory.parameter_bytes), mib(plan.memory.optimizer_bytes),
      mib(plan.memory.gradient_bytes), mib(session->arena_planned_bytes()), mib(sent),
      ms[ms.size() / 2], ms.front(), ms.back(), loss);
  std::fflush(stdout);
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  const auto number = [&](int i, int64_t otherwise) {
    return argc > i ? std::strtoll(argv[i], nullptr, 10) : otherwise;
  };
  const trainyard::Options options{number(1, 1000000),
                                   number(2, 128),
                                   number(3, 128),
                                   number(4, 8192),
                                   std::max<int64_t>(1, number(5, 7)),
                                   argc > 6 ? argv[6] : "adamw",
                                   argc > 7 ? argv[7] : "exact,split2,split4,sampled,sampled2"};
  for (const trainyard::Way& way : trainyard::kWays) {
    const std::string wanted = "," + options.ways + ",";
    if (wanted.find("," + std::string(way.name) + ",") != std::string::npos) {
      trainyard::run(options, way);
    }
  }
  return 0;
}
