#include "client/cli/job_view.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "client/cli/array_view.h"
#include "client/cli/forecast_view.h"
#include "client/cli/relative_name.h"
#include "client/lib/metric_history.h"
#include "proto/convert/run.h"
#include "src/base/join.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

// minimum interval of checkpoint lines in a pipe; a tiny model saves many times a second
constexpr double kCheckpointNoteSeconds = 1;

std::string attempt_text(int attempt) {
  return attempt > 1 ? ", attempt " + std::to_string(attempt) : "";
}

int64_t batch_size_of(const v1::Job& job) {
  return job.spec().recipe().has_batch_size() ? job.spec().recipe().batch_size() : 64;
}

// Returns the preset's name and its sizes, "mlp 512 512", or the number of layers.
std::string model_text(const v1::ModelSpec& model) {
  if (model.preset_case() == v1::ModelSpec::PRESET_NOT_SET) {
    return std::to_string(model.layers_size()) + " layers";
  }
  const auto* preset = v1::ModelSpec::descriptor()->FindFieldByNumber(model.preset_case());
  std::string text = preset->name();
  for (const int64_t units : model.mlp().hidden()) text += " " + std::to_string(units);
  return text;
}

std::string memory_text(const v1::MemoryPlan& m) {
  const int64_t total = total_bytes(m);
  if (total == 0) return "";
  const std::string others =
      m.dataset_bytes() > 0 ? ", dataset " + human_bytes(m.dataset_bytes()) : "";
  return human_bytes(total) + " (parameters " + human_bytes(m.parameter_bytes()) + ", optimizer " +
         human_bytes(m.optimizer_bytes()) + ", gradients " + human_bytes(m.gradient_bytes()) +
         ", activations " + human_bytes(m.activation_bytes()) + ", workspace " +
         human_bytes(m.workspace_bytes()) + others + ")" +
         (m.mapped_bytes() > 0
              ? ", and " + human_bytes(m.mapped_bytes()) + " mapped from the file of weights"
              : "");
}

void add_warnings(const google::protobuf::RepeatedPtrField<std::string>& warnings,
                  std::vector<std::pair<std::string, Cell>>& fields) {
  for (const std::string& warning : warnings) {
    fields.emplace_back("warning", Cell(warning, Style::kNotice));
  }
}

/// Returns how the validation rows were chosen, " (the latest by 'day')"; empty if at random.
std::string split_text(const v1::RowSplit& split) {
  std::vector<std::string> parts;
  if (split.folds() > 0) {
    parts.push_back("fold " + grouped(split.fold()) + " of " + grouped(split.folds()));
  }
  if (!split.group().empty()) parts.push_back("whole groups by " + quoted_value(split.group()));
  if (!split.time().empty()) parts.push_back("the latest by " + quoted_value(split.time()));
  return parts.empty() ? "" : " (" + joined(parts, ", ") + ")";
}

void add_plan_fields(const v1::Job& job, std::vector<std::pair<std::string, Cell>>& fields) {
  const v1::RunPlan& plan = job.plan();
  const int64_t trained = plan.trained_parameter_count();
  fields.emplace_back(
      "parameters",
      grouped(plan.parameter_count()) +
          (trained != plan.parameter_count() ? ", " + grouped(trained) + " trained" : ""));
  fields.emplace_back(
      "steps", grouped(plan.steps_total()) + " (" + grouped(plan.steps_per_epoch()) + " an epoch)");
  std::string rows = grouped(plan.train_rows()) + " to train";
  if (plan.validation_rows() > 0) {
    rows += ", " + grouped(plan.validation_rows()) + " to validate" +
            split_text(job.spec().recipe().split());
  }
  if (plan.test_rows() > 0) rows += ", " + grouped(plan.test_rows()) + " to test";
  fields.emplace_back("rows", rows);
  fields.emplace_back("precision", precision_text(plan.precision()));
  fields.emplace_back("memory", memory_text(plan.memory()));
  if (plan.flops_per_step() > 0) {
    fields.emplace_back(
        "work", human_number(static_cast<double>(plan.flops_per_step()), true) + " FLOP a step");
  }
  fields.emplace_back("device", plan.device_advice());
  if (plan.has_fit_choice()) fields.emplace_back("chosen", plan.fit_choice().message());
  add_warnings(plan.warnings(), fields);
}

}  // namespace

