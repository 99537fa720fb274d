// Measures whether training slows down while its numbers become small: the samples of each second,
// and how many of the weights and of the optimizer's numbers are denormal at its end.
//
//   denormal_bench MODEL BATCH THREADS SECONDS    one JSON line
//
// MODEL is a model of bench_models.h. It trains on the CPU on the same eight batches repeatedly, so
// that it overfits them and its gradients vanish. A second is a second of CPU time of each thread,
// so that other load on the machine does not change the result; the counting is not included.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "kernels/math/philox.h"
#include "src/job/recipe.h"
#include "src/runtime/backend.h"
#include "src/train/session.h"
#include "tests/bench/bench_models.h"

namespace trainyard {
namespace {

constexpr uint64_t kBatches = 8;

struct Batch {
  std::vector<std::byte> input;  // floats or tokens
  std::vector<int32_t> target;
};

Batch make_batch(const ModelInterface& interface, int64_t rows, uint64_t b) {
  Batch batch;
  const auto values = static_cast<size_t>(rows * interface.input.elements());
  batch.input.resize(values * 4);
  for (size_t i = 0; i < values; ++i) {
    const uint32_t random = math::philox_u32(1, 1, b, i);
    const auto token = static_cast<uint32_t>(
        1 + random % static_cast<uint64_t>(std::max<int64_t>(interface.vocabulary - 1, 1)));
    const uint32_t bits =
        interface.vocabulary > 0 ? token : std::bit_cast<uint32_t>(math::uniform01<float>(random));
    std::memcpy(batch.input.data() + 4 * i, &bits, 4);
  }
  const bool next_token = interface.target == TargetForm::kNextToken;
  batch.target.resize(static_cast<size_t>(rows * (next_token ? interface.input[0] : 1)));
  for (size_t i = 0; i < batch.target.size(); ++i) {
    batch.target[i] = static_cast<int32_t>(math::philox_u32(1, 2, b, i) %
                                           static_cast<uint64_t>(interface.outputs));
  }
  return batch;
}

int64_t count_denormals(const std::vector<TensorView>& tensors) {
  int64_t count = 0;
  for (const TensorView& t : tensors) {
    if (t.type.dtype != DType::kF32) continue;
    for (size_t at = 0; at < t.bytes.size(); at += 4) {
      uint32_t bits = 0;
      std::memcpy(&bits, t.bytes.data() + at, 4);
      count += (bits & 0x7F80'0000u) == 0 && (bits & 0x007F'FFFFu) != 0;
    }
  }
  return count;
}

void measure(const std::string& name, int64_t rows, int threads, int seconds) {
  const bench::BenchModel m = bench::bench_model(name);
  Recipe recipe;
  recipe.batch_size = rows;
  recipe.optimizer = m.optimizer;
  const std::unique_ptr<Backend> backend = make_cpu_backend(threads);
  RunPrograms programs;
  programs.train = compile_training(m.model, recipe, m.interface, rows, backend->traits()).value();
  Session session(std::move(programs), *backend);
  session.initialize(1);
  std::vector<Batch> batches;
  for (uint64_t b = 0; b < kBatches; ++b) batches.push_back(make_batch(m.interface, rows, b));

  int64_t step = 0;
  float loss = 0;
  const auto run_step = [&] {
    const Batch& batch = batches[static_cast<uint64_t>(step) % kBatches];
    Session::StepInputs inputs;
    inputs.input = batch.input;
    inputs.target = std::as_bytes(std::span(batch.target));
    inputs.step = step++;
    inputs.learning_rate = 0.01f;
    loss = session.run_step(inputs).loss;
  };
  run_step();  // touches all memory

  const auto seconds_of_each_thread = [&] {
    return static_cast<double>(std::clock()) / CLOCKS_PER_SEC / threads;
  };
  nlohmann::ordered_json line = {
      {"model", name}, {"batch", rows}, {"threads", threads}, {"samples_per_second", {}}};
  for (int second = 0; second < seconds; ++second) {
    const double start = seconds_of_each_thread();
    const int64_t before = step;
    double took = 0;
    do {
      run_step();
      took = seconds_of_each_thread() - start;
    } while (took < 1);
    line["samples_per_second"].push_back(static_cast<double>((step - before) * rows) / took);
    const Snapshot snapshot = session.snapshot();
    line["denormal_weights"].push_back(count_denormals(snapshot.weights));
    line["denormal_optimizer"].push_back(count_denormals(snapshot.optimizer));
    line["loss"].push_back(loss);
  }
  std::printf("%s\n", line.dump().c_str());
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: denormal_bench MODEL BATCH THREADS SECONDS\n");
    return 2;
  }
  trainyard::measure(argv[1], std::atoll(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]));
  return 0;
}
