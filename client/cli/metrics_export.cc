// trainyard metrics export: writes jobs' metrics for other tools: as TensorBoard event files, CSV
// or JSON.
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "client/cli/command.h"
#include "client/cli/job_view.h"
#include "client/cli/output_file.h"
#include "client/lib/metric_history.h"
#include "client/lib/names.h"
#include "client/lib/tensorboard.h"
#include "src/base/glob.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;
using client::MetricHistory;
using client::MetricSample;

struct ExportOptions {
  std::vector<std::string> jobs;
  std::string tensorboard;
  std::string csv;
  std::string json;
  std::vector<std::string> keys;
  bool follow = false;
  bool overwrite = false;
};

struct JobMetrics {
  std::string name;  // the job's short name
  MetricHistory history;
};

bool wanted(const ExportOptions& options, const std::string& key) {
  return options.keys.empty() || matches_any(options.keys, key);
}

/// Returns the shortest text that parses to the same number; or NaN, Infinity, -Infinity.
std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return {buffer, end};
}

std::string csv_text(const std::vector<JobMetrics>& jobs) {
  std::string out = "job,key,step,time,value\n";
  for (const JobMetrics& job : jobs) {
    for (const auto& [key, samples] : job.history.series()) {
      for (const MetricSample& s : samples) {
        out += job.name + "," + key + "," + std::to_string(s.step) + "," + number_text(s.time_s) +
               "," + number_text(s.value) + "\n";
      }
    }
  }
  return out;
}

/// Numbers that JSON cannot represent become strings, as in proto JSON.
nlohmann::ordered_json json_number(double value) {
  if (std::isfinite(value)) return value;
  return number_text(value);
}

std::string json_text(const std::vector<JobMetrics>& jobs) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const JobMetrics& job : jobs) {
    nlohmann::ordered_json metrics = nlohmann::ordered_json::object();
    for (const auto& [key, samples] : job.history.series()) {
      nlohmann::ordered_json& series = metrics[key];
      series = {{"steps", nlohmann::ordered_json::array()},
                {"times", nlohmann::ordered_json::array()},
                {"values", nlohmann::ordered_json::array()}};
      for (const MetricSample& s : samples) {
        series["steps"].push_back(s.step);
        series["times"].push_back(s.time_s);
        series["values"].push_back(json_number(s.value));
      }
    }
    list.push_back({{"job", job.name}, {"metrics", std::move(metrics)}});
  }
  return nlohmann::ordered_json({{"jobs", std::move(list)}}).dump() + "\n";
}

/// Writes the whole history as one event file, and returns its folder.
Result<fs::path> write_tensorboard(const fs::path& folder, const v1::Job& job,
                                   const JobMetrics& metrics) {
  const fs::path run = folder / metrics.name;
  const auto created = static_cast<double>(job.create_time().seconds());
  ASSIGN_OR_RETURN(client::TensorBoardFile file,
                   client::TensorBoardFile::create(run, created, "trainyard"));
  for (const auto& [key, samples] : metrics.history.series()) {
    for (const MetricSample& sample : samples) file.add(key, sample);
  }
  if (Status s = file.flush(); !s.ok()) return std::move(s).error();
  return run;
}

/// Writes the metrics of one job as they arrive, until it ends.
Result<int> follow_into(Session& session, client::Client& server, const std::string& name,
                        const ExportOptions& options) {
  ASSIGN_OR_RETURN(const v1::Job job, server.call(client::rpc::kGetJob, name));
  const std::string id(client::short_name(name));
  ASSIGN_OR_RETURN(client::TensorBoardFile file,
                   client::TensorBoardFile::create(fs::path(options.tensorboard) / id,
                                                   static_cast<double>(job.create_time().seconds()),
                                                   "trainyard"));
  session.out().line((fs::path(options.tensorboard) / id).string());
  session.hint("  writing until the job ends; Ctrl-C stops writing, the job continues");
  // a resumed job reports some steps again with equal values, which are skipped
  std::map<std::string, int64_t> last;
  Status written;
  const std::stop_token stop = session.interrupted();
  const auto read = client::read_events(server, name, true, stop, [&](const v1::Event& event) {
    client::visit_samples(event, [&](const std::string& key, const MetricSample& sample) {
      const auto [seen, fresh] = last.try_emplace(key, sample.step);
      if (!wanted(options, key) || (!fresh && sample.step <= seen->second)) return;
      seen->second = sample.step;
      file.add(key, sample);
    });
    if (event.has_metrics()) written = file.flush();
    return written.ok();
  });
  if (!written.ok()) return std::move(written).error();
  if (!read.ok()) return read.error();
  return static_cast<int>(stop.stop_requested() ? client::kExitInterrupted : client::kExitOk);
}

