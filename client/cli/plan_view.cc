#include "client/cli/plan_view.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "client/cli/forecast_view.h"
#include "client/cli/gpu_view.h"
#include "client/cli/job_view.h"
#include "client/cli/output.h"
#include "client/cli/relative_name.h"
#include "client/cli/shorten.h"
#include "client/cli/table.h"
#include "proto/convert/run.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

/// Returns whether several GPUs or nodes share the job.
bool is_shared(const v1::Resources& resources) {
  return resources.gpus() > 1 || resources.nodes() > 1;
}
std::string each_of(const v1::Resources& resources) {
  return resources.nodes() > 1 && resources.device() != v1::Resources::GPU ? "each node"
                                                                           : "each GPU";
}

constexpr int kBlockMax = 64;      // maximum rows of a block whose repetitions are collapsed
constexpr int kBarWidthMax = 40;   // columns of the longest bar
constexpr int kOtherColumns = 52;  // width of the layer table's other columns
constexpr int kNameWidthMin = 12;

bool same_row(const v1::LayerPlan& a, const v1::LayerPlan& b) {
  return a.op() == b.op() && a.parameter_count() == b.parameter_count() &&
         a.flops_step() == b.flops_step() &&
         std::equal(a.output_shape().begin(), a.output_shape().end(), b.output_shape().begin(),
                    b.output_shape().end());
}

/// A range of rows, either shown one by one or collapsed as `repeats` more copies of the block
/// before it.
struct Part {
  int begin = 0;
  int end = 0;      // one past the last row
  int repeats = 0;  // 0: the rows are shown
};

/// Returns how many times rows [at, at + period) are repeated directly after themselves.
int repeats_of(const v1::JobPlan& plan, int at, int period) {
  int repeats = 0;
  for (int row = at + period; row + period <= plan.layers_size(); row += period, ++repeats) {
    for (int k = 0; k < period; ++k) {
      if (!same_row(plan.layers(at + k), plan.layers(row + k))) return repeats;
    }
  }
  return repeats;
}

std::vector<Part> parts_of(const v1::JobPlan& plan, int64_t rows_max) {
  const int count = plan.layers_size();
  if (rows_max == 0 || count <= rows_max) return {{0, count, 0}};
  std::vector<Part> parts;
  int shown_from = 0;
  for (int at = 0; at < count;) {
    int best_period = 0, best_repeats = 0;
    for (int period = 1; period <= std::min(kBlockMax, (count - at) / 2); ++period) {
      const int repeats = repeats_of(plan, at, period);
      // Collapsing pays off only for more than one row, because the summary takes one line.
      if (repeats * period > best_repeats * best_period && repeats * period > 1) {
        best_period = period;
        best_repeats = repeats;
      }
    }
    if (best_repeats == 0) {
      ++at;
      continue;
    }
    const int block_end = at + best_period;
    parts.push_back({shown_from, block_end, 0});
    parts.push_back({block_end, block_end + best_period * best_repeats, best_repeats});
    at = shown_from = parts.back().end;
  }
  parts.push_back({shown_from, count, 0});
  std::erase_if(parts, [](const Part& p) { return p.begin == p.end; });
  return parts;
}

std::string shape_text(const v1::LayerPlan& layer) {
  std::string text;
  for (const int64_t d : layer.output_shape())
    text += (text.empty() ? "" : "x") + std::to_string(d);
  return text;
}

std::string flops_text(int64_t flops) {
  return flops == 0 ? "" : human_number(static_cast<double>(flops), true);
}

class LayerTable {
 public:
  LayerTable(const v1::JobPlan& plan, const PlanViewOptions& options)
      : plan_(plan),
        options_(options),
        name_width_(std::max(kNameWidthMin, options.width - kOtherColumns)),
        table_({{"LAYER"}, {"OP"}, {"OUTPUT"}, {"PARAMETERS", true}, {"FLOP/STEP", true}}) {}

