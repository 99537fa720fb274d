// Measures the training speed of the models that all comparisons use, with batches in memory. On a
// GPU, the dataset is resident if a job's would be, and as many steps are submitted together as in
// a job.
//
//   train_bench [seconds]    a table: samples per second, share of the measured fp32 peak, planned
//                            and used arena bytes, for threads 1 and 2
//   train_bench --serve [cpu [bf16]]
//                            answers "MODEL BATCH THREADS SECONDS" lines on standard input with one
//                            JSON line each, and "peak THREADS BITS" with the fp32 peak of vectors
//                            of BITS; compare_pytorch.py runs it in turns with PyTorch
//   train_bench --serve gpu-0 bf16
//                            the same on a GPU, in that precision; THREADS is then ignored.
//                            compare_gpu.py runs it. Algorithms are chosen as in `local run`
//                            (TRAINYARD_ALGORITHMS)
//   train_bench --memory MODEL BATCH [PRECISION]
//                            runs three steps, and prints the largest memory of the process
//   train_bench --model MODEL BATCH [--device gpu-0] [--precision bf16] [--seconds S]
//               [--replay N] [--profile-json FILE]
//                            one model, as one JSON line: whole steps and, with --replay, at most N
//                            replays of the recorded steps alone, without inputs, results and the
//                            host's work, as time of one step; each for S seconds (1).
//                            steps_together is the number of recorded steps. --profile-json then
//                            writes the times by op and node (docs/cli.md, "Profile")
//
// Models are those of bench_models.h. One step comprises, as in the training loop: batch in,
// forward, backward, update, loss and logits out. Every measurement starts from the initial
// weights, and rows repeat with other labels, so that nothing can be learned: the gradients of a
// model that has fitted its data vanish, and the arithmetic of denormal numbers would be measured
// instead of training.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/cpu/peak_flops.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/math/philox.h"
#include "src/base/cores.h"
#include "src/calibration/step_profile.h"
#include "src/job/recipe.h"
#include "src/planning/step_slots.h"
#include "src/runtime/open_backend.h"
#include "src/runtime/profiling_backend.h"
#include "src/train/session.h"
#include "tests/bench/bench_models.h"

namespace trainyard {
namespace {

using Steady = std::chrono::steady_clock;

constexpr int64_t kBatches = 8;    // different batches in turn, so that no input stays in a cache
constexpr int64_t kTargets = 127;  // sets of labels for a batch; prime, so that each set is
                                   // combined with every batch

double seconds_since(Steady::time_point start) {
  return std::chrono::duration<double>(Steady::now() - start).count();
}

// Keeps a pointer to the newest recording, which the session owns and continues to use.
class RecordingBackend final : public ProfilingBackend {
 public:
  using ProfilingBackend::ProfilingBackend;
  std::unique_ptr<Recording> record(const std::function<void()>& submit) override {
    std::unique_ptr<Recording> recording = ProfilingBackend::record(submit);
    recording_ = recording.get();
    return recording;
  }
  Recording* recording() const { return recording_; }

 private:
  Recording* recording_ = nullptr;
};

// A model, its memory and its batches: built once, run in many rounds.
class Case {
 public:
  Case(const std::string& model, int64_t batch, std::unique_ptr<Backend> backend,
       Precision precision = Precision::kFp32)
      : batch_(batch), device_(std::move(backend)), backend_(*device_) {
    const bench::BenchModel m = bench::bench_model(model);
    Recipe recipe;
    recipe.batch_size = batch;
    recipe.optimizer = m.optimizer;
    recipe.precision = precision;
    RunPrograms programs;
    programs.train =
        compile_training(m.model, recipe, m.interface, batch, backend_.traits()).value();
    flops_ = programs.train.program.flops;
    session_ = std::make_unique<Session>(std::move(programs), backend_);
    session_->initialize(1);
    if (backend_.supports_resident_rows() && bench::ResidentRowsOf::are_resident(m)) {
      const bench::ResidentRowsOf rows(m, kBatches * batch, backend_.alignment());
      session_->make_resident(rows.source());
      for (int64_t b = 0; b < kBatches; ++b) samples_.push_back(rows.samples(b, batch));
    } else {
      for (int64_t b = 0; b < kBatches; ++b) add_input(m.interface, static_cast<uint64_t>(b));
      for (int64_t t = 0; t < kTargets; ++t) add_target(m.interface, static_cast<uint64_t>(t));
    }
    session_->run_step(next_inputs());  // alone, like a job's first step
    run(0.1);                           // touches memory and wakes threads
  }

  /// Returns the samples per second over at least `seconds`, from the initial weights and optimizer
  /// state.
  double run(double seconds) {
    session_->initialize(1);
    step_ = 0;
    const Steady::time_point start = Steady::now();
    const int64_t together = session_->together(kStepsTogetherMax);
    // As in the training loop, the next steps are submitted before these results are read.
    const int64_t ahead = session_->runs_ahead() ? together : 0;
    int64_t steps = 0, finished = 0;
    do {
      session_->begin_steps(together, [&] { return next_inputs(); });
      steps += together;
      for (; steps - finished > ahead; ++finished) loss_ = session_->finish_step().loss;
    } while (seconds_since(start) < seconds);
    for (; finished < steps; ++finished) loss_ = session_->finish_step().loss;
    return static_cast<double>(steps * batch_) / seconds_since(start);
  }