Status check(const ExportOptions& options) {
  const int targets = !options.tensorboard.empty() + !options.csv.empty() + !options.json.empty();
  if (targets == 0) {
    return usage_error(
        "expected an output for the metrics: --tensorboard FOLDER, --csv FILE or --json FILE; "
        "'trainyard model export' exports models");
  }
  if (options.csv == "-" && options.json == "-") {
    return usage_error("--csv and --json cannot both go to standard output");
  }
  if (options.follow && (options.jobs.size() != 1 || options.tensorboard.empty() || targets != 1)) {
    return usage_error("--follow works with one job and --tensorboard only");
  }
  if (!options.csv.empty()) {
    if (Status s = check_output_file(options.csv, options.overwrite, "--csv"); !s.ok()) return s;
  }
  if (options.json.empty()) return {};
  return check_output_file(options.json, options.overwrite, "--json");
}

Result<int> run_export(Session& session, const ExportOptions& options) {
  if (Status s = check(options); !s.ok()) return std::move(s).error();
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  std::vector<JobMetrics> jobs;
  std::vector<v1::Job> heads;
  const std::stop_token stop = session.interrupted();
  for (const std::string& text : options.jobs) {
    ASSIGN_OR_RETURN(const std::string name, session.full_name("jobs", text));
    if (options.follow) return follow_into(session, *server, name, options);
    JobMetrics job{std::string(client::short_name(name)), {}};
    ASSIGN_OR_RETURN(
        v1::Job head, client::read_events(*server, name, false, stop, [&](const v1::Event& event) {
          client::visit_samples(event, [&](const std::string& key, const MetricSample& sample) {
            if (wanted(options, key)) job.history.add(key, sample);
          });
          return true;
        }));
    if (stop.stop_requested()) return static_cast<int>(client::kExitInterrupted);
    note_thinned(session, head);
    if (job.history.series().empty()) {
      session.err().line("warning: " + job.name + " has no metrics" +
                         (options.keys.empty() ? " yet" : " with these keys"));
    }
    jobs.push_back(std::move(job));
    heads.push_back(std::move(head));
  }
  if (!options.tensorboard.empty()) {
    for (size_t i = 0; i < jobs.size(); ++i) {
      ASSIGN_OR_RETURN(const fs::path folder,
                       write_tensorboard(options.tensorboard, heads[i], jobs[i]));
      session.out().line(folder.string());
    }
    session.hint("  tensorboard --logdir " + options.tensorboard);
  }
  if (!options.csv.empty()) {
    if (Status s = write_output_file(session, options.csv, csv_text(jobs)); !s.ok()) {
      return std::move(s).error();
    }
  }
  if (!options.json.empty()) {
    if (Status s = write_output_file(session, options.json, json_text(jobs)); !s.ok()) {
      return std::move(s).error();
    }
  }
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command metrics_export_command() {
  auto o = std::make_shared<ExportOptions>();
  return {"metrics export",
          "Write jobs' metrics for TensorBoard, spreadsheets and scripts",
          {"trainyard metrics export digits-1 digits-2 --tensorboard runs",
           "trainyard metrics export digits-1 --csv -",
           "trainyard metrics export digits-1 --tensorboard runs --follow"},
          "TensorBoard files go to FOLDER/JOB; 'tensorboard --logdir FOLDER' shows each job as one "
          "run. Exporting a job\nagain replaces its file. The CSV columns are job, key, step, time "
          "(seconds since 1970) and value.\n- is standard output. 'trainyard model export' exports "
          "models.",
          [o](OptionSet& options) {
            options.positionals("JOB", o->jobs, "the jobs' names");
            options.text("--tensorboard", "FOLDER", o->tensorboard,
                         "write event files, one folder per job");
            options.text("--csv", "FILE", o->csv, "write a row for each value");
            options.text("--json", "FILE", o->json, "write steps, times and values by job and key");
            options.texts(
                "--key", "PATTERN", o->keys,
                "only these metrics, such as train/loss or 'val/*'; may be given several times");
            options.flag("-f,--follow", o->follow,
                         "with --tensorboard: keep writing until the job ends");
            add_overwrite_option(options, o->overwrite);
          },
          [o](Session& session) { return run_export(session, *o); }};
}

}  // namespace trainyard::cli