  std::string render() {
    const std::vector<Part> parts = parts_of(plan_, options_.layers_max);
    int64_t rows = 0;
    for (const Part& p : parts) rows += p.repeats > 0 ? 1 : p.end - p.begin;
    // If there are still too many rows, only the beginning and the end are shown.
    const int64_t limit = options_.layers_max == 0 ? rows : options_.layers_max;
    const int64_t head = rows <= limit ? rows : (limit * 2 + 2) / 3;
    const int64_t tail_from = rows <= limit ? rows : rows - (limit - head);
    int64_t row = 0;
    int skipped_from = -1;
    for (const Part& p : parts) {
      for (int i = p.begin; i < p.end; ++row) {
        const int next = p.repeats > 0 ? p.end : i + 1;
        if (row < head || row >= tail_from) {
          if (skipped_from >= 0) add_skipped(skipped_from, i);
          skipped_from = -1;
          p.repeats > 0 ? add_repeats(p) : add(plan_.layers(i));
        } else if (skipped_from < 0) {
          skipped_from = i;
        }
        i = next;
      }
    }
    add_total();
    return table_.render(options_.colour);
  }

 private:
  void add(const v1::LayerPlan& layer) {
    table_.add({shorten(layer.name(), name_width_, options_.utf8), layer.op(), shape_text(layer),
                layer.parameter_count() > 0 ? grouped(layer.parameter_count()) : "",
                flops_text(layer.flops_step())});
  }
  void add_dim(std::string name, std::string op, int begin, int end) {
    int64_t parameters = 0, flops = 0;
    for (int i = begin; i < end; ++i) {
      parameters += plan_.layers(i).parameter_count();
      flops += plan_.layers(i).flops_step();
    }
    table_.add({Cell(std::move(name), Style::kDim), Cell(std::move(op), Style::kDim), "",
                Cell(parameters > 0 ? grouped(parameters) : "", Style::kDim),
                Cell(flops_text(flops), Style::kDim)});
  }
  void add_repeats(const Part& p) {
    const int period = (p.end - p.begin) / p.repeats;
    const std::string times =
        p.repeats == 1 ? "once more" : std::to_string(p.repeats) + " times more";
    add_dim(dots() + shorten(plan_.layers(p.end - 1).name(), name_width_ - 4, options_.utf8),
            (period == 1 ? "the same " : "these " + std::to_string(period) + " ") + times, p.begin,
            p.end);
  }
  void add_skipped(int begin, int end) {
    add_dim(dots() + std::to_string(end - begin) + " layers", "", begin, end);
  }
  void add_total() {
    // The FLOPs of a step include the optimizer's updates, which belong to no layer.
    table_.add({Cell("total", Style::kBold), "", "",
                Cell(grouped(plan_.run().parameter_count()), Style::kBold),
                Cell(flops_text(plan_.run().flops_per_step()), Style::kBold)});
  }
  std::string dots() const { return options_.utf8 ? "\u2026 " : ".. "; }

  const v1::JobPlan& plan_;
  const PlanViewOptions& options_;
  const int name_width_;
  Table table_;
};

std::string memory_table(const v1::JobPlan& plan, const PlanViewOptions& options) {
  const v1::MemoryPlan& m = plan.run().memory();
  const int64_t host_bytes = plan.device() == "devices/cpu" ? m.host_bytes() : 0;
  const int64_t counted_bytes = total_bytes(m) + host_bytes + m.mapped_bytes();
  const int64_t besides_bytes = std::max<int64_t>(0, plan.fit().bytes_needed() - counted_bytes);
  const std::pair<const char*, int64_t> rows[] = {
      {"parameters", m.parameter_bytes()}, {"mapped from the file", m.mapped_bytes()},
      {"gradients", m.gradient_bytes()},   {"optimizer state", m.optimizer_bytes()},
      {"state", m.state_bytes()},          {"activations", m.activation_bytes()},
      {"workspace", m.workspace_bytes()},  {"inputs", m.input_bytes()},
      {"dataset", m.dataset_bytes()},      {"checkpoint, batches", host_bytes},
      {"process", besides_bytes}};
  int64_t largest = 1;
  for (const auto& [name, bytes] : rows) largest = std::max(largest, bytes);
  const int bar_max = std::clamp(options.width - 32, 0, kBarWidthMax);
  Table table({{"MEMORY"}, {"BYTES", true}, {""}});
  for (const auto& [name, bytes] : rows) {
    std::string bar;
    const auto length =
        std::lround(static_cast<double>(bytes) / static_cast<double>(largest) * bar_max);
    for (long i = 0; i < length; ++i) bar += options.utf8 ? "\u2588" : "#";
    const bool unknown = std::string_view(name) == "workspace" && !plan.workspace_measured();
    if (bytes == 0 && !unknown) continue;
    table.add({name, unknown ? "unknown" : human_bytes(bytes), Cell(bar, Style::kBusy)});
  }
  table.add({Cell("total", Style::kBold),
             Cell(human_bytes(counted_bytes + besides_bytes), Style::kBold), ""});
  return table.render(options.colour);
}

