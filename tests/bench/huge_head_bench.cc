// Measures a step with very many classes: with the loss over all classes on one rank, with the
// classes split over several ranks, and over a sample of the classes; also with an embedding of as
// many tokens, whose gradient covers all rows or only those that a batch names. Ranks are threads
// of this process with one core each.
//
//   huge_head_bench [classes=1000000] [width=128] [batch=128] [samples=8192] [steps=7]
//                   [optimizer=adamw] [ways=exact,split2,split4,sampled,sampled2]
//                   ways of an embedding: tokens,sparse,sparse2,sparse_by4
//
// The model is one layer of `width` on 64 inputs and the head; or an embedding of `width`, the mean
// of a row's 16 tokens, and the head with the sampled loss. The ways run one after another, because
// few machines have memory for several; a step's time is the median, printed with the minimum and
// maximum, one line for each way. Labels and tokens follow Zipf's law. The last number is the share
// of the physical limit: the least bytes that a step moves according to the plan, divided by its
// time, relative to copying memory with as many cores.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kernels/math/candidates.h"
#include "src/job/recipe.h"
#include "src/job/run_plan.h"
#include "src/planning/programs.h"
#include "src/runtime/open_backend.h"
#include "src/train/replicated_session.h"
#include "src/train/session.h"

namespace trainyard {
namespace {

using Steady = std::chrono::steady_clock;

constexpr int64_t kInputs = 64, kTokens = 16;

struct Options {
  int64_t classes, width, batch, samples, steps;
  std::string optimizer, ways;
};

enum class Embedded : uint8_t { kNone, kPlain, kSparse };
struct Way {
  std::string_view name;
  int64_t ranks;
  Shard shard;
  bool samples;
  Embedded lookup = Embedded::kNone;
  int64_t micro_batches = 1;
};
constexpr Way kWays[] = {{"exact", 1, Shard::kNone, false},
                         {"split2", 2, Shard::kHead, false},
                         {"split4", 4, Shard::kHead, false},
                         {"sampled", 1, Shard::kNone, true},
                         {"sampled2", 2, Shard::kNone, true},
                         {"tokens", 1, Shard::kNone, true, Embedded::kPlain},
                         {"sparse", 1, Shard::kNone, true, Embedded::kSparse},
                         {"sparse2", 2, Shard::kNone, true, Embedded::kSparse},
                         {"sparse_by4", 1, Shard::kNone, true, Embedded::kSparse, 4}};

ModelSpec model_of(const Options& options, const Way& way) {
  ModelSpec model;
  if (way.lookup == Embedded::kNone) {
    model.preset = "mlp";
    model.parameters.set("hidden", std::vector<int64_t>{options.width});
  } else {
    Attributes embedding{{"embedding_dim", options.width}};
    if (way.lookup == Embedded::kSparse) embedding.set("sparse", int64_t{1});
    model.layers = {
        {"", "Embedding", {}, embedding}, {"", "SequencePool", {}, {}}, {"head", "Gemm", {}, {}}};
  }
  if (way.samples) {
    model.loss = {"SampledSoftmaxCrossEntropyLoss", {{"samples", options.samples}}};
  }
  return model;
}

/// Returns the bytes a second that copies of 256 MiB read and write, with one copy on each of
/// `ranks` cores.
double copied_per_second(int64_t ranks) {
  constexpr size_t kBytes = size_t{256} << 20;
  std::vector<std::vector<char>> memory(static_cast<size_t>(2 * ranks),
                                        std::vector<char>(kBytes, 1));
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const auto start = Steady::now();
    std::vector<std::jthread> threads;
    for (size_t r = 0; r < static_cast<size_t>(ranks); ++r) {
      threads.emplace_back(
          [&, r] { std::memcpy(memory[2 * r].data(), memory[2 * r + 1].data(), kBytes); });
    }
    threads.clear();
    const std::chrono::duration<double> took = Steady::now() - start;
    best = std::max(best,
                    2.0 * static_cast<double>(kBytes) * static_cast<double>(ranks) / took.count());
  }
  return best;
}

/// Returns the least bytes that a step of one rank moves.
int64_t moved_bytes(const RunPrograms& programs, int64_t micro_batches) {
  int64_t bytes = programs.train.program.bytes * micro_batches;
  if (programs.update.has_value()) bytes += programs.update->program.bytes;
  return bytes;
}

void run(const Options& options, const Way& way) {
  const bool has_tokens = way.lookup != Embedded::kNone;
  const ModelSpec model = model_of(options, way);
  Recipe recipe;
  recipe.steps = 1000;
  recipe.batch_size = options.batch;
  recipe.accumulate_steps = way.micro_batches;
  recipe.optimizer = default_optimizer(options.optimizer);
  recipe.optimizer.learning_rate = 1e-3;
  recipe.shard = way.shard;
  const ModelInterface interface {
    {has_tokens ? kTokens : kInputs}, has_tokens ? options.classes : 0, TargetForm::kClass,
        options.classes
  };

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
  shape.micro_batches = way.micro_batches;
  const RunPlan plan = describe_run(programs.front(), shape, recipe);
  const int64_t moved = moved_bytes(programs.front(), way.micro_batches) * way.ranks;
  std::unique_ptr<TrainingSession> session;
  if (way.ranks == 1) {
    session = std::make_unique<Session>(std::move(programs.front()), *devices.front().backend,
                                        way.micro_batches);
  } else {
    session = std::make_unique<ReplicatedSession>(std::move(programs), std::move(devices),
                                                  way.micro_batches);
  }
  session->initialize(1);
  const math::Candidates zipf = math::candidates_of(options.classes, true);
  const auto draw = [&](uint32_t stream, int64_t step, int64_t i) {
    return static_cast<int32_t>(zipf.draw(1, stream, static_cast<uint64_t>(step), i));
  };
  std::vector<float> numbers;
  for (int64_t i = 0; i < options.batch * kInputs; ++i) {
    numbers.push_back(static_cast<float>((i * 31) % 97) / 97.0F);
  }
  std::vector<double> ms;
  double loss = 0;
  for (int64_t step = 0; step < 2 + options.steps; ++step) {
    std::vector<int32_t> target;
    for (int64_t i = 0; i < options.batch; ++i) {
      target.push_back(draw(2, step, i));
    }
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < options.batch * kTokens; ++i) tokens.push_back(draw(3, step, i));
    const auto input =
        has_tokens ? std::as_bytes(std::span(tokens)) : std::as_bytes(std::span(numbers));
    const auto start = Steady::now();
    loss = session->run_step({input, std::as_bytes(std::span(target)), step, 1e-3F}).loss;
    const std::chrono::duration<double, std::milli> took = Steady::now() - start;
    if (step >= 2) ms.push_back(took.count());  // the first steps touch the memory
  }
  std::ranges::sort(ms);
  int64_t sent = 0;
  for (const PlannedExchange& exchange : plan.exchanges) sent += exchange.sent_bytes;
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024.0); };
  std::printf(
      "%-10s ranks %lld  weights %8.1f MiB  optimizer %8.1f  gradients %8.1f  arena %8.1f  sent "
      "%7.2f MiB a step  step %9.2f ms (%.2f to %.2f)  loss %.3f  moved %.1f MiB, "
      "%.0f %% of a copy\n",
      std::string(way.name).c_str(), static_cast<long long>(way.ranks),
      mib(plan.memory.parameter_bytes), mib(plan.memory.optimizer_bytes),
      mib(plan.memory.gradient_bytes), mib(session->arena_planned_bytes()), mib(sent),
      ms[ms.size() / 2], ms.front(), ms.back(), loss, mib(moved),
      100 * static_cast<double>(moved) / (ms[ms.size() / 2] / 1e3) / copied_per_second(way.ranks));
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
