// Training speed of the models that every comparison uses, batches in memory.
//
//   train_bench [seconds]    a table: samples per second, share of the measured fp32 peak, planned
//                            and used arena bytes, for threads 1 and 2
//   train_bench --serve      answers "MODEL BATCH THREADS SECONDS" lines on standard input with one
//                            JSON line each; compare_pytorch.py drives it in turns with PyTorch
//   train_bench --serve gpu-0 bf16
//                            the same on a GPU, in fp32 or bf16; THREADS is then not looked at.
//                            compare_gpu.py drives it. Algorithms are chosen as in `local run`
//                            (TRAINYARD_ALGORITHMS)
//   train_bench --memory MODEL BATCH
//                            three steps, and the largest memory the process had
//
// Models are those of bench_models.h.
// One step is what the training loop does: batch in, forward, backward, update, loss and logits
// out.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <tuple>

#include "kernels/cpu/peak_flops.h"
#include "kernels/math/philox.h"
#include "src/runtime/open_backend.h"
#include "src/train/session.h"
#include "tests/bench/bench_models.h"

namespace trainyard {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kBatches = 8;  // different ones in turn, so that no input stays in a cache

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A model, its memory and its batches: built once, run in many rounds.
class Case {
 public:
  Case(const std::string& model, int64_t batch, std::unique_ptr<Backend> backend,
       Precision precision = Precision::kFp32)
      : batch_(batch), backend_(std::move(backend)) {
    const bench::BenchModel m = bench::bench_model(model);
    Recipe recipe;
    recipe.batch_size = batch;
    recipe.optimizer = m.optimizer;
    recipe.precision = precision;
    RunPrograms programs;
    programs.train =
        compile_training(m.model, recipe, m.interface, batch, backend_->traits()).value();
    flops_ = programs.train.program.flops;
    session_ = std::make_unique<Session>(std::move(programs), *backend_);
    session_->initialise(1);
    for (int64_t b = 0; b < kBatches; ++b) add_batch(m.interface, static_cast<uint64_t>(b));
    run(0.1);  // first touches, sleeping threads
  }

  /// Samples per second over at least `seconds`.
  double run(double seconds) {
    const Clock::time_point start = Clock::now();
    int64_t steps = 0;
    do {
      begin_step();
      // The next is under way before this one's results are looked at, as in the training loop.
      if (!session_->runs_ahead() || steps > 0) (void)session_->finish_step();
      ++steps;
    } while (seconds_since(start) < seconds);
    if (session_->runs_ahead()) (void)session_->finish_step();
    return static_cast<double>(steps * batch_) / seconds_since(start);
  }

  /// GFLOP per sample: each multiplication and addition of the program that the plan counts.
  double gflop_per_sample() const {
    return static_cast<double>(flops_) / static_cast<double>(batch_) * 1e-9;
  }
  int64_t planned_bytes() const { return session_->arena_planned_bytes(); }
  int64_t used_bytes() const { return session_->arena_used_bytes(); }

 private:
  void add_batch(const ModelInterface& interface, uint64_t b) {
    const auto values = static_cast<size_t>(batch_ * interface.input.elements());
    std::vector<std::byte>& input = inputs_.emplace_back(values * 4);  // floats or tokens
    for (size_t i = 0; i < values; ++i) {
      const uint32_t random = math::philox_u32(1, 1, b, i);
      if (interface.vocabulary > 0) {  // no padding, which is token 0
        const auto token =
            static_cast<int32_t>(1 + random % static_cast<uint64_t>(interface.vocabulary - 1));
        std::memcpy(input.data() + 4 * i, &token, 4);
      } else {
        const float value = math::uniform01<float>(random);
        std::memcpy(input.data() + 4 * i, &value, 4);
      }
    }
    const bool next_token = interface.target == TargetForm::kNextToken;
    std::vector<int32_t>& target =
        targets_.emplace_back(static_cast<size_t>(batch_ * (next_token ? interface.input[0] : 1)));
    for (size_t i = 0; i < target.size(); ++i) {
      target[i] = static_cast<int32_t>(math::philox_u32(1, 2, b, i) %
                                       static_cast<uint64_t>(interface.outputs));
    }
  }

  void begin_step() {
    const auto b = static_cast<size_t>(step_ % kBatches);
    Session::StepInputs inputs;
    inputs.input = inputs_[b];
    inputs.target = std::as_bytes(std::span(targets_[b]));
    inputs.step = step_++;
    inputs.learning_rate = 0.01f;
    session_->begin_step(inputs);
  }