/// Returns the precision, and its effects on the device of the plan.
std::string precision_and_cost(v1::Recipe::Precision precision, bool is_gpu) {
  const auto half = [&](const char* bits) {
    return std::string(bits) + " significant bits, about half the memory of activations" +
           (is_gpu ? "" : ", slower than fp32 on a CPU");
  };
  std::string cost;
  if (precision == v1::Recipe::TF32) {
    cost = is_gpu ? "matrix products round their inputs to 11 significant bits; fp32 does not and "
                    "is up to several times slower"
                  : "on a CPU the same bits and time as fp32";
  } else if (precision == v1::Recipe::FP32) {
    cost = is_gpu ? "matrix products do not round their inputs; tf32 is up to several times faster"
                  : "";
  } else if (precision == v1::Recipe::BF16) {
    cost = half("8");
  } else if (precision == v1::Recipe::FP16) {
    cost = half("11");
  }
  return precision_text(precision) + (cost.empty() ? "" : ": " + cost);
}

/// Returns the size of a checkpoint, how often one is written, and the most work that a kill can
/// lose.
std::string checkpoints_text(const v1::CheckpointPlan& plan) {
  const std::string size = human_bytes(plan.size_bytes());
  if (plan.lost_steps_max() > 0) {
    const std::string steps =
        grouped(plan.lost_steps_max()) + (plan.lost_steps_max() == 1 ? " step" : " steps");
    return size + ", every " + steps + "; an interruption loses at most " + steps + " of work";
  }
  return size + ", written in under 1% of the run's time; an interruption loses at most " +
         human_duration(plan.lost_seconds_max()) + " of work";
}

/// Returns the exchanges of a step: "reduce_scatter of 96 MiB in 5 along elements, gather_rows of 2
/// MiB in 2 along rows; each GPU sends at least 74 MiB a step".
std::string exchanges_text(const v1::RunPlan& run, const std::string& each) {
  std::string text;
  int64_t sent_bytes = 0;
  for (const v1::Exchange& exchange : run.exchanges()) {
    text += (text.empty() ? "" : ", ") + exchange.kind() + " of " + human_bytes(exchange.bytes()) +
            " in " + grouped(exchange.count()) +
            (exchange.axis().empty() ? "" : " along " + exchange.axis());
    sent_bytes += exchange.sent_bytes();
  }
  return text + "; " + each + " sends at least " + human_bytes(sent_bytes) + " a step";
}

/// Describes the memory that sharding saves on each GPU: "the optimizer's state: each GPU stores 5
/// MiB less than all of it; ...".
std::string sharded_text(const v1::RunPlan& run, const std::string& each) {
  std::string text;
  const auto add = [&](const std::string& what, int64_t saved_bytes, const std::string& than) {
    if (saved_bytes <= 0) return;
    text += (text.empty() ? "" : "; ") + what + ": " + each + " stores " +
            human_bytes(saved_bytes) + " less than all of " + than;
  };
  add("the optimizer's state", run.shard_saved_bytes(), "it");
  add("the head's weights", run.head_saved_bytes(), "them");
  add("weights of pairs of layers", run.mlp_saved_bytes(), "them");
  add("the parameters", run.parameter_saved_bytes(), "them, and gathers them where it needs them");
  return text;
}

/// Returns a list of the first split pairs, each as "fc1 and fc2 (4,096 units): 24 MiB less for
/// 3 MiB exchanged in a step".
std::string split_pairs_text(const v1::RunPlan& run) {
  constexpr int kShown = 8;
  std::string text;
  const int shown = std::min(run.split_pairs_size(), kShown);
  for (int i = 0; i < shown; ++i) {
    const v1::SplitPair& pair = run.split_pairs(i);
    text += (text.empty() ? "" : ", ") + pair.first() + " and " + pair.second() + " (" +
            grouped(pair.units()) + " units): " + human_bytes(pair.saved_bytes()) + " less for " +
            human_bytes(pair.exchanged_bytes()) + " exchanged in a step";
  }
  const int more = run.split_pairs_size() - shown;
  return text + (more > 0 ? ", and " + std::to_string(more) + " more" : "");
}

