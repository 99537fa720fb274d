// trainyard plot: plots the curves of one or several jobs, in the terminal, as SVG or as PNG.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "client/cli/array_view.h"
#include "client/cli/chart.h"
#include "client/cli/command.h"
#include "client/cli/job_view.h"
#include "client/cli/local_work.h"
#include "client/cli/output_file.h"
#include "client/cli/relative_name.h"
#include "client/lib/metric_history.h"
#include "src/base/glob.h"
#include "src/base/join.h"

namespace trainyard::cli {
namespace {

constexpr int kDefaultRows = 14;

struct PlotOptions {
  std::vector<std::string> jobs;
  std::vector<std::string> metrics;
  double smoothing = 0;
  bool logarithmic = false;
  std::string svg, png;
  bool overwrite = false;
  int64_t rows = kDefaultRows;

  const std::string& picture() const { return svg.empty() ? png : svg; }
};

/// Returns the part of a metric's key that selects its chart: "train/loss" and "val/loss" share the
/// chart "loss".
std::string measure_of(const std::string& key) { return key.substr(key.rfind('/') + 1); }

using Histories = std::vector<std::pair<std::string, client::MetricHistory>>;  // by legend

/// Returns a job's name in the legend: of a member of an array also what distinguishes it.
std::string legend_of(const v1::Job& job) {
  std::string text(relative_name(job.name()));
  const std::map<std::string, std::string> values(job.array_values().begin(),
                                                  job.array_values().end());
  for (const auto& [path, value] : values) {
    text += " " + path.substr(path.rfind('.') + 1) + "=" + value;
  }
  return text;
}

bool is_wanted(const std::string& key, const PlotOptions& options) {
  return options.metrics.empty() || matches_any(options.metrics, key) ||
         matches_any(options.metrics, measure_of(key));
}

/// Returns the charts to show: of metrics that match the patterns, or by default of the loss and
/// the validation metrics.
std::vector<std::string> chosen_measures(const Histories& jobs, const PlotOptions& options) {
  std::vector<std::string> measures;
  for (const auto& [name, history] : jobs) {
    for (const auto& [key, samples] : history.series()) {
      const std::string measure = measure_of(key);
      const bool usual = measure == "loss" || key.starts_with("val/");
      if (!(options.metrics.empty() ? usual : is_wanted(key, options))) continue;
      if (std::ranges::find(measures, measure) == measures.end()) measures.push_back(measure);
    }
  }
  std::stable_partition(measures.begin(), measures.end(),
                        [](const std::string& m) { return m == "loss"; });
  return measures;
}

/// With several jobs, each job has one color; with a single job, each curve has its own.
Curve make_curve(const std::string& job, size_t number, const std::string& key,
                 const std::vector<client::MetricSample>& samples, const PlotOptions& options,
                 bool several) {
  Curve curve{several ? job + " " + key.substr(0, key.rfind('/')) : key, {}};
  curve.colour = number;
  if (key.starts_with("val/")) curve.stroke = Stroke::kDashed;
  for (const client::MetricSample& s : samples) {
    curve.points.emplace_back(static_cast<double>(s.step), s.value);
  }
  if (key.starts_with("test/") && samples.size() == 1) {
    curve.level = true;
    curve.stroke = Stroke::kDotted;
    curve.name += " " + tick_text(samples[0].value);
  } else if (options.smoothing > 0) {
    curve = smooth(std::move(curve), options.smoothing);
  }
  return curve;
}

/// Gives all charts the same range of steps: a metric of validation rows begins later.
void align_steps(std::vector<Chart>& charts) {
  std::optional<std::pair<double, double>> steps;
  for (const Chart& chart : charts) {
    for (const Curve& curve : chart.curves) {
      for (const auto& [x, y] : curve.points) {
        if (!steps) steps = {x, x};
        steps = {std::min(steps->first, x), std::max(steps->second, x)};
      }
    }
  }
  for (Chart& chart : charts) chart.steps = steps;
}

std::vector<Chart> make_charts(const Histories& jobs, const PlotOptions& options) {
  std::vector<Chart> charts;
  for (const std::string& measure : chosen_measures(jobs, options)) {
    const bool several = jobs.size() > 1;
    Chart chart{several ? measure : measure + " of " + jobs[0].first, {}, options.logarithmic};
    bool validates = false;
    for (size_t i = 0; i < jobs.size(); ++i) {
      for (const auto& [key, samples] : jobs[i].second.series()) {
        if (measure_of(key) != measure || !is_wanted(key, options)) continue;
        const size_t number = several ? i : chart.curves.size();
        chart.curves.push_back(make_curve(jobs[i].first, number, key, samples, options, several));
        validates = validates || chart.curves.back().stroke == Stroke::kDashed;
      }
    }
    const bool trains = std::ranges::count(chart.curves, Stroke::kSolid, &Curve::stroke) > 0;
    for (Curve& curve : chart.curves) {
      curve.faint = several && validates && curve.stroke == Stroke::kSolid;
      // Dashes distinguish validation from training; alone it needs none.
      if (!trains && curve.stroke == Stroke::kDashed) curve.stroke = Stroke::kSolid;
    }
    charts.push_back(std::move(chart));
  }
  align_steps(charts);
  return charts;
}

Status check(const PlotOptions& options) {
  const auto refuse = [](const std::string& message) { return usage_error(message); };
  if (!(options.smoothing >= 0 && options.smoothing < 1)) {
    return refuse("--smooth: expected a number of at least 0 (no smoothing) and below 1");
  }
  if (!options.svg.empty() && !options.png.empty()) {
    return refuse("--svg and --png exclude each other");
  }
  if (options.rows < 3 || options.rows > 200) return refuse("--rows: expected 3 to 200");
  if (options.picture().empty()) return {};
  return check_output_file(options.picture(), options.overwrite,
                           options.svg.empty() ? "--png" : "--svg");
}

/// Returns the full names of the jobs; an array stands for its first members.
Result<std::vector<std::string>> find_jobs(Session& session, client::Client& server,
                                           const std::vector<std::string>& given) {
  constexpr size_t kMembersMax = 20;  // more curves cannot be told apart
  std::vector<std::string> names;
  for (const std::string& text : given) {
    ASSIGN_OR_RETURN(const std::string name, session.full_name("jobs", text));
    const Result<v1::Job> job = server.call(client::rpc::kGetJob, name);
    if (job.ok()) {
      names.push_back(name);
      continue;
    }
    ASSIGN_OR_RETURN(const std::string array, find_array_named(server, name, job.error()));
    ASSIGN_OR_RETURN(const std::vector<v1::Job> members, read_members(server, array));
    for (size_t i = 0; i < std::min(members.size(), kMembersMax); ++i) {
      names.push_back(members[i].name());
    }
    if (members.size() > kMembersMax) {
      session.hint("The first " + std::to_string(kMembersMax) + " of " +
                   std::to_string(members.size()) + " members are shown.");
    }
  }
  return names;
}

Result<int> run_plot(Session& session, const PlotOptions& options) {
  if (Status s = check(options); !s.ok()) return std::move(s).error();
  const LocalWork* local = nullptr;
  if (!options.png.empty()) {
    ASSIGN_OR_RETURN(local, session.local("--svg writes the same picture as SVG"));
  }
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  const std::stop_token stop = session.interrupted();
  Histories jobs;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, find_jobs(session, *server, options.jobs));
  for (const std::string& name : names) {
    client::MetricHistory history;
    const auto read = client::read_events(*server, name, false, stop, [&](const v1::Event& event) {
      history.add(event);
      return true;
    });
    if (!read.ok()) return read.error();
    note_thinned(session, *read);
    if (stop.stop_requested()) return static_cast<int>(client::kExitInterrupted);
    jobs.emplace_back(legend_of(*read), std::move(history));
  }
  const std::vector<Chart> charts = make_charts(jobs, options);
  if (charts.empty()) {
    std::string keys;
    for (const auto& [name, history] : jobs) {
      for (const auto& [key, samples] : history.series()) {
        if (keys.find(key) == std::string::npos) keys += (keys.empty() ? "" : ", ") + key;
      }
    }
    return make_error(ErrorCode::kNotFound, "METRIC_NOT_FOUND",
                      keys.empty()
                          ? "nothing to plot yet: the job has reported no metrics"
                          : "no metric matches " + joined(options.metrics) + "; there are " + keys);
  }
  if (const std::string file = options.picture(); !file.empty()) {
    std::string picture;
    if (options.svg.empty()) {
      ASSIGN_OR_RETURN(picture, local->draw_png(charts));
    } else {
      picture = draw_svg(charts);
    }
    if (Status s = write_output_file(session, file, picture); !s.ok()) return std::move(s).error();
    return static_cast<int>(client::kExitOk);
  }
  const Terminal& out = session.out();
  const TerminalCanvas canvas{out.width(), static_cast<int>(options.rows), out.utf8(),
                              out.colour()};
  for (size_t i = 0; i < charts.size(); ++i) {
    session.out().write((i > 0 ? "\n" : "") + draw_terminal(charts[i], canvas));
  }
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command plot_command() {
  auto o = std::make_shared<PlotOptions>();
  return {"plot",
          "Draw the curves of one or several jobs",
          {"trainyard plot digits-1", "trainyard plot digits-1 digits-2 --metric loss --smooth 0.9",
           "trainyard plot digits-1 --svg curves.svg", "trainyard plot digits-1 --png curves.png"},
          "Draws a chart per metric, over steps. Without --metric, plots the loss and the metrics "
          "of the validation rows.",
          [o](OptionSet& options) {
            options.positionals("JOB", o->jobs, "names of jobs, or of arrays for their members");
            options.texts(
                "--metric", "PATTERN", o->metrics,
                "metrics such as loss, val/accuracy or 'train/*'; may be given several times");
            options.number("--smooth", "WEIGHT", o->smoothing,
                           "exponential moving average, as in TensorBoard; 0 (none) to below 1");
            options.flag("--log", o->logarithmic, "use a logarithmic y axis");
            options.text("--svg", "FILE", o->svg, "write an SVG file; - is standard output");
            options.text("--png", "FILE", o->png, "write a PNG file; - is standard output");
            add_overwrite_option(options, o->overwrite);
            options.integer("--rows", "N", o->rows,
                            "height of a chart in the terminal, default 14");
          },
          [o](Session& session) { return run_plot(session, *o); }};
}

}  // namespace trainyard::cli
