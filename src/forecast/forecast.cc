#include "src/forecast/forecast.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "src/base/text.h"

namespace trainyard {
namespace {

constexpr double kNineOfTen = 1.645;  // standard deviations on either side that include 90 %
// The standard deviation, relative to a step's time, of errors that nodes' rates do not cover. It
// is larger on a GPU, since its libraries choose the algorithm by size, so that a time measured at
// one size says less about another size.
constexpr double kStepSpreadLeast = 0.04, kStepSpreadLeastGpu = 0.1;

TimeRange range_of(double seconds, double spread) {
  return {seconds, seconds * std::exp(-kNineOfTen * spread),
          seconds * std::exp(kNineOfTen * spread)};
}

NodeWorkload pseudo(std::string_view op, double bytes) {
  NodeWorkload node;
  node.op = op;
  node.bytes = bytes;
  return node;
}

/// Returns the loader's time for one row; nullopt if it is unknown.
std::optional<double> row_seconds(const RowWork& row, const RateModel& rates) {
  if (row.kind.empty()) return std::nullopt;
  const std::optional<NodeTime> time = rates.time(pseudo(row.kind, row.numbers));
  return time ? std::optional(time->seconds) : std::nullopt;
}

/// Returns the time to copy so many bytes in memory; 0 if the bandwidth is unknown.
double copy_seconds(double bytes, const RateModel& rates) {
  return rates.bytes_per_second() > 0 ? 2 * bytes / rates.bytes_per_second() : 0;
}

int64_t evaluated_batches(const RunWork& work) {
  return work.evaluations * work.evaluation_batches + work.last_evaluation_batches;
}

/// A link with one assumed speed out of the range of a LinkRates.
struct Link {
  double seconds_per_exchange = 0, bytes_per_second = 0;