  /// Returns the seconds of one step of a recording alone, of at most `replays` replays in about
  /// `seconds`; nothing if the backend does not record. The weights change.
  std::optional<double> replay(int64_t replays, double seconds) {
    Recording* const steps = backend_.recording();
    if (steps == nullptr) return std::nullopt;
    const auto time = [&](int64_t count) {
      const Steady::time_point start = Steady::now();
      for (int64_t i = 0; i < count; ++i) steps->replay();
      backend_.synchronize();
      return seconds_since(start) / static_cast<double>(count);
    };
    const auto enough = static_cast<int64_t>(seconds / time(3));
    return time(std::clamp(enough, std::min<int64_t>(replays, 3), replays)) /
           static_cast<double>(steps_together());
  }
  int64_t steps_together() const { return session_->together(kStepsTogetherMax); }

  StepProfile profile(double seconds) {
    const auto next = [&] { return next_inputs(); };
    return profile_steps(*session_, backend_, next, {.steps_max = 100, .seconds = seconds}, {})
        .value();
  }

  /// Returns the GFLOP per sample: all multiplications and additions that the plan counts.
  double gflop_per_sample() const {
    return static_cast<double>(flops_) / static_cast<double>(batch_) * 1e-9;
  }
  /// Returns the loss of the last step of run(), and the number of steps.
  float loss() const { return loss_; }
  int64_t steps() const { return step_; }
  int64_t planned_bytes() const { return session_->arena_planned_bytes(); }
  int64_t used_bytes() const { return session_->arena_used_bytes(); }

 private:
  void add_input(const ModelInterface& interface, uint64_t b) {
    const auto values = static_cast<size_t>(batch_ * interface.input.elements());
    std::vector<std::byte>& input = inputs_.emplace_back(values * 4);  // floats or tokens
    for (size_t i = 0; i < values; ++i) {
      const uint32_t random = math::philox_u32(1, 1, b, i);
      if (interface.vocabulary > 0) {  // without padding, which is token 0
        const auto token =
            static_cast<int32_t>(1 + random % static_cast<uint64_t>(interface.vocabulary - 1));
        std::memcpy(input.data() + 4 * i, &token, 4);
      } else {
        const float value = math::uniform01<float>(random);
        std::memcpy(input.data() + 4 * i, &value, 4);
      }
    }
  }

  void add_target(const ModelInterface& interface, uint64_t t) {
    const bool next_token = interface.target == TargetForm::kNextToken;
    std::vector<int32_t>& target =
        targets_.emplace_back(static_cast<size_t>(batch_ * (next_token ? interface.input[0] : 1)));
    for (size_t i = 0; i < target.size(); ++i) {
      target[i] = static_cast<int32_t>(math::philox_u32(1, 2, t, i) %
                                       static_cast<uint64_t>(interface.outputs));
    }
  }

  Session::StepInputs next_inputs() {
    const auto b = static_cast<size_t>(step_ % kBatches);
    Session::StepInputs inputs;
    if (samples_.empty()) {
      inputs.input = inputs_[b];
      inputs.target = std::as_bytes(std::span(targets_[static_cast<size_t>(step_ % kTargets)]));
    } else {
      inputs.samples = samples_[b];
    }
    inputs.step = step_++;
    inputs.learning_rate = 0.01f;
    return inputs;
  }

  int64_t batch_;
  std::unique_ptr<Backend> device_;
  RecordingBackend backend_;
  std::unique_ptr<Session> session_;
  int64_t flops_ = 0;
  int64_t step_ = 0;
  float loss_ = 0;
  std::vector<std::vector<std::byte>> inputs_;
  std::vector<std::vector<int32_t>> targets_;
  std::vector<std::vector<kernels::ResidentSample>> samples_;
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

/// On a GPU, algorithms are chosen as in `local run`.
std::unique_ptr<Backend> open_device(const std::string& device, int threads) {
  auto backend = open_backend(device, threads).value();
  backend->use_algorithms(
      std::make_shared<Algorithms>(Algorithms::Options{local_algorithms_folder().value()}));
  return backend;
}

const char* name_of_loops() {
  switch (kernels::cpu::best_isa()) {
    case kernels::cpu::Isa::kAvx512:
      return "avx512";
    case kernels::cpu::Isa::kAvx2:
      return "avx2";
    case kernels::cpu::Isa::kBaseline:
      break;
  }
  return "baseline";
}

/// Serves on `device`, a GPU by name, or on the CPU with the threads that each line requests.
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
      int vector_bits = 0;
      in >> threads >> vector_bits;
      std::printf("{\"gflops\": %.2f, \"loops\": \"%s\"}\n",
                  kernels::cpu::measure_peak_gflops(threads, vector_bits), name_of_loops());
      std::fflush(stdout);
      continue;
    }
    in >> batch >> threads >> seconds;
    auto& c = cases[{model, batch, threads}];
    if (c == nullptr) {
      c = std::make_unique<Case>(model, batch, open_device(device, threads), precision);
    }
    const double rate = c->run(seconds);
    const nlohmann::ordered_json answer = {{"samples_per_second", rate},
                                           {"steps", c->steps()},
                                           {"loss", c->loss()},  // null if it is not finite
                                           {"gflop_per_sample", c->gflop_per_sample()},
                                           {"planned_bytes", c->planned_bytes()},
                                           {"used_bytes", c->used_bytes()}};
    std::printf("%s\n", answer.dump().c_str());
    std::fflush(stdout);
  }
}

