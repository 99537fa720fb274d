// trainyard logs: the log lines among a job's events.
#include <memory>

#include "client/cli/command.h"
#include "client/cli/job_view.h"
#include "client/lib/names.h"

namespace trainyard::cli {
namespace {

struct Options {
  std::string name;
  bool follow = false;
};

Style style_of(v1::LogLine::Level level) {
  if (level == v1::LogLine::ERROR) return Style::kBad;
  return level == v1::LogLine::WARN ? Style::kNotice : Style::kPlain;
}

/// State changes stand among the lines, so that a log tells the whole story.
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
  if (!change.device().empty()) text += " on " + safe_text(client::short_name(change.device()));
  if (!change.message().empty()) text += ": " + safe_text(change.message());
  return time + text;
}

Result<int> run(Session& session, const Options& options) {
  ASSIGN_OR_RETURN(const std::string name, session.full_name("jobs", options.name));
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  int64_t until = 0;  // without --follow: the newest event when we began
  client::FollowHandler handler;
  handler.started = [&](const v1::WatchJobResponse::Start& start) {
    if (until == 0) until = start.newest_seq();
  };
  handler.event = [&](const v1::Event& event) {
    bool goes_on = true;
    if (event.has_log() || event.has_state()) {
      goes_on = session.out().line(session.machine() ? to_json(event, false)
                                                     : render(event, session.out().colour()));
    }
    return goes_on && (options.follow || event.seq() < until);
  };
  const std::stop_token stop = session.interrupted();
  const Status followed = client::follow_job(*server, name, 0, stop, handler);
  if (!followed.ok()) return followed.error();
  return static_cast<int>(stop.stop_requested() ? client::kExitInterrupted : client::kExitOk);
}

}  // namespace

Command logs_command() {
  auto o = std::make_shared<Options>();
  return {"logs",
          "Show a job's log lines and state changes",
          {"trainyard logs digits-1", "trainyard logs digits-1 --follow"},
          "",
          [o](OptionSet& options) {
            options.positional("JOB", o->name, "the job's name");
            options.flag("-f,--follow", o->follow, "go on until the job ends");
          },
          [o](Session& session) { return run(session, *o); }};
}

}  // namespace trainyard::cli
