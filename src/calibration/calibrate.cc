#include "src/calibration/calibrate.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "src/base/stop.h"
#include "src/calibration/calibrate_probes.h"
#include "src/calibration/drawn_values.h"
#include "src/data/load/loader.h"
#include "src/planning/programs.h"
#include "src/runtime/profiling_backend.h"
#include "src/train/session.h"

namespace trainyard {
namespace {

// The first step touches all memory for the first time. On a device that records and replays steps,
// the second step records and the third is the first replay.
constexpr int64_t kProbeWarmSteps = 1, kRecordedWarmSteps = 3;
constexpr int64_t kProbeStepsMin = 2, kProbeStepsMax = 8;
constexpr double kNetworkSeconds =
    0.05;  // seconds of steps per network, unless kProbeStepsMin steps take longer
constexpr double kShortStep =
    5e-3;  // seconds; only for shorter steps is the overhead between nodes measurable
constexpr int64_t kPercentOfRuns = 25;  // percentile of a node's run times that is its result

double elapsed_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Counts how many nodes each kernel runs.
class CountingBackend final : public ProfilingBackend {
 public:
  using ProfilingBackend::ProfilingBackend;
  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override {
    sizes_.push_back(1);
    return ProfilingBackend::prepare(graph, node);
  }
  std::unique_ptr<Kernel> prepare_group(const Graph& graph,
                                        std::span<const NodeId> nodes) override {
    std::unique_ptr<Kernel> group = ProfilingBackend::prepare_group(graph, nodes);
    if (group != nullptr) sizes_.push_back(nodes.size());
    return group;
  }
  const std::vector<size_t>& sizes() const { return sizes_; }

