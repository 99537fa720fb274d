#include "client/cli/follow_view.h"

#include <thread>

#include "client/cli/job_view.h"
#include "client/cli/options.h"
#include "client/cli/relative_name.h"
#include "client/lib/follow.h"
#include "src/base/wait_for_stop.h"

namespace trainyard::cli {
namespace {

/// Returns the exit code of a job that has ended. For people it also prints on stderr why the job
/// did not succeed, and the job's warnings.
int report_end(Session& session, const v1::Job& job) {
  if (!session.machine()) {
    if (job.state() != v1::SUCCEEDED) {
      session.err().line(safe_text(relative_name(job.name())) + " is " + state_name(job.state()) +
                         ": " + safe_text(job.message()) + " [" + safe_text(job.reason()) + "]");
    }
    for (const std::string& warning : job.progress().warnings()) {
      session.err().line("warning: " + safe_text(warning));
    }
  }
  return exit_code_of_job(job.state());
}

}  // namespace

Result<int> watch_until_end(Session& session, const std::string& name, int64_t after,
                            Terminal& terminal) {
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  const std::stop_token stop = session.interrupted();
  const bool lines = session.machine();
  JobView view(session, terminal, name);
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  bool reported_thinned = false;
  client::FollowHandler handler;
  handler.started = [&](const v1::WatchJobResponse::Start& start) {
    state = start.job().state();
    if (!lines) view.started(start);
    if (!reported_thinned) note_thinned(session, start.job());
    reported_thinned = true;
  };
  handler.event = [&](const v1::Event& event) {
    if (event.has_state()) state = event.state().state();
    if (lines)
      return session.out().line(
          // returns false, which ends the watch, if the reader has closed stdout
          to_json(event, false));
    if (state == v1::SUCCEEDED) {  // with keep_best, the final metrics are not the newest
      if (const Result<v1::Job> job = server->call(client::rpc::kGetJob, name); job.ok())
        view.result(*job);
    }
    // The same estimate as in 'get', 'queue' and 'device list'.
    if (view.wants_expected_end(event)) {
      if (const Result<v1::Job> job = server->call(client::rpc::kGetJob, name); job.ok())
        view.expect_end(*job);
    }
    view.event(event);
    return true;
  };
  handler.reconnecting = [&](const Error& error) {
    if (!lines) view.reconnecting(error);
  };
  const Status followed = client::follow_job(*server, name, after, stop, handler);
  if (!lines) view.finish();
  if (!followed.ok()) return followed.error();
  if (stop.stop_requested() && !client::is_terminal(state)) {
    const std::string id(relative_name(name));
    session.err().line("No longer watching; the job continues. 'trainyard watch " + id +
                       "' shows it again, 'trainyard "
                       "cancel " +
                       id + "' cancels it.");
    return static_cast<int>(client::kExitInterrupted);
  }
  if (!client::is_terminal(state))
    return static_cast<int>(client::kExitOk);  // the reader has closed stdout
  return exit_code_of_job(state);
}

Result<int> wait_until_end(Session& session, const std::string& name, double timeout_s) {
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  ASSIGN_OR_RETURN(const v1::Job job, server->call(client::rpc::kGetJob, name));
  if (client::is_terminal(job.state())) return report_end(session, job);

  std::stop_source over;
  const std::stop_token interrupted = session.interrupted();
  const std::stop_callback on_interrupt(interrupted, [&] { over.request_stop(); });
  std::jthread timer;
  if (!(timeout_s >= 0)) {
    return usage_error("--timeout: expected a number of seconds above 0");
  }
  if (timeout_s > 0) {
    timer = std::jthread([&over, timeout_s](std::stop_token ended) {
      wait_for_stop(ended, std::chrono::duration<double>(timeout_s));
      if (!ended.stop_requested()) over.request_stop();
    });
  }
  v1::JobState state = job.state();
  const auto report_pause = [&] {
    if (state != v1::PAUSED || session.machine()) return;
    const std::string id = safe_text(relative_name(name));
    session.err().line(id + " is paused: 'trainyard resume " + id + "' continues it.");
  };
  report_pause();
  client::FollowHandler handler;
  handler.started = [&](const v1::WatchJobResponse::Start& start) { state = start.job().state(); };
  handler.event = [&](const v1::Event& event) {
    if (event.has_state()) {
      state = event.state().state();
      report_pause();
    }
    return true;
  };
  const Status followed =
      client::follow_job(*server, name, job.newest_seq(), over.get_token(), handler);
  timer.request_stop();
  if (!followed.ok()) return followed.error();
  if (client::is_terminal(state)) {
    // The final state is known, so it is no failure if the server has stopped or the job was
    // deleted since.
    const Result<v1::Job> ended = server->call(client::rpc::kGetJob, name);
    return ended.ok() ? report_end(session, *ended) : exit_code_of_job(state);
  }
  if (interrupted.stop_requested()) return static_cast<int>(client::kExitInterrupted);
  return make_error(ErrorCode::kDeadlineExceeded, "WAIT_TIMEOUT",
                    std::string(relative_name(name)) + " has not ended within " +
                        human_duration(timeout_s) + "; it continues");
}

}  // namespace trainyard::cli