// Rows are labels, columns are predictions. With too many classes for a screen, it is a list of the
// mistakes.
std::string render_confusion(const v1::ConfusionMatrix& matrix, bool colour) {
  constexpr int kClassesShown = 20;
  if (matrix.rows_size() == 0 || matrix.rows_size() > kClassesShown) {
    Table table({{"LABEL, " + matrix.rows_of()}, {"PREDICTED AS"}, {"ROWS", true}});
    for (const auto& m : matrix.mistakes()) {
      table.add({m.label(), m.prediction(), grouped(m.count())});
    }
    return table.render(colour);
  }
  // Titles are not escaped, cells are. Class names come from outside, so they must be cells.
  std::vector<Column> columns = {{"CONFUSION, " + matrix.rows_of()}};
  for (int k = 0; k < matrix.classes_size(); ++k) columns.push_back({"", true});
  Table table(std::move(columns));
  std::vector<Cell> cells = {"label / predicted"};
  for (const std::string& name : matrix.classes()) cells.emplace_back(name);
  table.add(std::move(cells));
  for (int i = 0; i < matrix.rows_size(); ++i) {
    cells = {i < matrix.classes_size() ? matrix.classes(i) : ""};
    for (const int64_t count : matrix.rows(i).counts()) cells.emplace_back(grouped(count));
    cells.resize(static_cast<size_t>(matrix.classes_size()) + 1);
    table.add(std::move(cells));
  }
  return table.render(colour);
}

std::string render_metrics(const std::vector<std::pair<std::string, double>>& metrics,
                           const std::map<std::string, double>& baselines, bool colour) {
  std::vector<Column> columns = {{"METRIC"}, {"VALUE", true}};
  if (!baselines.empty()) columns.push_back({"BASELINE", true});
  Table table(std::move(columns));
  for (const auto& [key, value] : metrics) {
    std::vector<Cell> cells = {key, human_number(value)};
    if (!baselines.empty()) {
      const auto found = baselines.find(key);
      cells.emplace_back(found == baselines.end() ? "" : human_number(found->second));
    }
    table.add(std::move(cells));
  }
  return table.render(colour);
}

std::string initial_weights_text(const v1::InitialWeightsReport& report) {
  constexpr int kNamesShown = 3;
  std::string text = "of " + report.source();
  if (!report.naming().empty()) text += ", by the names of " + report.naming();
  const auto add = [&](const v1::InitialWeightsReport::Names& names, const char* what) {
    if (names.count() == 0) return;
    text += "; " + grouped(names.count()) + " " + what + " (";
    for (int i = 0; i < std::min(names.names_size(), kNamesShown); ++i) {
      text += (i > 0 ? ", " : "") + names.names(i);
    }
    text += names.count() > kNamesShown ? ", ...)" : ")";
  };
  add(report.taken(), "loaded");
  add(report.left_out(), "left out by the recipe, drawn at random");
  add(report.missing(), "not in the source, drawn at random");
  add(report.mismatched(), "of another shape, drawn at random");
  add(report.unused(), "of the source unused");
  add(report.unneeded(), "of the source not needed");
  return text;
}

std::string precision_text(v1::Recipe::Precision precision) {
  const std::string name = lower(v1::Recipe::Precision_Name(precision));
  // the value is from a newer server
  return name.empty() ? "precision " + std::to_string(precision) : name;
}

std::string state_name(v1::JobState state) {
  const std::string& name = v1::JobState_Name(state);
  // the value is from a newer server
  return name.empty() ? "STATE_" + std::to_string(state) : name;
}