 private:
  std::vector<size_t> sizes_;
};

double low_percentile(std::vector<double> values) {
  const auto at = values.begin() + (std::ssize(values) - 1) * kPercentOfRuns / 100;
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

NodeWorkload joined(std::span<const NodeWorkload> nodes) {
  NodeWorkload all = nodes.front();
  for (const NodeWorkload& node : nodes.subspan(1)) all += node;
  return all;
}

class Calibration {
 public:
  Calibration(Backend& device, const CalibrateOptions& options)
      : device_(device), options_(options) {}

  Status measure(Probe network) {
    network.recipe.precision = options_.precision;
    ASSIGN_OR_RETURN(RunPrograms programs, compile_step(network.model, network.recipe,
                                                        network.interface, {}, device_.traits()));
    if (!check_kernels(programs, device_).ok()) return {};
    std::vector<NodeWorkload> nodes = node_workloads(programs.train.program);
    for (const auto* other : {&programs.update, &programs.average}) {
      if (!other->has_value()) continue;
      std::vector<NodeWorkload> more = node_workloads((*other)->program);
      nodes.insert(nodes.end(), std::make_move_iterator(more.begin()),
                   std::make_move_iterator(more.end()));
    }
    const Graph& graph = programs.train.program.graph;
    const int64_t parts = network.recipe.accumulate_steps;
    const auto input =
        draw_values(graph.tensor(programs.train.input), parts, network.interface.vocabulary, 0);
    std::vector<std::byte> target;  // empty: the model's target is its input
    if (programs.train.target != kNoTensor) {
      target =
          draw_values(graph.tensor(programs.train.target), parts, network.interface.outputs, 1);
    }
    const auto begin = std::chrono::steady_clock::now();
    CountingBackend backend(device_);
    Session session(std::move(programs), backend, parts);
    prepare_seconds_ += elapsed_since(begin);
    prepared_ += std::ssize(nodes);
    // All weights are zero; no kernel's time depends on their values.
    const std::unique_ptr<Stopwatch> stopwatch = device_.make_stopwatch();
    const auto run = [&](int64_t step) {  // measured with the stopwatch that also times the nodes
      stopwatch->mark();
      session.run_step({input, target, step, 1e-4F});
      stopwatch->mark();
      return stopwatch->take().back();
    };
    int64_t step = 0;
    while (step < (device_.runs_ahead() ? kRecordedWarmSteps : kProbeWarmSteps)) run(step++);

    std::vector<double> whole;
    std::vector<std::vector<double>> seconds(backend.sizes().size());
    const auto steps_begin = std::chrono::steady_clock::now();
    for (int64_t timed = 0; timed < kProbeStepsMax; ++timed) {
      if (timed >= kProbeStepsMin && elapsed_since(steps_begin) > kNetworkSeconds) break;
      backend.begin();
      const double step_seconds = run(step++);
      for (const NodeRun& node : backend.end()) {
        seconds[node.node].push_back(node.end_s - node.begin_s);
      }
      if (step_seconds < kShortStep) whole.push_back(run(step++));
    }
    add_nodes(nodes, backend.sizes(), seconds);
    if (!whole.empty() && parts == 1) {
      add_step(low_percentile(whole), seconds, static_cast<double>(input.size() + target.size()));
    }
    return {};
  }

  /// Times the loader per row, on a dataset in memory.
  void measure_rows(std::string_view op, DatasetSchema schema) {
    constexpr int64_t kRows = 2048, kBatch = 64, kBatches = 96;
    const auto numbers = static_cast<size_t>(schema.kind == DatasetSchema::Kind::kImage
                                                 ? schema.image.elements()
                                                 : static_cast<int64_t>(schema.columns.size()));
    std::vector<uint8_t> pixels;
    std::vector<float> values;
    std::vector<int32_t> classes(kRows);
    Partition rows;
    rows.rows = kRows;
    Preprocessing preprocessing;
    if (schema.kind == DatasetSchema::Kind::kImage) {
      pixels.resize(kRows * numbers, 7);
      rows.image_u8 = pixels;
      preprocessing.image_mean.resize(static_cast<size_t>(schema.image[0]));
      preprocessing.image_std.resize(preprocessing.image_mean.size(), 1);
      preprocessing.image_scale = 1.0 / 255;
    } else {
      values.resize(kRows * numbers, 0.5F);
      rows.numeric = values;
      preprocessing.numeric_mean.resize(numbers);
      preprocessing.numeric_std.resize(numbers, 1);
    }
    rows.target_class = classes;
    schema.target.classes = {"0", "1"};
    schema.train_rows = kRows;
    std::vector<int64_t> all(kRows);
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
    Loader::Options options;
    options.batch_size = kBatch;
    Loader loader(schema, preprocessing, rows, std::move(all), options);
    const int64_t ahead = options.prefetch_batches + 1;
    for (int64_t i = 0; i < ahead; ++i) loader.next();
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < kBatches; ++i) loader.next();
    NodeWorkload row;
    row.op = op;
    row.bytes = static_cast<double>(numbers);
    rates_.samples.push_back({row, elapsed_since(begin) / (kBatches * kBatch)});
  }

  DeviceRates take() {
    if (prepared_ > 0) rates_.prepare_seconds = prepare_seconds_ / static_cast<double>(prepared_);
    return std::move(rates_);
  }

 private:
  void add_nodes(const std::vector<NodeWorkload>& nodes, const std::vector<size_t>& sizes,
                 const std::vector<std::vector<double>>& seconds) {
    size_t first = 0;
    for (size_t kernel = 0; kernel < sizes.size(); first += sizes[kernel++]) {
      if (seconds[kernel].empty() || nodes[first].op == kViewOp) continue;
      const double time = low_percentile(seconds[kernel]);
      if (time <= 0) continue;
      rates_.samples.push_back({joined(std::span(nodes).subspan(first, sizes[kernel])), time});
    }
  }
  /// Adds the overhead of a step: its time minus that of its nodes.
  void add_step(double whole, const std::vector<std::vector<double>>& seconds, double input_bytes) {
    for (const std::vector<double>& node : seconds) {
      if (!node.empty()) whole -= low_percentile(node);
    }
    if (whole <= 0) return;
    NodeWorkload step;
    step.op = kStepOp;
    step.bytes = input_bytes;
    rates_.samples.push_back({step, whole});
  }

  Backend& device_;
  const CalibrateOptions& options_;
  DeviceRates rates_;
  double prepare_seconds_ = 0;
  int64_t prepared_ = 0;
};

DatasetSchema image_rows(Shape shape) {
  DatasetSchema schema;
  schema.kind = DatasetSchema::Kind::kImage;
  schema.image = std::move(shape);
  return schema;
}
DatasetSchema table_rows(size_t columns) {
  DatasetSchema schema;
  schema.columns.resize(columns);
  return schema;
}

}  // namespace

Result<DeviceRates> calibrate(Backend& device, const CalibrateOptions& options,
                              const std::stop_token& stop) {
  const auto begin = std::chrono::steady_clock::now();
  Calibration calibration(device, options);
  for (Probe& network : calibration_probes(device.processor())) {
    if (Status s = check_stop(stop); !s.ok()) return s.error();
    if (!network.needed && elapsed_since(begin) > options.seconds_max) continue;
    try {
      if (Status s = calibration.measure(std::move(network)); !s.ok()) return s.error();
    } catch (const std::bad_alloc&) {
      // A probe that does not fit a small or occupied GPU is skipped.
    }
  }
  calibration.measure_rows(kImageRowOp, image_rows({1, 28, 28}));
  calibration.measure_rows(kImageRowOp, image_rows({3, 32, 32}));
  calibration.measure_rows(kTableRowOp, table_rows(16));
  calibration.measure_rows(kTableRowOp, table_rows(256));
  DeviceRates rates = calibration.take();
  rates.measure_seconds = elapsed_since(begin);
  return rates;
}

}  // namespace trainyard
