// Measures how fast a model continues texts, and what share of the memory's speed that is: a step
// reads every weight once.
//
//   generation_bench MODEL_FOLDER [PROMPT_TOKENS] [TOKENS] [ROWS]
//
// Prints one line of JSON. tests/bench/generation_peers.py runs it alternately with transformers
// and llama.cpp.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "src/base/cores.h"
#include "src/inference/text_model.h"

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

int run(const std::string& folder, int64_t prompt, int64_t tokens, int64_t rows) {
  const int threads = usable_cores();
  const auto backend = make_cpu_backend(threads);
  const Result<LoadedModel> model = read_model(folder);
  if (!model.ok()) {
    std::fprintf(stderr, "%s\n", model.error().message.c_str());
    return 1;
  }
  auto text = open_kept_text_model(*model, rows, prompt + tokens, *backend);
  if (!text.ok()) {
    std::fprintf(stderr, "%s\n", text.error().message.c_str());
    return 1;
  }
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
  const double weight_bytes = static_cast<double>(model->info.parameter_count) * sizeof(float);
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
  if (argc < 2) {
    std::fprintf(stderr, "usage: generation_bench MODEL_FOLDER [PROMPT_TOKENS] [TOKENS] [ROWS]\n");
    return 2;
  }
  const auto number = [&](int i, int64_t fallback) {
    return argc > i ? std::strtoll(argv[i], nullptr, 10) : fallback;
  };
  return trainyard::run(argv[1], number(2, 128), number(3, 128), number(4, 1));
}