Style state_style(v1::JobState state) {
  switch (state) {
    case v1::SUCCEEDED:
      return Style::kGood;
    case v1::FAILED:
      return Style::kBad;
    case v1::CANCELLED:
    case v1::PAUSED:
      return Style::kNotice;
    case v1::STARTING:
    case v1::RUNNING:
      return Style::kBusy;
    default:
      return Style::kPlain;
  }
}

int exit_code_of_job(v1::JobState state) {
  if (state == v1::SUCCEEDED) return client::kExitOk;
  return state == v1::CANCELLED ? client::kExitCancelled : client::kExitFailed;
}

std::string metric_summary(const google::protobuf::Map<std::string, double>& metrics,
                           const Baselines& baselines) {
  static constexpr const char* kFirst[] = {"test/accuracy", "val/accuracy",  "test/mae",
                                           "val/mae",       "test/loss",     "val/loss",
                                           "train/loss",    "train/accuracy"};
  std::string out;
  int count = 0;
  for (const char* key : kFirst) {
    const auto found = metrics.find(key);
    if (found == metrics.end() || count == 3) continue;
    out += (count++ > 0 ? ", " : "") + std::string(key) + " " + human_number(found->second);
    const auto baseline = std::ranges::find(baselines, key, &v1::Baseline::metric);
    if (baseline != baselines.end()) {
      out += " (baseline " + human_number(baseline->value()) + ")";
    }
  }
  return out;
}

std::string owner_text(const v1::Job& job) { return job.owner().empty() ? "unknown" : job.owner(); }

std::string labels_text(const v1::Job& job) {
  std::vector<std::string> labels;
  for (const auto& [key, value] : job.spec().labels()) labels.push_back(key + "=" + value);
  std::ranges::sort(labels);
  return joined(labels, ", ");
}

std::string progress_summary(const v1::Job& job) {
  const v1::Progress& p = job.progress();
  const int64_t total = p.steps_total() > 0 ? p.steps_total() : job.plan().steps_total();
  if (total <= 0 || p.step() <= 0) return "";
  // the recipe's early stopping ended it
  if (job.state() == v1::SUCCEEDED && p.step() < total) return "early";
  return std::to_string(p.step() * 100 / total) + "%";
}

std::string devices_text(const std::string& first,
                         const google::protobuf::RepeatedPtrField<std::string>& devices) {
  // an older server sends only `device`
  if (devices.empty()) return std::string(relative_name(first));
  std::string text;
  for (const std::string& device : devices) {
    text += (text.empty() ? "" : ", ") + std::string(relative_name(device));
  }
  return text;
}

std::string thinned_text(const v1::Job& job) {
  if (!job.events_thinned()) return "";
  return "old ones were removed by the server's rule keep_events: state changes, checkpoints and "
         "the newest value of each metric are left";
}

void note_thinned(Session& session, const v1::Job& job) {
  if (!job.events_thinned()) return;
  session.err().line("note: of the events of " + safe_text(relative_name(job.name())) + ", " +
                     thinned_text(job));
}

