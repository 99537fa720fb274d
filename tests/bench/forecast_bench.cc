// Measures the accuracy of forecasts: of a step's time before the first step, by measured rates,
// and by a job's first 20 steps. The CPU's rates are measured first, then each preset and batch
// size is forecast and runs.
//
//   forecast_bench [--threads N] [--seconds S] [--rounds R] [--cpu-time] [--calibrate S]
//                  [--rates FILE] [--save-rates FILE] [--only MODEL] [--ops]
//
// Each case runs at least 30 steps, or S seconds (1). In every round the rates are measured again
// and all cases are run, to detect changes of the machine's speed. --cpu-time, with --threads 1,
// measures CPU time instead, for a machine with other load; waiting for memory is included. --rates
// uses the rates of an earlier run. --ops prints the forecast and measured times of a case's step
// by op.
//
// A step comprises, as in the training loop: batch in, forward, backward, update, loss and logits
// out.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/base/cores.h"
#include "src/calibration/calibrate.h"
#include "src/calibration/drawn_values.h"
#include "src/calibration/step_profile.h"
#include "src/forecast/forecast.h"
#include "src/job/recipe.h"
#include "src/runtime/forwarding_backend.h"
#include "src/train/session.h"
#include "tests/bench/bench_models.h"

namespace trainyard {
namespace {

constexpr double kStepSecondsMax = 2;
constexpr size_t kStepsMin = 30, kFirstSteps = 20;

struct Options {
  int threads = usable_cores();
  double seconds = 1, calibrate_seconds = 3;
  int rounds = 1;
  bool cpu_time = false, ops = false;
  std::string rates, save_rates, only;
};

double now(bool cpu_time) {
  timespec t{};
  ::clock_gettime(cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

class CpuStopwatch final : public Stopwatch {
 public:
  void mark() override { points_.push_back(now(true)); }
  std::vector<double> take() override {
    std::vector<double> seconds;
    for (const double point : points_) seconds.push_back(point - points_.front());
    points_.clear();
    return seconds;
  }

 private:
  std::vector<double> points_;
};

class CpuTimeBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  std::unique_ptr<Stopwatch> make_stopwatch() override { return std::make_unique<CpuStopwatch>(); }
};

std::unique_ptr<Backend> open_cpu(const Options& options) {
  std::unique_ptr<Backend> cpu = make_cpu_backend(options.threads);
  if (!options.cpu_time) return cpu;
  return std::make_unique<CpuTimeBackend>(std::move(cpu));
}

struct Case {
  std::string model;
  int64_t batch = 0;
};
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"mlp", 16},
      {"mlp", 64},
      {"mlp", 256},
      {"mlp", 1024},
      {"mlp_small", 32},
      {"mlp_small", 128},
      {"lenet5", 16},
      {"lenet5", 64},
      {"lenet5", 256},
      {"resnet18", 2},
      {"resnet18", 16},
      {"resnet18", 64},
      {"resnet34", 8},
      {"resnet50", 2},
      {"resnet50", 8},
      {"resnet18:64", 4},
      {"resnet18:224", 1},
      {"vgg11", 8},
      {"gpt2_mini", 1},
      {"gpt2_mini", 4},
      {"vit_tiny", 2},
      {"vit_tiny", 16},
      {"transformer_classifier", 4},
      {"transformer_classifier", 64},
      {"lstm_classifier", 8},
      {"lstm_classifier", 64},
      {"text_cnn", 8},
      {"text_cnn", 64},
      {"embedding_bag_classifier", 16},
      {"embedding_bag_classifier", 256},
      {"autoencoder", 8},
      {"autoencoder", 64},
  };
  return all;
}

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(std::lround(share * static_cast<double>(values.size() - 1)))];
}

class Training {
 public:
  Training(const Case& c, const Options& options) : options_(options), device_(open_cpu(options)) {
    const bench::BenchModel m = bench::bench_model(c.model);
    Recipe recipe;
    recipe.batch_size = c.batch;
    recipe.optimizer = m.optimizer;
    RunPrograms programs;
    programs.train =
        compile_training(m.model, recipe, m.interface, c.batch, device_->traits()).value();
    const Graph& graph = programs.train.program.graph;
    input_ = draw_values(graph.tensor(programs.train.input), 1, m.interface.vocabulary, 0);
    if (programs.train.target != kNoTensor) {  // otherwise the input is the target
      target_ = draw_values(graph.tensor(programs.train.target), 1, m.interface.outputs, 1);
    }
    nodes_ = node_workloads(programs.train.program);
    work_ = step_work({{&programs.train.program, 1}},
                      static_cast<double>(input_.size() + target_.size()));
    profiled_ = std::make_unique<ProfilingBackend>(*device_);
    session_ = std::make_unique<Session>(std::move(programs), *profiled_);
    session_->initialize(1);
  }
  const StepWork& work() const { return work_; }

  /// Returns the seconds of each step, without the first one, which touches memory for the first
  /// time.
  std::vector<double> run() {
    step();
    std::vector<double> seconds;
    const double begin = now(false);
    while (seconds.size() < kStepsMin || now(false) - begin < options_.seconds) {
      seconds.push_back(step());
    }
    return seconds;
  }
  void print_ops(const RateModel& rates) {
    std::map<size_t, std::vector<double>> seconds;
    for (int i = 0; i < 15; ++i) {
      profiled_->begin();
      step();
      for (const NodeRun& run : profiled_->end())
        seconds[run.node].push_back(run.end_s - run.begin_s);
    }
    std::map<std::string, std::pair<double, double>> ops;
    for (auto& [node, values] : seconds) {
      auto& [forecast, measured] = ops[nodes_[node].op];
      measured += percentile(values, 0.3);
      if (const auto time = rates.time(nodes_[node])) forecast += time->seconds;
    }
    for (const auto& [op, times] : ops) {
      std::printf("    %-32s %10.1f us  measured %10.1f us\n", op.c_str(), times.first * 1e6,
                  times.second * 1e6);
    }
  }

