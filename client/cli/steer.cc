// trainyard pause, resume, cancel: take jobs off their devices, return them to the queue, or end
// them. The changes are durable and safe to repeat.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/array_view.h"
#include "client/cli/command.h"
#include "client/cli/job_view.h"
#include "client/cli/relative_name.h"

namespace trainyard::cli {
namespace {

constexpr client::Rpc<v1::CancelJobRequest, v1::Job> kCancelJob{"JobService/CancelJob",
                                                                client::Repeat::kUntilDeadline};
constexpr client::Rpc<v1::PauseJobRequest, v1::Job> kPauseJob{"JobService/PauseJob",
                                                              client::Repeat::kUntilDeadline};
constexpr client::Rpc<v1::ResumeJobRequest, v1::Job> kResumeJob{"JobService/ResumeJob",
                                                                client::Repeat::kUntilDeadline};

using Names = std::vector<std::string>;
using Change = Result<v1::Job> (*)(client::Client& server, const std::string& name);

/// Calls the RPC kRpc of rpcs.h, whose request is only a name.
template <const auto& kRpc>
Result<v1::Job> change_by(client::Client& server, const std::string& name) {
  return server.call(kRpc, name);
}

std::string pause_text(const v1::Job& job) {
  if (job.state() == v1::PAUSED) return " is paused";
  return " will pause; its worker finishes its step and saves a checkpoint first";
}

std::string resume_text(const v1::Job& job) {
  if (job.state() == v1::QUEUED) return " is back in the queue";
  return job.state() == v1::RUNNING ? " runs" : " is " + state_name(job.state());
}

std::string cancel_text(const v1::Job& job) {
  if (job.state() == v1::CANCELLED) return " is cancelled";
  if (client::is_terminal(job.state())) return " had already ended: " + state_name(job.state());
  return " will stop; its worker saves a checkpoint first";
}

Result<int> run_change(Session& session, const std::string& command, const Names& names,
                       Change change, std::string (*text)(const v1::Job&)) {
  ASSIGN_OR_RETURN(client::Client * server, session.client(client::Client::NoServer::kWait));
  for (const std::string& given : names) {
    ASSIGN_OR_RETURN(const std::string name, session.full_name("jobs", given));
    Result<v1::Job> changed = change(*server, name);
    if (!changed.ok()) return point_to_array(*server, name, std::move(changed).error(), command);
    const v1::Job& job = *changed;
    session.show(job, [&] { return std::string(); }, {job.name()});
    if (session.machine()) continue;
    session.err().line(safe_text(relative_name(job.name())) + text(job));
  }
  return static_cast<int>(client::kExitOk);
}

Command steering(std::string name, std::string summary, std::vector<std::string> examples,
                 std::string notes, Change change, std::string (*text)(const v1::Job&)) {
  auto names = std::make_shared<Names>();
  return {name,
          std::move(summary),
          std::move(examples),
          std::move(notes),
          [names](OptionSet& options) { options.positionals("JOB", *names, "the jobs' names"); },
          [name, names, change, text](Session& session) {
            return run_change(session, name, *names, change, text);
          }};
}

}  // namespace

Command pause_command() {
  return steering(
      "pause", "Take jobs off their device until they are resumed",
      {"trainyard pause digits-1",
       "trainyard list --state running -o name | xargs trainyard pause"},
      "A running job ends its step, saves a checkpoint and frees its device; a waiting one does "
      "not start. No step is\nlost, and the result is that of a job that never paused.",
      &change_by<kPauseJob>, pause_text);
}

Command resume_command() {
  return steering(
      "resume", "Put paused jobs back into the queue",
      {"trainyard resume digits-1",
       "trainyard list --state paused -o name | xargs trainyard resume"},
      "A job's place in the queue depends on its priority and on when it was submitted.",
      &change_by<kResumeJob>, resume_text);
}

Command cancel_command() {
  return steering("cancel", "Cancel jobs; safe to repeat",
                  {"trainyard cancel digits-1",
                   "trainyard list --state queued -o name | xargs trainyard cancel"},
                  "", &change_by<kCancelJob>, cancel_text);
}

}  // namespace trainyard::cli