std::string render_job(const v1::Job& job, const Terminal& terminal) {
  const bool colour = terminal.colour();
  std::vector<std::pair<std::string, Cell>> fields;
  fields.emplace_back("job", std::string(relative_name(job.name())));
  fields.emplace_back("state", Cell(state_name(job.state()), state_style(job.state())));
  if (!job.message().empty() || !job.reason().empty()) {
    fields.emplace_back("why",
                        job.message() + (job.reason().empty() ? "" : " [" + job.reason() + "]"));
  }
  if (job.cancel_requested() && !client::is_terminal(job.state()))
    fields.emplace_back("cancel", "requested");
  if (job.pause_requested()) fields.emplace_back("pause", "requested");
  if (!job.origin().job().empty()) {
    const v1::JobOrigin& origin = job.origin();
    std::string text =
        "at step " + grouped(origin.step()) + " of " + std::string(relative_name(origin.job()));
    for (int i = 0; i < origin.changes_size(); ++i) {
      text += (i == 0 ? ": " : "; ") + origin.changes(i);
    }
    fields.emplace_back("began", text);
  }
  fields.emplace_back("owner", owner_text(job));
  fields.emplace_back("priority", std::to_string(job.priority()));
  fields.emplace_back("labels", labels_text(job));
  if (job.spec().after_size() > 0) {
    std::string text;
    for (const v1::JobDependency& d : job.spec().after()) {
      text += (text.empty() ? "" : ", ") + std::string(relative_name(d.job())) +
              (d.on() == v1::JobDependency::ANY ? " (in any final state)" : "");
    }
    fields.emplace_back("after", text);
  }
  if (job.spec().resources().has_time_limit_seconds()) {
    const auto limit_s = static_cast<double>(job.spec().resources().time_limit_seconds());
    fields.emplace_back("time limit", human_duration(limit_s) + ", of which it has trained " +
                                          human_duration(job.run_seconds()));
  }
  fields.emplace_back("array", array_text(job));
  fields.emplace_back("dataset", std::string(relative_name(job.spec().dataset().name())));
  fields.emplace_back("network", model_text(job.spec().model()));
  if (!job.device().empty()) {
    fields.emplace_back("ran on",
                        devices_text(job.device(), job.devices()) + attempt_text(job.attempt()));
  }
  const v1::Progress& p = job.progress();
  if (p.steps_total() > 0) {
    std::string text = "step " + grouped(p.step()) + " of " + grouped(p.steps_total());
    if (p.samples_per_second() > 0)
      text += ", " + human_number(p.samples_per_second(), true) + " samples/s";
    fields.emplace_back("progress", text);
  }
  fields.emplace_back("remaining", remaining_text(p));
  if (job.checkpoint_step() > 0)
    fields.emplace_back("checkpoint", "step " + grouped(job.checkpoint_step()));
  fields.emplace_back("submitted", local_time(job.create_time()));
  fields.emplace_back("started", local_time(job.start_time()));
  std::string ended = local_time(job.end_time());
  if (!ended.empty() && job.start_time().seconds() > 0) {
    ended += ", after " + human_duration(seconds_of(job.end_time()) - seconds_of(job.start_time()));
  }
  fields.emplace_back("ended", ended);
  fields.emplace_back("events", thinned_text(job));
  fields.emplace_back("model", std::string(relative_name(job.model())));
  if (job.has_plan()) add_plan_fields(job, fields);
  if (job.plan().has_initial_weights()) {
    fields.emplace_back("initial weights", initial_weights_text(job.plan().initial_weights()));
  }
  add_warnings(p.warnings(), fields);
  std::string out = render_fields(fields, colour, terminal.line_width());
  if (!p.metrics().empty()) {
    std::map<std::string, double> sorted(p.metrics().begin(), p.metrics().end());
    std::map<std::string, double> baselines;
    for (const v1::Baseline& b : p.baselines()) baselines[b.metric()] = b.value();
    out += "\n" + render_metrics({sorted.begin(), sorted.end()}, baselines, colour);
  }
  for (const v1::ConfusionMatrix& matrix : p.confusion_matrices()) {
    out += "\n" + render_confusion(matrix, colour);
  }
  return out;
}

std::string render_plan(const v1::Job& job, const Terminal& out) {
  std::vector<std::pair<std::string, Cell>> fields;
  fields.emplace_back("dataset", std::string(relative_name(job.spec().dataset().name())));
  fields.emplace_back("network", model_text(job.spec().model()));
  add_plan_fields(job, fields);
  return render_fields(fields, out.colour(), out.line_width());
}

JobView::JobView(Session& session, Terminal& terminal, const std::string& name)
    : name_(relative_name(name)),
      progress_(session.progress(name_, terminal)),
      last_s_(static_cast<double>(std::time(nullptr))),
      live_(terminal.is_terminal()) {}