 private:
  double step() {
    const double begin = now(options_.cpu_time);
    session_->run_step({input_, target_, step_++, 1e-4F});
    return now(options_.cpu_time) - begin;
  }
  const Options& options_;
  std::unique_ptr<Backend> device_;
  std::unique_ptr<ProfilingBackend> profiled_;
  std::unique_ptr<Session> session_;
  std::vector<std::byte> input_, target_;
  std::vector<NodeWorkload> nodes_;
  StepWork work_;
  int64_t step_ = 0;
};

DeviceRates measured_rates(const Options& options) {
  if (!options.rates.empty()) {
    std::ifstream file(options.rates);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    return parse_rates(text).value();
  }
  const std::unique_ptr<Backend> device = open_cpu(options);
  DeviceRates rates = calibrate(*device, {.seconds_max = options.calibrate_seconds}).value();
  if (!options.save_rates.empty()) std::ofstream(options.save_rates) << to_json_text(rates);
  return rates;
}

struct Errors {
  std::vector<double> before, after, before_or_spread, after_or_spread;
  int64_t in_range = 0;
};

/// Prints the forecast's error, and the distance between the quartiles of the run itself.
void run_case(const Case& c, const RateModel& rates, const Options& options, Errors& errors) {
  Training training(c, options);
  const Result<StepForecast> forecast = forecast_step(training.work(), rates);
  if (!forecast.ok()) {
    std::printf("%-26s %5lld  %s\n", c.model.c_str(), static_cast<long long>(c.batch),
                forecast.error().message.c_str());
    return;
  }
  const TimeRange& time = forecast->time;
  if (time.seconds > kStepSecondsMax) return;
  const std::vector<double> steps = training.run();
  const double measured = percentile(steps, 0.5);
  const double spread = (percentile(steps, 0.75) - percentile(steps, 0.25)) / measured;
  const std::vector<double> first(steps.begin(), steps.begin() + kFirstSteps),
      rest(steps.begin() + kFirstSteps, steps.end());
  const double before = std::abs(time.seconds / measured - 1);
  const double later = percentile(rest, 0.5);
  const double after = std::abs(percentile(first, 0.5) / later - 1);
  errors.before.push_back(before);
  errors.after.push_back(after);
  errors.before_or_spread.push_back(std::max(0.0, before - spread));
  errors.after_or_spread.push_back(after <= spread ? 0 : after);
  errors.in_range += measured >= time.low && measured <= time.high ? 1 : 0;
  std::printf("%-26s %5lld %10.3f [%9.3f %9.3f] %10.3f %7.1f%% %6.1f%% %6.1f%%  %s\n",
              c.model.c_str(), static_cast<long long>(c.batch), time.seconds * 1e3, time.low * 1e3,
              time.high * 1e3, measured * 1e3, 100 * (time.seconds / measured - 1), 100 * spread,
              100 * after, std::string(name_of(forecast->limited_by)).c_str());
  if (options.ops) training.print_ops(rates);
  std::fflush(stdout);
}

void run(const Options& options) {
  Errors errors;
  for (int round = 0; round < options.rounds; ++round) {
    const RateModel rates(measured_rates(options));
    std::printf("rates of %zu nodes measured in %.2f s, %d threads%s: %.1f GFLOP/s, %.1f GB/s\n",
                rates.rates().samples.size(), rates.rates().measure_seconds, options.threads,
                options.cpu_time ? ", the thread's processor time" : "",
                rates.flops_per_second() * 1e-9, rates.bytes_per_second() * 1e-9);
    std::printf("%-26s %5s %10s %21s %10s %8s %7s %7s  %s\n", "model", "batch", "forecast", "range",
                "measured", "error", "spread", "20", "limited by");
    for (const Case& c : cases()) {
      if (options.only.empty() || options.only == c.model) run_case(c, rates, options, errors);
    }
  }
  const auto print = [](const char* what, const std::vector<double>& values) {
    std::printf("%-44s median %5.1f%%  95th percentile %5.1f%%\n", what,
                100 * percentile(values, 0.5), 100 * percentile(values, 0.95));
  };
  std::printf("\n%zu runs, milliseconds; %lld within the forecast's range\n", errors.before.size(),
              static_cast<long long>(errors.in_range));
  print("error before the first step", errors.before);
  print("  beyond the run's own spread", errors.before_or_spread);
  print("error after 20 steps", errors.after);
  print("  of those beyond the run's own spread", errors.after_or_spread);
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--cpu-time") {
      o.cpu_time = true;
    } else if (name == "--ops") {
      o.ops = true;
    } else if (i + 1 == argc) {
      throw std::invalid_argument(name + " is not known or has no value");
    } else if (const std::string value = argv[++i]; name == "--threads") {
      o.threads = std::stoi(value);
    } else if (name == "--seconds") {
      o.seconds = std::stod(value);
    } else if (name == "--calibrate") {
      o.calibrate_seconds = std::stod(value);
    } else if (name == "--rounds") {
      o.rounds = std::stoi(value);
    } else if (name == "--rates") {
      o.rates = value;
    } else if (name == "--save-rates") {
      o.save_rates = value;
    } else if (name == "--only") {
      o.only = value;
    } else {
      throw std::invalid_argument(name + " is not known");
    }
  }
  if (o.cpu_time && o.threads != 1) throw std::invalid_argument("--cpu-time needs --threads 1");
  return o;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  try {
    trainyard::run(trainyard::parse(argc, argv));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "forecast_bench: %s\n", e.what());
    return 2;
  }
}
