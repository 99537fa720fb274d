// client/cli/job_view.h: shows a job to people: as a row, as a page, and live by its events.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/session.h"
#include "client/lib/follow.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::cli {

/// Returns how initial weights were used: "of digits-1; 12 loaded (conv1.weight, conv1.bias, ...);
/// 1 not in the source (fc3.weight)".
std::string initial_weights_text(const v1::InitialWeightsReport& report);

/// Returns the short names of the devices, "gpu-0, gpu-1"; empty before the first attempt.
std::string devices_text(const std::string& first,
                         const google::protobuf::RepeatedPtrField<std::string>& devices);

/// Returns the precision as spec files spell it: "tf32".
std::string precision_text(v1::Recipe::Precision precision);
std::string state_name(v1::JobState state);
Style state_style(v1::JobState state);
/// Returns exit code 0, 1 or 8 for a job that SUCCEEDED, FAILED or was CANCELLED.
int exit_code_of_job(v1::JobState state);
using Baselines = google::protobuf::RepeatedPtrField<v1::Baseline>;
/// Returns the most important metrics, at most three, each followed by its baseline if there is
/// one: "val/accuracy 0.983 (baseline 0.61), val/loss 0.0612".
std::string metric_summary(const google::protobuf::Map<std::string, double>& metrics,
                           const Baselines& baselines = {});
/// Returns a table of the final metrics, with the baselines that exist in a second column.
std::string render_metrics(const std::vector<std::pair<std::string, double>>& metrics,
                           const std::map<std::string, double>& baselines, bool colour);
/// Returns the job's owner; "unknown" for jobs created before the server recorded owners.
std::string owner_text(const v1::Job& job);
/// Returns the labels as text: "team=vision, try=2".
std::string labels_text(const v1::Job& job);
/// Returns the progress, "46%"; or "early" for a job that its recipe ended before its last step.
std::string progress_summary(const v1::Job& job);
/// Renders labels as rows and predictions as columns, or a list of the most frequent mistakes.
std::string render_confusion(const v1::ConfusionMatrix& matrix, bool colour);
/// Says which events still exist if the job's old ones were removed; else empty.
std::string thinned_text(const v1::Job& job);
/// Prints thinned_text() on standard error, for commands that show events.
void note_thinned(Session& session, const v1::Job& job);
/// Returns everything about one job.
std::string render_job(const v1::Job& job, const Terminal& terminal);
/// Describes the facts known before the first step, for `submit --dry-run`.
std::string render_plan(const v1::Job& job, const Terminal& out);

/// Shows a job's events on a terminal or in a pipe. follow_job() calls it with the events.
class JobView {
 public:
  JobView(Session& session, Terminal& terminal, const std::string& name);
  void started(const v1::WatchJobResponse::Start& start);
  void event(const v1::Event& event);
  /// Returns whether the server should be asked once more when the job ends: rarely, and only for
  /// events that have just happened.
  bool wants_expected_end(const v1::Event& event);
  void expect_end(const v1::Job& job);
  /// Receives the final state of a job that succeeded, before the event that reports the success.
  void result(const v1::Job& job);
  void reconnecting(const Error& error);
  /// Ends the display, and prints how the job ended or that it continues.
  void finish();
  v1::JobState state() const { return state_; }

 private:
  void show_state(double time_s, const v1::StateChange& change);
  std::string name_;
  Progress progress_;
  v1::JobState state_ = v1::JOB_STATE_UNSPECIFIED;
  double started_s_ = 0;
  double last_s_ = 0;
  double checkpoint_note_s_ = -1e9;
  double asked_end_s_ = 0;
  bool live_;
  bool reconnect_reported_ = false;
};

}  // namespace trainyard::cli
