#include "tests/bench/gpu_forecast.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "src/calibration/calibrate_probes.h"
#include "src/forecast/assumed_rates.h"
#include "src/planning/gpu_comparison.h"

namespace trainyard::bench {
namespace {

/// Steps that were not timed on a GPU, with sizes between and beyond those of the probes.
constexpr std::pair<const char*, int> kOthers[] = {{"resnet34:224", 64},
                                                   {"resnet50:160", 48},
                                                   {"resnet18:64", 128},
                                                   {"vgg13:128", 32},
                                                   {"gpt2_small:512", 6},
                                                   {"gpt2_mini", 8},
                                                   {"vit_tiny:224", 64},
                                                   {"vit_small:96", 256},
                                                   {"mlp", 4096},
                                                   {"lenet5", 2048},
                                                   {"text_cnn", 512},
                                                   {"lstm_classifier", 32},
                                                   {"embedding_bag_classifier", 1024},
                                                   {"transformer_classifier", 16}};

double all_us(const TimeByBasis& us) { return std::accumulate(us.begin(), us.end(), 0.0); }

/// Returns the kernels with their times, in the order of the program; the kernels of a group count
/// as one.
std::vector<RateSample> timed_nodes(const Program& program, const StepCount& count,
                                    const AlgorithmTimes& times) {
  const std::vector<NodeWorkload> nodes = node_workloads(program);
  std::vector<RateSample> samples;
  size_t next = 0;
  for (const NodeCount& kernel : count.nodes) {
    const auto members = static_cast<size_t>(kernel.members);
    if (next + members > nodes.size()) break;  // the update program is not part of these steps
    RateSample sample{nodes[next], all_us(node_us(kernel, times)) * 1e-6};
    for (size_t i = 1; i < members; ++i) sample.node += nodes[next + i];
    next += members;
    if (sample.seconds > 0) samples.push_back(std::move(sample));
  }
  return samples;
}

/// Returns the time of a step outside its nodes.
double rest_seconds(const StepPrediction& step, const StepCount& count,
                    const AlgorithmTimes& times) {
  double us = step.ms() * 1e3;
  for (const NodeCount& kernel : count.nodes) us -= all_us(node_us(kernel, times));
  return std::max(us, 0.0) * 1e-6;
}

double input_bytes(const BoundProgram& train) {
  const Graph& graph = train.program.graph;
  double bytes = static_cast<double>(graph.tensor(train.input).type.bytes());
  if (train.target != kNoTensor) {
    bytes += static_cast<double>(graph.tensor(train.target).type.bytes());
  }
  return bytes;
}

/// Returns the rates that calibrate() would measure.
DeviceRates rates_of(Precision precision, const AlgorithmTimes& times) {
  constexpr double kShortStep = 5e-3;
  DeviceRates rates;
  for (Probe& probe : calibration_probes(Processor::kGpu)) {
    if (probe.recipe.accumulate_steps > 1 || probe.recipe.ema_decay > 0) continue;
    probe.recipe.precision = precision;
    RunPrograms programs = compile_for_gpu(probe.model, probe.recipe, probe.interface);
    const Program program = programs.train.program;
    const double bytes = input_bytes(programs.train);
    const StepCount count = count_step(std::move(programs), probe.recipe.batch_size);
    const StepPrediction step = predict(count, times);
    for (RateSample& s : timed_nodes(program, count, times)) rates.samples.push_back(std::move(s));
    if (step.ms() * 1e-3 > kShortStep) continue;
    NodeWorkload host;
    host.op = kStepOp;
    host.bytes = bytes;
    if (const double rest = rest_seconds(step, count, times); rest > 0) {
      rates.samples.push_back({host, rest});
    }
  }
  return rates;
}

}  // namespace

std::vector<ForecastRow> forecast_rows(const AlgorithmTimes& times) {
  std::vector<MeasuredRow> steps(measured_rows().begin(), measured_rows().end());
  for (const auto& [model, batch] : kOthers) {
    for (const char* precision : {"bf16", "tf32", "fp32"}) {
      steps.push_back({model, batch, precision, 0, 0, 0});
    }
  }
  const KnownGpu& h100 = *find_known_gpus("h100", "").value().front();
  std::map<std::string_view, RateModel> rates;
  std::vector<ForecastRow> rows;
  for (const MeasuredRow& of : steps) {
    const Precision precision = *find_precision(of.precision);
    if (!rates.contains(of.precision)) {
      rates.emplace(of.precision, RateModel(rates_of(precision, times)));
    }
    const StepCase step{std::string(of.model), of.batch, precision};
    const RunPrograms programs = compile_case(step);
    const StepWork work =
        step_work({{&programs.train.program, 1}}, input_bytes(programs.train), Processor::kGpu);
    const Result<StepForecast> forecast = forecast_step(work, rates.at(of.precision));
    if (!forecast.ok()) throw std::runtime_error(step.model + ": " + forecast.error().message);
    rows.push_back({of, forecast->time, forecast_step(work, assumed_rates_of(h100, precision)).time,
                    predict(count_step(step), times).ms() * 1e-3});
  }
  return rows;
}

}  // namespace trainyard::bench
