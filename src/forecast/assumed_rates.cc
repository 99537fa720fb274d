#include "src/forecast/assumed_rates.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace trainyard {
namespace {

/// One number out of the range that is assumed for it.
struct Assumption {
  double likely, best, worst;
};
// Shares of a peak rate that kernels reach. The model of steps on an H100
// (tests/bench/step_model.h) is within these ranges; other GPUs are assumed to be alike.
constexpr Assumption kProductShare = {0.5, 0.85, 0.15};
constexpr Assumption kConvolutionShare = {0.3, 0.7, 0.08};
constexpr Assumption kOtherShare = {0.3, 0.8, 0.1};  // of F32 outside products
constexpr Assumption kMemoryShare = {0.7, 0.95, 0.3};
// The share of a node's bytes that are in a cache by their distance (step_work.cc), but that a GPU
// reads from memory nevertheless: its caches have 4 to 126 MB.
constexpr Assumption kCacheMissShare = {0.5, 0, 1};
// The time between the kernels of a recorded step. On an H100 it was 1.6 to 2.3 us
// (tests/bench/results/gpu_h100_2026-11-22).
constexpr Assumption kLaunchSeconds = {3e-6, 1.8e-6, 10e-6};
// The time of a step outside of its nodes: its inputs, its results and its submission.
constexpr Assumption kStepSeconds = {20e-6, 4e-6, 150e-6};
// From the start of the process to the first step, with CUDA's context, the libraries' code and the
// timing of algorithms.
constexpr Assumption kStartSeconds = {5, 2, 20};
constexpr Assumption kPrepareSeconds = {2e-3, 0.3e-3, 20e-3};  // for each node
// A tile of a product, which one multiprocessor computes, and the part of a sum that justifies to
// split it between several of them.
constexpr double kTile = 64, kSplit = 256;

/// The assumptions of one outcome.
using Choice = double Assumption::*;

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }
bool is_convolution(std::string_view op) { return contains(op, "Conv"); }
bool is_attention(std::string_view op) { return op.starts_with("Attention"); }
bool is_product(std::string_view op) {
  return contains(op, "Gemm") || op.starts_with("MatMul") || op.starts_with("SampledSoftmax") ||
         op.starts_with("LSTM") || op.starts_with("GRU");
}

/// Returns the share of the multiprocessors that have work: a small product has few tiles.
double filled_share(const NodeWorkload& node, double multiprocessors) {
  if (node.m <= 0) return 1;
  const double tiles = std::ceil(node.m / kTile) * std::ceil(node.n / kTile) *
                       std::max(1.0, std::floor(node.k / kSplit));
  return std::min(1.0, tiles / multiprocessors);
}

/// Returns the FLOP/s that the node reaches.
double flops_of(const NodeWorkload& node, const AssumedRates& rates, Choice of) {
  if (is_attention(node.op)) return rates.attention_flops * kProductShare.*of;
  const bool convolution = is_convolution(node.op);
  if (!convolution && !is_product(node.op)) return rates.f32_flops * kOtherShare.*of;
  return rates.product_flops * (convolution ? kConvolutionShare : kProductShare).*of *
         filled_share(node, rates.multiprocessors);
}

/// The seconds of a step by what they are spent on.
struct Parts {
  double launch = 0, compute = 0, memory = 0;
  double all() const { return launch + compute + memory; }
};

Parts parts_of(const StepWork& work, const AssumedRates& rates, Choice of) {
  Parts parts;
  const double memory = rates.memory_bytes * kMemoryShare.*of;
  for (const auto& [node, count] : work.items) {
    if (node.op == kViewOp) continue;
    const double bytes =
        node.memory_bytes + kCacheMissShare.*of * std::max(0.0, node.bytes - node.memory_bytes);
    const double computes = node.flops / flops_of(node, rates, of), moves = bytes / memory;
    (computes >= moves ? parts.compute : parts.memory) += count * std::max(computes, moves);
    parts.launch += count * node.serial * kLaunchSeconds.*of;
  }
  parts.launch += work.steps_of_host * kStepSeconds.*of;
  return parts;
}

TimeRange range_of(const StepWork& work, const AssumedRates& rates) {
  return {parts_of(work, rates, &Assumption::likely).all(),
          parts_of(work, rates, &Assumption::best).all(),
          parts_of(work, rates, &Assumption::worst).all()};
}

TimeRange range_of(const Assumption& seconds) {
  return {seconds.likely, seconds.best, seconds.worst};
}

}  // namespace

StepForecast forecast_step(const StepWork& work, const AssumedRates& rates) {
  const Parts parts = parts_of(work, rates, &Assumption::likely);
  StepForecast forecast;
  forecast.time = range_of(work, rates);
  forecast.limited_by = parts.compute >= parts.launch && parts.compute >= parts.memory
                            ? Limit::kCompute
                        : parts.memory >= parts.launch ? Limit::kMemory
                                                       : Limit::kLaunches;
  return forecast;
}

RunForecast forecast_run(const RunWork& work, const AssumedRates& rates,
                         double rows_per_second_possible) {
  const StepForecast step = forecast_step(work.step, rates);
  RunForecast run;
  run.step = step.time;
  run.limited_by = step.limited_by;
  const auto rows = static_cast<double>(work.batch_size);
  run.rows_per_second_needed = rows / step.time.seconds;
  if (!work.row.kind.empty() && rows_per_second_possible > 0) {
    run.rows_per_second_possible = rows_per_second_possible;
    const double batch = rows / rows_per_second_possible;
    if (batch > run.step.seconds) run.limited_by = Limit::kData;
    for (double* seconds : {&run.step.seconds, &run.step.low, &run.step.high}) {
      *seconds = std::max(*seconds, batch);
    }
  }
  TimeRange start = range_of(kPrepareSeconds) * static_cast<double>(work.nodes);
  start += range_of(kStartSeconds);
  run.total = total_time(work, run.step, range_of(work.evaluation, rates),
                         2 * work.checkpoint_bytes / rates.memory_bytes, start);
  run.start_seconds = start.seconds;
  return run;
}

}  // namespace trainyard