  int64_t batch_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Session> session_;
  int64_t flops_ = 0;
  int64_t step_ = 0;
  std::vector<std::vector<std::byte>> inputs_;
  std::vector<std::vector<int32_t>> targets_;
};

void print_table(double seconds) {
  const double peak[] = {0, kernels::cpu::measure_peak_gflops(1),
                         kernels::cpu::measure_peak_gflops(2)};
  std::printf("fp32 peak, measured: %.0f GFLOP/s on 1 thread, %.0f on 2\n\n", peak[1], peak[2]);
  std::printf("%-10s %6s %8s %12s %10s %8s %14s %14s %6s\n", "model", "batch", "threads",
              "samples/s", "GFLOP/s", "of peak", "planned bytes", "used bytes", "diff");
  for (const char* model : {"mlp", "mlp_small", "lenet5"}) {
    for (const int64_t batch : {64, 128}) {
      for (const int threads : {1, 2}) {
        Case c(model, batch, make_cpu_backend(threads));
        std::vector<double> rates;
        for (int i = 0; i < 5; ++i) rates.push_back(c.run(seconds / 5));
        std::ranges::sort(rates);
        const double rate = rates[2];
        const double gflops = rate * c.gflop_per_sample();
        std::printf("%-10s %6lld %8d %12.0f %10.1f %7.1f%% %14lld %14lld %6lld\n", model,
                    static_cast<long long>(batch), threads, rate, gflops,
                    100 * gflops / peak[threads], static_cast<long long>(c.planned_bytes()),
                    static_cast<long long>(c.used_bytes()),
                    static_cast<long long>(c.planned_bytes() - c.used_bytes()));
        std::fflush(stdout);
      }
    }
  }
}

/// On `device`, a GPU by name, or on the CPU with as many threads as each line says.
void serve(const std::string& device, Precision precision) {
  std::map<std::tuple<std::string, int64_t, int>, std::unique_ptr<Case>> cases;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    std::string model;
    int64_t batch = 0;
    int threads = 0;
    double seconds = 0;
    in >> model;
    if (model == "peak") {
      in >> threads;
      std::printf("{\"gflops\": %.2f}\n", kernels::cpu::measure_peak_gflops(threads));
      std::fflush(stdout);
      continue;
    }
    in >> batch >> threads >> seconds;
    auto& c = cases[{model, batch, threads}];
    if (c == nullptr) {
      auto backend = open_backend(device, threads).value();
      backend->use_algorithms(
          std::make_shared<Algorithms>(Algorithms::Options{local_algorithms_folder().value()}));
      c = std::make_unique<Case>(model, batch, std::move(backend), precision);
    }
    const double rate = c->run(seconds);
    std::printf(
        "{\"samples_per_second\": %.3f, \"gflop_per_sample\": %.9f, \"planned_bytes\": %lld, "
        "\"used_bytes\": %lld}\n",
        rate, c->gflop_per_sample(), static_cast<long long>(c->planned_bytes()),
        static_cast<long long>(c->used_bytes()));
    std::fflush(stdout);
  }
}

// The process's largest resident memory in bytes, from the kernel's books.
int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

void print_memory(const std::string& model, int64_t batch) {
  const int64_t before = peak_resident_bytes();
  Case c(model, batch, make_cpu_backend(2));
  c.run(0);
  c.run(0);
  std::printf("{\"before_bytes\": %lld, \"peak_bytes\": %lld, \"planned_bytes\": %lld}\n",
              static_cast<long long>(before), static_cast<long long>(peak_resident_bytes()),
              static_cast<long long>(c.planned_bytes()));
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--serve") {
    const auto precision = trainyard::find_precision(argc > 3 ? argv[3] : "fp32");
    if (!precision.has_value()) {
      std::fprintf(stderr, "precision: expected fp32 or bf16\n");
      return 2;
    }
    trainyard::serve(std::string("devices/") + (argc > 2 ? argv[2] : "cpu"), *precision);
  } else if (argc > 3 && std::string(argv[1]) == "--memory") {
    trainyard::print_memory(argv[2], std::atoll(argv[3]));
  } else {
    trainyard::print_table(argc > 1 ? std::atof(argv[1]) : 2.0);
  }
  return 0;
}