// Returns the largest resident memory of the process in bytes, as counted by the kernel.
int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

void print_memory(const std::string& model, int64_t batch, Precision precision) {
  const int64_t before = peak_resident_bytes();
  Case c(model, batch, make_cpu_backend(2), precision);
  c.run(0);
  c.run(0);
  std::printf("{\"before_bytes\": %lld, \"peak_bytes\": %lld, \"planned_bytes\": %lld}\n",
              static_cast<long long>(before), static_cast<long long>(peak_resident_bytes()),
              static_cast<long long>(c.planned_bytes()));
}

struct OneModel {
  std::string model, device = "cpu", precision = "fp32", profile_json;
  int64_t batch = 0, replays = 0;
  double seconds = 1;
};

/// Throws the exceptions of std::stod and std::stoll for an invalid number.
std::optional<OneModel> parse_one_model(const std::vector<std::string>& arguments) {
  if (arguments.size() < 3 || arguments[0] != "--model") return std::nullopt;
  OneModel one;
  one.model = arguments[1];
  one.batch = std::stoll(arguments[2]);
  for (size_t i = 3; i < arguments.size(); i += 2) {
    if (i + 1 == arguments.size()) return std::nullopt;
    const std::string &name = arguments[i], &value = arguments[i + 1];
    if (name == "--device") {
      one.device = value;
    } else if (name == "--precision") {
      one.precision = value;
    } else if (name == "--seconds") {
      one.seconds = std::stod(value);
    } else if (name == "--replay") {
      one.replays = std::stoll(value);
    } else if (name == "--profile-json") {
      one.profile_json = value;
    } else {
      return std::nullopt;
    }
  }
  return one;
}

int measure(const OneModel& one, Precision precision) {
  Case c(one.model, one.batch, open_device("devices/" + one.device, usable_cores()), precision);
  nlohmann::ordered_json line = {{"model", one.model},
                                 {"batch", one.batch},
                                 {"precision", one.precision},
                                 {"device", one.device}};
  const double rate = c.run(one.seconds);
  line["samples_per_second"] = rate;
  line["step_us"] = 1e6 * static_cast<double>(one.batch) / rate;
  line["steps_together"] = c.steps_together();
  if (one.replays > 0) {
    const std::optional<double> replay = c.replay(one.replays, one.seconds);
    line["replay_us"] = replay.has_value() ? nlohmann::ordered_json(*replay * 1e6) : nullptr;
  }
  line["gflop_per_sample"] = c.gflop_per_sample();
  line["planned_bytes"] = c.planned_bytes();
  line["used_bytes"] = c.used_bytes();
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
  if (one.profile_json.empty()) return 0;
  std::ofstream file(one.profile_json);
  file << profile_json(c.profile(one.seconds), one.batch) << "\n";
  if (file.flush()) return 0;
  std::fprintf(stderr, "%s cannot be written\n", one.profile_json.c_str());
  return 1;
}

int run_one_model(const std::vector<std::string>& arguments) {
  const std::optional<OneModel> one = parse_one_model(arguments);
  const auto precision = find_precision(one.has_value() ? one->precision : "fp32");
  if (!one.has_value() || !precision.has_value()) {
    std::fprintf(stderr,
                 "train_bench: expected --model MODEL BATCH [--device cpu|gpu-N] [--precision "
                 "fp32|tf32|bf16|fp16] [--seconds S] [--replay N] [--profile-json FILE]\n");
    return 2;
  }
  return measure(*one, *precision);
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const int precision_at = mode == "--memory" ? 4 : 3;
  const auto precision =
      trainyard::find_precision(argc > precision_at ? argv[precision_at] : "fp32");
  if (mode == "--model") {
    return trainyard::run_one_model(std::vector<std::string>(argv + 1, argv + argc));
  }
  if ((mode == "--serve" || mode == "--memory") && !precision.has_value()) {
    std::fprintf(stderr, "precision: expected fp32, tf32, bf16 or fp16\n");
    return 2;
  }
  if (mode == "--serve") {
    trainyard::serve(std::string("devices/") + (argc > 2 ? argv[2] : "cpu"), *precision);
  } else if (mode == "--memory" && argc > 3) {
    trainyard::print_memory(argv[2], std::atoll(argv[3]), *precision);
  } else {
    trainyard::print_table(argc > 1 ? std::atof(argv[1]) : 2.0);
  }
  return 0;
}
