// Measures how fast a model continues texts, and what share of the memory's speed that is: a step
// reads every weight once.
//
//   generation_bench MODEL_FOLDER [PROMPT_TOKENS] [TOKENS] [ROWS] [--f32]
//
// With --f32 weights are stored in 32 bits, also where generation stores them in 16.
//
// Prints one line of JSON. tests/bench/generation_peers.py runs it alternately with transformers
// and llama.cpp.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "src/base/cores.h"
#include "src/inference/text_model.h"
#include "src/inference/weight_storage.h"
#include "src/ops/gemm.h"

namespace trainyard {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Returns the bytes per second at which all cores together read memory: the best of three runs.
double read_bytes_per_second(int threads) {
  constexpr size_t kWords = size_t{64} << 20;  // 512 MiB in all, more than any cache
  std::vector<uint64_t> words(kWords, 1);
  std::vector<uint64_t> sums(static_cast<size_t>(threads));
  double best = 0;
  for (int run = 0; run < 3; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> readers;
    for (int i = 0; i < threads; ++i) {
      readers.emplace_back([&, i] {
        const size_t part = kWords / static_cast<size_t>(threads);
        const auto* from = words.data() + static_cast<size_t>(i) * part;
        sums[static_cast<size_t>(i)] = std::accumulate(from, from + part, uint64_t{0});
      });
    }
    for (std::thread& reader : readers) reader.join();
    best = std::max(best, static_cast<double>(kWords * sizeof(uint64_t)) / seconds_since(begin));
  }
  if (std::accumulate(sums.begin(), sums.end(), uint64_t{0}) == 0)
    std::abort();  // the sums are used
  return best;
}

/// Returns the bytes of the weights that a step multiplies; of tables it only looks up rows.
int64_t multiplied_bytes(const Program& program) {
  std::set<TensorId> read;
  for (const Node& node : program.graph.nodes()) {
    if (node.op == gemm_op() || node.op == gemm_add_op()) read.insert(node.inputs[1]);
  }
  int64_t bytes = 0;
  for (const TensorId id : read) bytes += program.graph.tensor(id).stored_bytes();
  return bytes;
}

int run(const std::string& folder, int64_t prompt, int64_t tokens, int64_t rows, bool f32) {
  const int threads = usable_cores();
  const auto backend = make_cpu_backend(threads);
  const Result<LoadedModel> model = read_model(folder);
  if (!model.ok()) {
    std::fprintf(stderr, "%s\n", model.error().message.c_str());
    return 1;
  }
  const WeightStorage storage = f32 ? WeightStorage() : find_weight_storage(*model);
  auto text = open_kept_text_model(*model, rows, prompt + tokens, storage, *backend);
  if (!text.ok()) {
    std::fprintf(stderr, "%s\n", text.error().message.c_str());
    return 1;
  }
  const auto programs = compile_generation(model->info.model, model->info.interface(), rows,
                                           prompt + tokens, backend->traits(), storage);
  std::vector<std::vector<int32_t>> texts(static_cast<size_t>(rows));
  for (auto& t : texts) {
    for (int64_t i = 0; i < prompt; ++i) t.push_back(static_cast<int32_t>(1 + i * 7 % 200));
  }
  const std::stop_token never;
  const auto step = [&] {
    if (!(*text)->score(texts, never).ok()) std::abort();
    for (auto& t : texts) t.push_back(static_cast<int32_t>(1 + t.size() % 200));
  };
  auto begin = std::chrono::steady_clock::now();
  step();
  const double prompt_s = seconds_since(begin);
  begin = std::chrono::steady_clock::now();
  for (int64_t i = 1; i < tokens; ++i) step();
  const double step_s = seconds_since(begin) / static_cast<double>(tokens - 1);
  const auto weight_bytes = static_cast<double>(multiplied_bytes(programs->step.program));
  const double speed = read_bytes_per_second(threads);
  std::printf(
      "{\"prompt_tokens_per_second\": %.1f, \"tokens_per_second\": %.2f, \"rows\": %lld, "
      "\"weight_bytes\": %.0f, \"read_bytes_per_second\": %.3g, \"share_of_bandwidth\": %.3f}\n",
      static_cast<double>(rows * prompt) / prompt_s, static_cast<double>(rows) / step_s,
      static_cast<long long>(rows), weight_bytes, speed, weight_bytes / step_s / speed);
  return 0;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool f32 = std::erase(arguments, "--f32") > 0;
  if (arguments.empty()) {
    std::fprintf(stderr,
                 "usage: generation_bench MODEL_FOLDER [PROMPT_TOKENS] [TOKENS] [ROWS] [--f32]\n");
    return 2;
  }
  const auto number = [&](size_t i, int64_t fallback) {
    return arguments.size() > i ? std::strtoll(arguments[i].c_str(), nullptr, 10) : fallback;
  };
  return trainyard::run(arguments[0], number(1, 128), number(2, 128), number(3, 1), f32);
}