void JobView::started(const v1::WatchJobResponse::Start& start) {
  const v1::Job& job = start.job();
  progress_.plan(job.plan().steps_total(), job.plan().steps_per_epoch(), batch_size_of(job));
  if (started_s_ == 0 && job.start_time().seconds() > 0) started_s_ = seconds_of(job.start_time());
  state_ = job.state();
  reconnect_reported_ = false;
}

void JobView::show_state(double time_s, const v1::StateChange& change) {
  state_ = change.state();
  std::string text = state_name(state_);
  if (state_ == v1::RUNNING) {
    if (started_s_ == 0) started_s_ = time_s;
    progress_.begin(time_s, change.resumed_from_step());
    if (!change.device().empty()) {
      text += " on " + devices_text(change.device(), change.devices());
    }
    if (change.resumed_from_step() > 0) {
      text += ", resumed from step " + std::to_string(change.resumed_from_step());
    }
  }
  if (client::is_terminal(state_)) {
    progress_.finish();
    if (started_s_ > 0) text += " after " + human_duration(time_s - started_s_);
    google::protobuf::Map<std::string, double> metrics;
    for (const auto& [key, value] : progress_.state().metrics) metrics[key] = value;
    const std::string summary = metric_summary(metrics, change.baselines());
    if (!summary.empty()) text += ": " + summary;
  }
  const bool says_enough = state_ == v1::RUNNING;
  if (!change.message().empty() && !says_enough) text += ": " + change.message();
  if (!change.reason().empty() && state_ == v1::FAILED) text += " [" + change.reason() + "]";
  progress_.note(time_s, state_style(state_), text);
}

bool JobView::wants_expected_end(const v1::Event& event) {
  constexpr double kAskSeconds = 10;
  const auto now_s = static_cast<double>(std::time(nullptr));
  const bool is_news = now_s - seconds_of(event.time()) < kAskSeconds;
  if (!event.has_metrics() || !is_news || now_s - asked_end_s_ < kAskSeconds) return false;
  asked_end_s_ = now_s;
  return true;
}

void JobView::expect_end(const v1::Job& job) {
  const double rest_s = job.progress().remaining_seconds();
  if (rest_s > 0) progress_.expect_end(static_cast<double>(std::time(nullptr)) + rest_s);
}

void JobView::result(const v1::Job& job) {
  const auto& metrics = job.progress().metrics();
  progress_.succeed({metrics.begin(), metrics.end()});
}

void JobView::event(const v1::Event& event) {
  const double time_s = event.time().seconds() > 0 ? seconds_of(event.time()) : last_s_;
  last_s_ = time_s;
  if (event.has_state()) {
    show_state(time_s, event.state());
  } else if (event.has_metrics()) {
    client::visit_samples(event, [this](const std::string& key, const client::MetricSample& s) {
      progress_.metric(key, s.step, s.value);
    });
    progress_.update(time_s);
  } else if (event.has_checkpoint()) {
    const v1::CheckpointSaved& saved = event.checkpoint();
    const std::string step = "checkpoint at step " + std::to_string(saved.step());
    if (!saved.error().empty()) {
      progress_.note(time_s, Style::kNotice,
                     step + " could not be saved, training continues: " + saved.error());
    } else if (!live_ && time_s - checkpoint_note_s_ >= kCheckpointNoteSeconds) {
      checkpoint_note_s_ = time_s;
      progress_.note(time_s, Style::kDim, step + ", " + human_bytes(saved.size_bytes()));
    }
  } else if (event.has_log() && event.log().level() != v1::LogLine::INFO) {
    const bool bad = event.log().level() == v1::LogLine::ERROR;
    progress_.note(time_s, bad ? Style::kBad : Style::kNotice, event.log().text());
  }
}

void JobView::reconnecting(const Error& error) {
  if (reconnect_reported_) return;
  reconnect_reported_ = true;
  progress_.note(static_cast<double>(std::time(nullptr)), Style::kNotice,
                 "connection lost (" + error.message + "), reconnecting; the job continues");
}

void JobView::finish() { progress_.finish(); }

}  // namespace trainyard::cli