std::string fields(const v1::JobPlan& plan, const PlanViewOptions& options) {
  const v1::RunPlan& run = plan.run();
  std::string rows = grouped(run.train_rows()) + " to train";
  if (run.validation_rows() > 0) rows += ", " + grouped(run.validation_rows()) + " to validate";
  if (run.test_rows() > 0) rows += ", " + grouped(run.test_rows()) + " to test";
  const int64_t trained = run.trained_parameter_count();
  const double epochs = run.steps_per_epoch() > 0 ? static_cast<double>(run.steps_total()) /
                                                        static_cast<double>(run.steps_per_epoch())
                                                  : 0;
  std::vector<std::pair<std::string, Cell>> list;
  if (trained > 0 && trained != run.parameter_count()) {
    list.emplace_back("trained",
                      grouped(trained) + " of " + grouped(run.parameter_count()) + " parameters");
  }
  if (run.has_initial_weights()) {
    list.emplace_back("initial weights", initial_weights_text(run.initial_weights()));
  }
  list.emplace_back("rows", rows);
  list.emplace_back("steps", grouped(run.steps_total()) + " (" + grouped(run.steps_per_epoch()) +
                                 " an epoch, " + human_number(epochs) + " epochs)");
  list.emplace_back("work", human_number(static_cast<double>(run.flops_per_step()) *
                                             static_cast<double>(run.steps_total()),
                                         true) +
                                " FLOP in total");
  list.emplace_back("checkpoints", checkpoints_text(run.checkpoints()));
  if (run.exchanges_size() > 0)
    list.emplace_back("exchanges", exchanges_text(run, each_of(plan.spec().resources())));
  if (const std::string text = sharded_text(run, each_of(plan.spec().resources())); !text.empty()) {
    list.emplace_back("sharded", text);
  }
  if (run.split_pairs_size() > 0) list.emplace_back("split pairs", split_pairs_text(run));
  list.emplace_back("precision",
                    precision_and_cost(run.precision(), plan.device().starts_with("devices/gpu")));
  std::string device(relative_name(plan.device()));
  if (plan.threads() > 0) {
    device +=
        " with " + std::to_string(plan.threads()) + (plan.threads() == 1 ? " thread" : " threads");
  }
  if (!run.device_advice().empty()) device += ": " + run.device_advice();
  list.emplace_back("device", device);
  const v1::MemoryFit& fit = plan.fit();
  if (fit.fits() && fit.bytes_available() > 0) {
    list.emplace_back("fits",
                      Cell("in " + human_bytes(fit.bytes_available()) + " of memory" +
                               (is_shared(plan.spec().resources()) ? " on each device" : ""),
                           Style::kGood));
  }
  if (run.has_fit_choice()) {
    list.emplace_back("chosen", Cell(run.fit_choice().message(), Style::kNotice));
  }
  if (is_shared(plan.spec().resources()) || run.has_fit_choice() || !fit.fits()) {
    list.emplace_back("sharding plans", "--sharding-plans compares this one with the others");
  }
  for (const std::string& warning : plan.warnings()) {
    list.emplace_back("warning", Cell(warning, Style::kNotice));
  }
  if (!fit.fits()) list.emplace_back("does not fit", Cell(fit.message(), Style::kBad));
  return render_fields(list, options.colour, options.line_width);
}

}  // namespace

std::string render_job_plan(const v1::JobPlan& plan, const PlanViewOptions& options) {
  const std::string forecasts = render_forecasts(plan.run(), options.colour);
  const std::string gpus = render_gpu_comparisons(plan, options.colour, options.line_width);
  return LayerTable(plan, options).render() + "\n" + memory_table(plan, options) + "\n" +
         fields(plan, options) + (forecasts.empty() ? "" : "\n" + forecasts) +
         (gpus.empty() ? "" : "\n" + gpus);
}

}  // namespace trainyard::cli