  double seconds(const LinkWork& work) const {
    return work.exchanges * seconds_per_exchange + work.bytes / bytes_per_second;
  }
};

/// Returns the link over which a step sends; null if it sends nothing or its ranks read each
/// other's memory.
const LinkRates* link_of(const StepWork& work) {
  const auto any = [](const LinkWork& link) { return link.exchanges > 0 || link.bytes > 0; };
  if (!any(work.sent_overlapped) && !any(work.sent_exposed)) return nullptr;
  const bool on_gpus = work.processor == Processor::kGpu;
  if (work.over_network) return on_gpus ? &kAssumedGpuNetwork : &kAssumedCpuNetwork;
  return on_gpus ? &kAssumedLink : nullptr;
}

/// Returns the time that exchanges add to a step: all of those that it waits for, and the part of
/// the overlapping ones that exceeds `hidden_seconds_max` of computation.
double exposed_seconds(const StepWork& work, const Link& link, double hidden_seconds_max) {
  return link.seconds(work.sent_exposed) +
         std::max(0.0, link.seconds(work.sent_overlapped) - hidden_seconds_max);
}

}  // namespace

TimeRange& TimeRange::operator+=(const TimeRange& other) {
  seconds += other.seconds;
  low += other.low;
  high += other.high;
  return *this;
}

TimeRange operator*(TimeRange range, double factor) {
  return {range.seconds * factor, range.low * factor, range.high * factor};
}

std::string_view name_of(Limit limit) {
  switch (limit) {
    case Limit::kCompute:
      return "compute";
    case Limit::kMemory:
      return "memory bandwidth";
    case Limit::kLaunches:
      return "launches";
    case Limit::kData:
      return "data";
    case Limit::kExchanges:
      return "exchanges";
    case Limit::kUnknown:
      break;
  }
  return "";
}

void RunWork::spread_over_nodes() {
  if (step.over_network) return;
  step.over_network = evaluation.over_network = true;
  step.digest += "/nodes";  // their measured times do not apply to steps inside one node
}

std::string assumed_link(const StepWork& work) {
  const LinkRates* const link = link_of(work);
  if (link == nullptr) return "";
  const auto number = [](double bytes_per_second) { return short_number(bytes_per_second / 1e9); };
  return std::string(work.over_network ? "the network between its nodes"
                                       : "the link between its GPUs") +
         " is not measured: " + number(link->bytes_per_second) + " GB/s are assumed, " +
         number(link->bytes_per_second_least) + " to " + number(link->bytes_per_second_most) +
         " in the ranges";
}

StepBound bound_step(const StepWork& work, const RateModel& rates) {
  if (rates.flops_per_second() <= 0 || rates.bytes_per_second() <= 0) return {};
  double compute = 0, memory = 0;  // seconds of the nodes limited by each
  for (const WorkItem& item : work.items) {
    const double computes = item.node.flops / rates.flops_per_second();
    const double moves = item.node.memory_bytes / rates.bytes_per_second();
    (computes >= moves ? compute : memory) += item.count * std::max(computes, moves);
  }
  return {compute + memory, compute >= memory ? Limit::kCompute : Limit::kMemory};
}

Result<StepForecast> forecast_step(const StepWork& work, const RateModel& rates) {
  double seconds = 0, launch = 0, memory = 0;
  // Standard deviations in seconds by op. The errors of an op's nodes add up, since they have the
  // same cause; those of different ops are independent.
  std::map<std::string_view, double> deviations;
  const auto add = [&](const NodeWorkload& node, double count) {
    if (node.op == kViewOp) return true;
    const std::optional<NodeTime> time = rates.time(node);
    if (!time) return false;
    seconds += count * time->seconds;
    launch += count * time->launch;
    memory += count * time->memory;
    deviations[node.op] += count * time->seconds * time->spread;
    return true;
  };
  for (const WorkItem& item : work.items) {
    if (!add(item.node, item.count)) {
      return make_error(ErrorCode::kNotFound, "RATE_UNKNOWN",
                        "no rate of " + item.node.op + " has been measured");
    }
  }
  const NodeWorkload host = pseudo(kStepOp, work.input_bytes);
  (void)add(host, 1);
  if (seconds <= 0) return make_error(ErrorCode::kNotFound, "RATE_UNKNOWN", "the step is empty");
  const double least = work.processor == Processor::kGpu ? kStepSpreadLeastGpu : kStepSpreadLeast;
  double square = least * least;
  for (const auto& [op, deviation] : deviations) {
    square += deviation * deviation / (seconds * seconds);
  }
  StepForecast forecast;
  forecast.time = range_of(seconds, std::sqrt(square));
  const double compute = seconds - launch - memory;
  forecast.limited_by = compute >= launch && compute >= memory ? Limit::kCompute
                        : memory >= launch                     ? Limit::kMemory
                                                               : Limit::kLaunches;
  if (const LinkRates* const link = link_of(work)) {
    TimeRange& time = forecast.time;
    const auto exposed_at = [&](double bytes_per_second, double hidden_seconds_max) {
      return exposed_seconds(work, {link->seconds_per_exchange, bytes_per_second},
                             hidden_seconds_max);
    };
    const double exposed = exposed_at(link->bytes_per_second, time.seconds / 2);
    if (exposed > time.seconds) forecast.limited_by = Limit::kExchanges;
    time += {exposed, exposed_at(link->bytes_per_second_most, time.low),
             exposed_at(link->bytes_per_second_least, 0)};
  }
  return forecast;
}

TimeRange total_time(const RunWork& work, const TimeRange& step, const TimeRange& evaluation,
                     double copy_seconds, const TimeRange& start) {
  TimeRange total = step * static_cast<double>(work.steps);
  total += evaluation * static_cast<double>(evaluated_batches(work));
  // Checkpoints at intervals of time cost up to 1 %. One is always written at the end.
  const double copies = copy_seconds * static_cast<double>(work.checkpoints + 1);
  const double paced = work.checkpoints > 0 ? 0 : 0.01 * total.seconds;
  total += {copies, copies, 2 * copies + paced};
  total += start;
  return total;
}

Result<RunForecast> forecast_run(const RunWork& work, const RateModel& rates,
                                 const std::optional<MeasuredSteps>& measured) {
  ASSIGN_OR_RETURN(const StepForecast step, forecast_step(work.step, rates));
  RunForecast run;
  run.step = measured ? measured->step : step.time;
  run.limited_by = step.limited_by;
  run.bound = bound_step(work.step, rates);
  const auto rows = static_cast<double>(work.batch_size);
  if (const std::optional<double> row = row_seconds(work.row, rates)) {
    run.rows_per_second_possible = 1 / *row;
    const double batch = rows * *row;
    if (batch > run.step.seconds) {
      run.limited_by = Limit::kData;
      if (!measured) run.step = run.step * (batch / run.step.seconds);
    }
  }
  run.rows_per_second_needed = rows / step.time.seconds;

  TimeRange evaluation;
  if (evaluated_batches(work) > 0) {
    ASSIGN_OR_RETURN(const StepForecast batch, forecast_step(work.evaluation, rates));
    evaluation = batch.time;
  }
  const double start = rates.rates().process_seconds +
                       rates.rates().prepare_seconds * static_cast<double>(work.nodes);
  run.total = total_time(work, run.step, evaluation, copy_seconds(work.checkpoint_bytes, rates),
                         {start, start / 2, 2 * start});
  run.start_seconds = start;
  return run;
}

}  // namespace trainyard
