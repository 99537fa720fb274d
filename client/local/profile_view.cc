#include "client/local/profile_view.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <map>
#include <vector>

#include "client/cli/output.h"
#include "client/cli/shorten.h"
#include "client/cli/table.h"

namespace trainyard::cli {
namespace {

constexpr int kOthersWidth = 48;  // width of the other columns, without the node's name and op
constexpr int kCallsColumn = 7;

std::string fixed(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}
std::string percent_of(double share) { return fixed(share * 100, 1) + "%"; }
/// Returns a rate as text; empty if the amount or the time is 0: a copy has no FLOPs.
std::string rate(double amount, double seconds) {
  return amount > 0 && seconds > 0 ? human_number(amount / seconds, true) : "";
}

/// Returns a number with its unit: "13.5 GFLOP/s".
std::string with_unit(double value, const std::string& unit) {
  std::string text = human_number(value, true);
  const bool scaled = std::isalpha(static_cast<unsigned char>(text.back())) != 0;
  text.insert(scaled ? text.size() - 1 : text.size(), " ");
  return text + unit;
}

const char* direction(Phase phase) {
  return phase == Phase::kForward ? "fwd" : phase == Phase::kBackward ? "bwd" : "upd";
}

/// The sums over a set of nodes: a single node, those of one op, or all.
struct Sum {
  int64_t nodes = 0, calls = 0;
  double seconds = 0, flops = 0, bytes = 0;
  double least_s = 0;  // the least time at the device's peak rates

  void add(const NodeProfile& node, const DevicePeak& peak) {
    const auto runs = static_cast<double>(node.calls);
    ++nodes;
    calls += node.calls;
    seconds += node.seconds;
    flops += runs * static_cast<double>(node.work.cost.flops);
    bytes += runs * static_cast<double>(node.work.cost.bytes);
    least_s += runs * least_seconds(node.work, peak);
  }
};

class ProfileView {
 public:
  ProfileView(const StepProfile& profile, int64_t batch_size, const ProfileViewOptions& options)
      : profile_(profile),
        batch_size_(batch_size),
        options_(options),
        in_ms_(profile.node_seconds() >= 1e-3) {
    for (const NodeProfile& node : profile.nodes) {
      total_.add(node, profile.peak);
      by_op_[node.work.op].add(node, profile.peak);
      calls_differ_ |= node.calls != 1;
    }
  }

  std::string render() const { return head() + "\n" + op_table() + "\n" + node_table(); }

 private:
  std::string time(double seconds) const {
    return fixed(seconds * (in_ms_ ? 1e3 : 1e6), in_ms_ ? 3 : 1);
  }
  std::string unit() const { return in_ms_ ? " ms" : " us"; }

  std::string head() const {
    const StepProfile& p = profile_;
    const double samples = static_cast<double>(batch_size_) / p.step_s;
    const std::string waits = p.data_wait_s > 0.005 * p.step_s
                                  ? "; waits " + percent_of(p.data_wait_s / p.step_s) + " for data"
                                  : "";
    std::string peak;
    const auto add = [&](double value, const std::string& what) {
      if (value > 0) peak += (peak.empty() ? "" : ", ") + with_unit(value, what);
    };
    add(p.peak.f32_flops, "FLOP/s in F32");
    add(p.peak.tf32_flops, "FLOP/s in TF32");
    add(p.peak.half_flops, "FLOP/s of 16 bits");
    add(p.peak.bytes, "B/s");
    return render_fields(
        {{"step", time(p.step_s) + unit() + " as in a job: " + human_number(samples, true) +
                      " samples/s, " + with_unit(total_.flops / p.step_s, "FLOP/s") + waits},
         {"by node", time(p.timed_step_s) + unit() + ", of which nodes " + time(total_.seconds) +
                         unit() + "; medians of " + grouped(p.steps) + " steps"},
         {"peak", peak.empty() ? "" : peak + " (" + p.peak.source + ")"}},
        options_.colour);
  }

  /// Appends the last columns of both tables: time, share and rates.
  std::vector<Column> with_rates(std::vector<Column> columns) const {
    for (const char* title : {in_ms_ ? "MS" : "US", "SHARE", "FLOP/S", "B/S", "PEAK"}) {
      columns.push_back({title, true});
    }
    return columns;
  }
  std::vector<Cell> with_rates(std::vector<Cell> cells, const Sum& sum, Style style) const {
    for (const std::string& text :
         {time(sum.seconds), percent_of(sum.seconds / total_.seconds), rate(sum.flops, sum.seconds),
          rate(sum.bytes, sum.seconds),
          sum.least_s > 0 && sum.seconds > 0 ? fixed(sum.least_s / sum.seconds * 100, 0) + "%"
                                             : ""}) {
      cells.push_back(Cell(text, style));
    }
    return cells;
  }

  std::string op_table() const {
    std::vector<std::pair<std::string_view, Sum>> ops(by_op_.begin(), by_op_.end());
    std::ranges::stable_sort(
        ops, [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
    Table table(with_rates({{"OP"}, {"NODES", true}}));
    for (const auto& [op, sum] : ops) {
      table.add(with_rates({std::string(op), grouped(sum.nodes)}, sum, Style::kPlain));
    }
    table.add(with_rates({Cell("all", Style::kBold), Cell(grouped(total_.nodes), Style::kBold)},
                         total_, Style::kBold));
    return table.render(options_.colour);
  }

  std::string node_table() const {
    std::vector<const NodeProfile*> nodes;
    for (const NodeProfile& node : profile_.nodes) nodes.push_back(&node);
    std::ranges::stable_sort(nodes,
                             [](const auto* a, const auto* b) { return a->seconds > b->seconds; });
    const int room =
        std::max(28, options_.width - kOthersWidth - (calls_differ_ ? kCallsColumn : 0));
    const int op_width = std::clamp(room / 2, 14, 26), name_width = room - op_width;
    std::vector<Column> columns = {{"NODE"}, {"OP"}, {"DIR"}};
    if (calls_differ_) columns.push_back({"CALLS", true});
    Table table(with_rates(std::move(columns)));
    const auto shown = std::min(nodes.size(), static_cast<size_t>(options_.nodes_max));
    const auto add = [&](std::vector<Cell> cells, const Sum& sum, Style style) {
      if (calls_differ_) cells.push_back(Cell(grouped(sum.calls), style));
      table.add(with_rates(std::move(cells), sum, style));
    };
    for (size_t i = 0; i < shown; ++i) {
      const NodeWork& work = nodes[i]->work;
      Sum sum;
      sum.add(*nodes[i], profile_.peak);
      add({shorten(work.name, name_width, options_.utf8), shorten(work.op, op_width, options_.utf8),
           direction(work.phase)},
          sum, Style::kPlain);
    }
    Sum others;
    for (size_t i = shown; i < nodes.size(); ++i) others.add(*nodes[i], profile_.peak);
    if (others.nodes > 0) {
      add({Cell(grouped(others.nodes) + " others", Style::kDim), "", ""}, others, Style::kDim);
    }
    return table.render(options_.colour);
  }

  const StepProfile& profile_;
  const int64_t batch_size_;
  const ProfileViewOptions& options_;
  const bool in_ms_;
  bool calls_differ_ = false;
  Sum total_;
  std::map<std::string_view, Sum> by_op_;
};

}  // namespace

std::string render_profile(const StepProfile& profile, int64_t batch_size,
                           const ProfileViewOptions& options) {
  return ProfileView(profile, batch_size, options).render();
}

}  // namespace trainyard::cli
