// trainyard logs: shows the log lines of a job.
#include <memory>

#include "client/cli/command.h"
#include "client/cli/job_view.h"
#include "client/lib/metric_history.h"

namespace trainyard::cli {
namespace {

struct LogsOptions {
  std::string name;
  bool follow = false;
};

Style style_of(v1::LogLine::Level level) {
  if (level == v1::LogLine::ERROR) return Style::kBad;
  return level == v1::LogLine::WARN ? Style::kNotice : Style::kPlain;
}

/// Renders a log line or a state change; state changes make the log complete.
std::string render(const v1::Event& event, bool colour) {
  const std::string time = paint(colour, Style::kDim, local_time(event.time())) + "  ";
  if (event.has_log()) {
    std::string level = v1::LogLine::Level_Name(event.log().level());
    level.resize(5, ' ');
    return time + paint(colour, style_of(event.log().level()), level) + "  " +
           safe_text(event.log().text());
  }
  const v1::StateChange& change = event.state();
  std::string text =
      "STATE  " + paint(colour, state_style(change.state()), state_name(change.state()));
  if (!change.device().empty()) {
    text += " on " + safe_text(devices_text(change.device(), change.devices()));
  }
  if (!change.message().empty()) text += ": " + safe_text(change.message());
  return time + text;
}

Result<int> run_logs(Session& session, const LogsOptions& options) {
  ASSIGN_OR_RETURN(const std::string name, session.full_name("jobs", options.name));
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  const std::stop_token stop = session.interrupted();
  const auto read =
      client::read_events(*server, name, options.follow, stop, [&](const v1::Event& event) {
        if (!event.has_log() && !event.has_state()) return true;
        return session.out().line(session.machine() ? to_json(event, false)
                                                    : render(event, session.out().colour()));
      });
  if (!read.ok()) return read.error();
  note_thinned(session, *read);
  return static_cast<int>(stop.stop_requested() ? client::kExitInterrupted : client::kExitOk);
}

}  // namespace

Command logs_command() {
  auto o = std::make_shared<LogsOptions>();
  return {"logs",
          "Show a job's log lines and state changes",
          {"trainyard logs digits-1", "trainyard logs digits-1 --follow"},
          "",
          [o](OptionSet& options) {
            options.positional("JOB", o->name, "the job's name");
            options.flag("-f,--follow", o->follow, "keep printing until the job ends");
          },
          [o](Session& session) { return run_logs(session, *o); }};
}

}  // namespace trainyard::cli
